"""One queue of future actions: the only clock of a simulation, so a seed fixes every step."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from random import Random
from typing import Any, Protocol


class Timer(Protocol):
    """Where a process lets things happen later."""

    def after(self, delay: int, label: str, action: Callable[..., None], *args: Any) -> None:
        """Run an action `delay` ticks from now."""

    def delay(self, most: int) -> int:
        """A random delay."""


class Scheduler:
    """Runs actions in order of time; ties in the order in which they were asked for."""

    __slots__ = ("_count", "_queue", "now", "rng", "steps", "trace")

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.now = 0
        self.steps = 0
        self.trace: list[tuple[int, str]] = []
        self._count = 0
        self._queue: list[tuple[int, int, str, Callable[..., None], tuple[Any, ...]]] = []

    def after(self, delay: int, label: str, action: Callable[..., None], *args: Any) -> None:
        """Run an action `delay` ticks from now."""
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay, self._count, label, action, args))

    def at(self, when: int, label: str, action: Callable[..., None], *args: Any) -> None:
        """Run an action at a time."""
        self._count += 1
        heapq.heappush(self._queue, (when, self._count, label, action, args))

    def delay(self, most: int) -> int:
        """A random delay of 1..most ticks; one in sixteen takes eight times as long."""
        chance = self.rng.random()
        ticks = 1 + int(chance * most)
        return ticks * 8 if (chance * 1024) % 16 < 1 else ticks

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append((self.now, text))

    def run(self, steps_max: int) -> bool:
        """Run actions until none is left; False when there are too many."""
        queue, trace, pop = self._queue, self.trace, heapq.heappop
        while queue:
            if self.steps >= steps_max:
                return False
            self.now, _, label, action, args = pop(queue)
            self.steps += 1
            if label:
                trace.append((self.now, label))
            action(*args)
        return True

    def trace_hash(self) -> str:
        """Fingerprint of everything that happened."""
        return hashlib.sha256(repr(self.trace).encode()).hexdigest()[:16]

    def trace_lines(self) -> tuple[str, ...]:
        """Everything that happened, for people."""
        return tuple(f"{when:>5} {label}" for when, label in self.trace)
