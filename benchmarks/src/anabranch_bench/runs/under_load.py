"""A query under an open-loop load: time passes, state moves, somebody looks after both."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from anabranch.errors import AnabranchError
from anabranch.loadtest.loaded_query import LOOK_SECONDS, LoadedQuery
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.probes.workers import key_groups
from anabranch_bench.results.cases import Case
from anabranch_bench.results.run_result import MeasuredMove
from anabranch_bench.runs.sides import Moving, Side

MOVE_SECONDS_MAX = 1800.0


@dataclass(frozen=True)
class Moment:
    """What is going on, for a display."""

    phase: str
    seconds: float
    """Since the load began; negative before."""
    rows: int
    latency: float | None
    """Of the slowest row of the last batch."""
    groups: Callable[[], Mapping[str, int]] = dict
    """Key groups of each worker; asked for only when they are shown, as it costs something."""
    progress: float | None = None
    """Of a move that runs, or of the phase before the load."""
    left: int | None = None
    """Rows that are still to come, after the load."""


ShowMoment = Callable[[Moment], None]


def told(moment: Moment) -> str:
    """What is going on, in a line."""
    done = "" if moment.progress is None else f", {moment.progress:.0%}"
    if moment.left is not None:
        return f"{moment.phase}, {moment.left:,} rows left"
    if moment.phase != "load":
        return f"{moment.phase}{done}"
    moving = f", moving{done}" if done else ""
    latency = "" if moment.latency is None else f", latency {moment.latency:.2f} s"
    return f"{max(0.0, moment.seconds):.0f} s under load{latency}{moving}"


@dataclass
class UnderLoad:
    """From the beginning of a load on."""

    side: Side
    query: LoadedQuery
    load: OpenLoop
    show: ShowMoment
    look_seconds: float = LOOK_SECONDS
    """Looks cost the JVM something: as many with a move as without."""
    move_seconds_max: float = MOVE_SECONDS_MAX
    moves: list[Moving] = field(default_factory=list)
    """All that were begun; a later one may take the place of one that runs."""
    ended: float = 0.0
    """When the last one had ended, in seconds since the load began."""
    _running: list[tuple[float, Moving]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Since the load began."""
        return time.time() - self.load.started

    def watch(self, until: float, look: Callable[[], None] = lambda: None) -> None:
        """Let the load run until that many seconds after its beginning."""
        while (left := until - self.seconds) > 0:
            self._pass(min(left, self.look_seconds))
            look()

    def begin_move(self, case: Case, workers: int) -> Moving:
        """Ask for so many workers."""
        at = self.seconds
        move = self.side.begin_move(self.query, self.load, case, workers)
        self.moves.append(move)
        self._running.append((at, move))
        return move

    def follow(self) -> None:
        """Wait until no move runs; raise if the query fails, or if it takes too long."""
        while self._running:
            self._pass(self.look_seconds)
            began = max((at for at, _ in self._running), default=self.seconds)
            if self.seconds - began > self.move_seconds_max:
                raise AnabranchError(
                    f"The reconfiguration has not ended after {self.move_seconds_max:.0f} seconds. "
                    "Ask for a lower --rate: the query may be overloaded."
                )

    def move(self, case: Case, workers: int) -> MeasuredMove:
        """Begin one and wait for its end."""
        move = self.begin_move(case, workers)
        try:
            self.follow()
        finally:
            self._running.clear()  # one that failed is not waited for again
        return move.measured(self.load)

    def _pass(self, seconds: float) -> None:
        """Some time, or less if a move ends; then a look at everything."""
        if self._running:
            self._running[-1][1].wait(seconds)
            self.query.watch(0.0)
        else:
            self.query.watch(seconds)
        running = [(at, move) for at, move in self._running if not move.wait(0)]
        if len(running) < len(self._running):
            self._running, self.ended = running, self.seconds
        self._tell()

    def _tell(self) -> None:
        rows, latency = 0, None
        if self.query.batches:
            last = self.query.batches[-1]
            rows = last.end_row
            if rows > self.load.first_row:
                first = max(last.first_row, self.load.first_row)
                latency = last.committed - self.load.intended(first)
        groups = partial(key_groups, self.side.service)
        progress = self._running[-1][1].progress if self._running else None
        self.show(Moment("load", self.seconds, rows, latency, groups, progress))
