"""A reconfiguration in the hands of a user: watch, wait, report, cancel, retarget."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from anabranch.coordinator import steady_clock
from anabranch.errors import ReconfigurationFailed, ServiceUnavailable
from anabranch.model.ids import WorkerId
from anabranch.model.stats import ROWS_FORWARDED
from anabranch.protocol.move_parts import ACROSS_HOSTS, ON_HOST

PROGRAM = "program"
"""A cause: the driver's program has asked."""
CANCELLED = "It was cancelled."
STOPPED = "The service was stopped."


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What a reconfiguration did, and what batches saw of it."""

    strategy: str
    outcome: str
    """"done", or why it ended early; "running" before its end."""
    seconds: float
    workers_before: tuple[str, ...]
    workers_after: tuple[str, ...]
    groups: int
    """Key groups that changed their owner."""
    bytes: int
    counters: Mapping[str, int]
    batches: tuple[Mapping[str, Any], ...]
    """Batches that ran meanwhile: operator, epoch, seconds, TIMES, rows forwarded."""

    @property
    def pause_seconds(self) -> float:
        """The longest time that a batch waited for its state, or that the move held it back."""
        # A move holds batches back once at most; how long each one waited nobody counts.
        held = self.counters.get("gated_ms", 0) if self.counters.get("begins_held") else 0
        longest: int = max([held, *(batch["load_ms"] for batch in self.batches)])
        return longest / 1000

    @property
    def rows_forwarded(self) -> int:
        """Rows in flight that reached an old owner, which passed them on to the new one."""
        return sum(batch[ROWS_FORWARDED] for batch in self.batches)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **asdict(self),
            "pause_seconds": self.pause_seconds,
            "rows_forwarded": self.rows_forwarded,
        }

    def __str__(self) -> str:
        lines = [
            f"{self.strategy}: {len(self.workers_before)} -> {len(self.workers_after)} workers, "
            f"{self.outcome}",
            f"  key groups moved  {self.groups}",
            f"  bytes             {self.bytes:,}",
            f"  duration          {self.seconds:.2f} s",
            f"  longest pause     {self.pause_seconds * 1000:.0f} ms "
            f"(a batch that waited; {len(self.batches)} batches ran meanwhile)",
        ]
        if at_once := self.counters.get("idle_groups"):
            rounds = self.counters.get("idle_rounds", 0)
            lines.append(
                f"  moved at once     {at_once} key groups in {rounds} "
                f"{'round' if rounds == 1 else 'rounds'}: no batch ran"
            )
        if self.rows_forwarded:
            lines.append(f"  rows forwarded    {self.rows_forwarded:,}")
        # Said above, or means to an end.
        hidden = ["bytes", "flips", "groups", "left", "behind", "idle_groups", "idle_rounds"]
        if not self.counters.get(ACROSS_HOSTS):
            hidden.append(ON_HOST)  # all of them
        shown = {n: v for n, v in sorted(self.counters.items()) if v and n not in hidden}
        lines += [f"  {name:<17} {value:,}" for name, value in shown.items()]
        return "\n".join(lines)


@dataclass(slots=True)
class GateClock:
    """How long a move has held batches back."""

    _closed: float | None = None
    """When it was closed, if it is."""
    _seconds: float = 0.0

    def look(self, is_closed: bool) -> None:
        """After whatever may have closed or opened it."""
        if is_closed and self._closed is None:
            self._closed = steady_clock.now()
        elif self._closed is not None and not is_closed:
            self._seconds += steady_clock.now() - self._closed
            self._closed = None

    def take(self) -> dict[str, int]:
        """For the report of the move that ends now."""
        seconds, self._seconds = self._seconds, 0.0
        return {"gated_ms": math.ceil(1000 * seconds)} if seconds else {}


@dataclass(slots=True)
class Progress:
    """How far a reconfiguration is."""

    moves: int
    copied: int
    flipped: int
    settled: int

    @property
    def fraction(self) -> float:
        """From 0 to 1; a copied key group counts a half."""
        done = self.settled + 0.75 * self.flipped + 0.5 * self.copied
        return min(1.0, done / self.moves) if self.moves else 1.0


@dataclass(eq=False)
class MoveHandle:
    """A reconfiguration, running or ended. `StateService.rescale` and similar methods return it."""

    number: int
    strategy: str
    workers_before: tuple[WorkerId, ...]
    workers_after: tuple[WorkerId, ...]
    look: Callable[[MoveHandle], tuple[Progress, Mapping[str, int]]]
    batches: Callable[[float, float], tuple[Mapping[str, Any], ...]]
    """Those that ended after one time and began before another."""
    on_cancel: Callable[[MoveHandle, str], MoveHandle]
    """And who asks, as in `cause`."""
    on_retarget: Callable[[int, str], MoveHandle]
    cause: str = PROGRAM
    """Who asked for it."""
    started: float = field(default_factory=steady_clock.now)
    _ended: threading.Event = field(default_factory=threading.Event)
    _outcome: str = "running"
    _fraction: float = 0.0
    _report: MoveReport | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    @property
    def progress(self) -> float:
        """From 0 to 1. If the move ended early: how far it came."""
        if self.is_done:
            return 1.0 if self._outcome == "done" else self._fraction
        self._fraction = max(self._fraction, self.look(self)[0].fraction)
        return self._fraction

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end. Returns False if the timeout (in seconds) came first.

        Raises ReconfigurationFailed if the move failed, and ServiceUnavailable if the service was
        stopped before its end. A move that was cancelled or replaced raises nothing.
        """
        # no limit: the caller's choice; a move ends with the service at the latest
        if not self._ended.wait(timeout):
            return False
        if self._outcome.startswith("failed"):
            raise ReconfigurationFailed(
                f"The reconfiguration ({self.strategy}) {self._outcome} Key groups that had not "
                "moved stay where they were, and the query keeps running. Fix the cause and ask "
                "again."
            )
        if self._outcome == STOPPED:
            raise ServiceUnavailable(
                f"The state service was stopped at {self.progress:.0%} of the reconfiguration "
                f"({self.strategy}). Nothing is lost: ask the next service for its workers."
            )
        return True

    def cancel(self, *, cause: str = PROGRAM) -> MoveHandle:
        """Give up. Key groups that have moved go back. Returns the handle of the way back.

        If the move has ended, or another request has replaced it, nothing changes, and you get this
        handle. `cause` says who asks, for the journal.
        """
        return self.on_cancel(self, cause)

    def retarget(self, workers: int, *, cause: str = PROGRAM) -> MoveHandle:
        """Continue to another number of workers, from the present layout and in the same way.

        Returns the handle of the new move.
        """
        return self.on_retarget(workers, cause)

    def report(self) -> MoveReport:
        """Tell what the move has done so far."""
        if self._report is None:
            return self._make_report("running", *self.look(self))
        # The batch that ran when the move ended has ended since.
        batches = self.batches(self.started, self.started + self._report.seconds)
        if len(batches) > len(self._report.batches):
            self._report = replace(self._report, batches=batches)
        return self._report

    def ended(
        self, reason: str, counters: Mapping[str, int], progress: Progress | None = None
    ) -> None:
        """The protocol has nothing left to do for it: batches from now on are not its business."""
        progress = progress or self.look(self)[0]
        self._outcome, self._fraction = reason or "done", max(self._fraction, progress.fraction)
        self._report = self._make_report(self._outcome, progress, counters)
        self._ended.set()

    def _make_report(
        self, outcome: str, progress: Progress, counters: Mapping[str, int]
    ) -> MoveReport:
        return MoveReport(
            self.strategy,
            outcome,
            steady_clock.now() - self.started,
            self.workers_before,
            self.workers_after,
            counters.get("flips", progress.settled),
            counters.get("bytes", 0),
            dict(counters),
            self.batches(self.started, math.inf),
        )

    def _repr_html_(self) -> str:
        """For notebooks."""
        from anabranch.report.moves import move_fragment

        return move_fragment(repr(self), self.report().as_json(), self.cause)

    def __repr__(self) -> str:
        return f"Move({self.strategy}, {self._outcome}, {self.progress:.0%})"
