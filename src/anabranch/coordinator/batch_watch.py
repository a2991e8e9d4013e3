"""What moves want to know of batches: how long they take, which run, which never end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

from anabranch.coordinator import steady_clock
from anabranch.coordinator.operator_record import BatchTiming, OperatorRecord
from anabranch.model.stats import ROWS_DEFERRED, ROWS_FORWARDED, TIMES
from anabranch.protocol import coordinator as protocol

LATELY_SECONDS = 10.0
"""A batch since then: the query is under load."""

RECENT = 20
"""Batches of an operator that say what is usual."""

GIVEN_UP_SECONDS = 30.0
"""Where nobody knows whether a query runs: a batch without a sign of life for so long does not."""

STUCK_SECONDS = 60.0
"""A batch of a query that runs, without a sign of life for so long, is not waited for."""

STUCK_TIMES = 3
"""Nor before so many times what a batch takes at most."""

COUNTED = (*TIMES, ROWS_FORWARDED, ROWS_DEFERRED)
"""What reports say of each batch."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Batches at a moment."""

    is_idle: bool
    """Whether nothing runs: what has begun waits for the move, or its query has ended."""
    ended: tuple[str, ...]
    """Operators whose query has ended in the middle of a batch."""
    stuck: str
    """Why nothing will come of those that run; empty: something may."""


class BatchWatch:
    """Those of all operators."""

    def __init__(
        self,
        machine: protocol.CoordinatorMachine,
        lock: Any,
        operators: Mapping[str, OperatorRecord],
        is_running: Callable[[str, str], bool | None],
    ) -> None:
        """`is_running` tells of an operator and its query whether it is active; None: unknown."""
        self._machine = machine
        self._lock = lock
        self._operators = operators
        self._is_running = is_running

    def observe(self, since: float) -> Observed:
        """Which batches run; `since` is when somebody began to wait for them."""
        with self._lock:
            views = {n: v.query_id for n, v in self._machine.operators.items() if v.is_in_batch}
            held = self._held()
            operators = dict(self._operators)
        ended, running = [], []
        for name, query_id in views.items():
            operator = operators[name]
            silent = steady_clock.now() - operator.alive_at
            # Outside of the lock: it asks the JVM.
            is_running = None if query_id is None else self._is_running(name, query_id)
            if is_running is None:
                is_running = silent < GIVEN_UP_SECONDS
            if not is_running:
                ended.append(name)
            elif name not in held:
                running.append(operator)
        return Observed(not running, tuple(ended), _stuck(running, since))

    def is_silent(self, seconds: float) -> bool:
        """Whether no query had a sign of life for so long; one that has ended does not count."""
        with self._lock:
            query_of = {n: v.query_id for n, v in self._machine.operators.items()}
            lately = [
                o for o in self._operators.values() if steady_clock.now() - o.alive_at < seconds
            ]
        queries = [(operator.name, query_of.get(operator.name)) for operator in lately]
        return all(
            query_id is not None and self._is_running(name, query_id) is False
            for name, query_id in queries
        )

    def _held(self) -> set[str]:
        """Operators with lanes that the move itself holds back: it must not wait for these."""
        machine = self._machine
        if machine.gate is None:
            return set()
        groups = len(machine.routing.owners)
        return {e.operator for e in machine.parked if machine.gate.holds(e, groups)}

    def is_busy(self) -> bool:
        """Whether batches ran lately."""
        return any(ts and not _is_over(ts[-1]) for ts in self._timings().values())

    def usual_wait(self, idle_seconds: float) -> float:
        """Seconds until a batch is committed, or until none has run for so long."""
        waits = []
        for timings in self._timings().values():
            gaps = [b.started - a.started for a, b in pairwise(timings[-RECENT:])]
            seconds = _seconds(timings)
            if gaps and seconds and not _is_over(timings[-1]):
                waits.append(min(median(gaps), median(seconds) + idle_seconds))
        return min(waits, default=idle_seconds)

    def seconds_before(self) -> dict[str, list[float]]:
        """How long recent batches of each operator took."""
        return {name: _seconds(timings) for name, timings in self._timings().items()}

    def between(self, since: float, until: float) -> tuple[Mapping[str, Any], ...]:
        """Those that ended after one time and began before another, for reports."""
        return tuple(
            {
                "operator": name,
                "epoch": timing.epoch,
                "seconds": timing.seconds,
                **{what: timing.stats.get(what, 0) for what in COUNTED},
            }
            for name, timings in self._timings().items()
            for timing in timings
            if timing.seconds is not None
            and timing.started + timing.seconds >= since
            and timing.started <= until
        )

    def _timings(self) -> dict[str, list[BatchTiming]]:
        with self._lock:
            return {name: list(operator.timings) for name, operator in self._operators.items()}


def _is_over(last: BatchTiming) -> bool:
    return (
        last.seconds is not None
        and steady_clock.now() - last.started > last.seconds + LATELY_SECONDS
    )


def _seconds(timings: list[BatchTiming]) -> list[float]:
    return [timing.seconds for timing in timings[-RECENT:] if timing.seconds is not None]


def _stuck(running: list[OperatorRecord], since: float) -> str:
    """Why nothing will come of batches, as far as one can tell from here."""
    longest = 0.0
    for operator in running:
        silent = steady_clock.now() - max(operator.alive_at, since)
        usual = max(_seconds(list(operator.timings)), default=0.0)
        if silent < max(STUCK_SECONDS, STUCK_TIMES * usual):
            return ""
        longest = max(longest, silent)
    if not running:
        return ""
    return (
        f"The running batch of operator '{running[0].name}' did not go on for {longest:.0f} s. "
        "Perhaps its tasks wait for cores that tasks of other queries have."
    )
