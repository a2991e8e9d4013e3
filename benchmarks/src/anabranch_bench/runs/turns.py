"""`live` and its control in turns, in one running query.

Two queries differ by more than a move costs: the JVM compiles for minutes, and a shared machine is
not as fast from minute to minute. So one query goes from 2 workers to 3 several times (and back,
which does not count), and each move is compared with as long a time without one just before it and
just after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from anabranch.loadtest.latency import Timeline, TimeWindow
from anabranch.loadtest.loaded_query import LoadedQuery, Prepared, warm_up
from anabranch_bench.probes.connections import PeerSamples
from anabranch_bench.probes.machine import CoreTimes
from anabranch_bench.probes.workers import pids, wait_until_in_memory
from anabranch_bench.results.cases import CONTROL, Case
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import RunResult, brief
from anabranch_bench.runs.key_count_runs import KeyCountRuns
from anabranch_bench.runs.sides import Side
from anabranch_bench.runs.under_load import UnderLoad, told

BACK = Case.parse("megaphone")
"""The way back: over in seconds, and nobody measures it."""
REST_SECONDS = 15.0
"""After the way back, before anything counts."""
WARM_SECONDS = 75.0
"""Under load in the first query, until the JVM has compiled most of what it will."""
WARM_AGAIN_SECONDS = 30.0
"""The same in later ones."""
EXPECTED_BYTES_PER_SECOND = 10e6
"""Of a move, as long as nobody knows better; a time without one shall not be shorter."""
RETAKES_MAX = 2
"""Further moves in a query, for those that the machine spoiled."""


@dataclass
class Turns:
    """The order of turns."""

    ours: KeyCountRuns
    new_run: Callable[[str, int], RunResult]
    """Of a label and a number."""
    is_rehearsed: bool
    """Whether the JVM has seen such a load and such a move before."""
    _move_seconds: float = 0.0
    """How long the last move took, or is expected to."""

    def run(self, prepared: Prepared, count: int) -> Iterator[RunResult]:
        """Control, live, control, live, ..., control; each as soon as it is done.

        More than `count` moves if some have nothing to be compared with: a hypervisor may give
        the cores to others for a minute.
        """
        done = RunSet()
        for run in self._take(prepared, lambda moves: _is_enough(done, moves, count)):
            done.runs.append(run)
            yield run

    def _take(self, prepared: Prepared, is_enough: Callable[[int], bool]) -> Iterator[RunResult]:
        run, moves = self.new_run(CONTROL, 0), 0
        self._move_seconds = expected_seconds(run, self.ours)
        try:
            with self.ours.started("turns", prepared) as (side, query):
                turns = self._begin(run.load.rate, side, query)
                yield turns.control(run, self._move_seconds)
                while not is_enough(moves):
                    run = self.new_run("live", moves)
                    yield turns.live(run)
                    if run.move is not None:
                        self._move_seconds = run.move.seconds
                    moves += 1
                    run = self.new_run(CONTROL, moves)
                    turns.go_back()
                    yield turns.control(run, self._move_seconds)
                run = self.new_run(CONTROL, moves + 1)  # what fails now is not the last one's fault
                query.drain()
        except Exception as error:  # other parts of the benchmark are still to be run
            run.error = brief(error)
            yield run

    def _begin(self, rate: float, side: Side, query: LoadedQuery) -> TurnTaking:
        say = self.ours.say
        warm_up(query, rate, say)
        wait_until_in_memory(side.service, say)
        under = UnderLoad(side, query, query.open(rate), lambda moment: say(told(moment)))
        turns = TurnTaking(self.ours, under)
        turns.watch(WARM_AGAIN_SECONDS if self.is_rehearsed else WARM_SECONDS)
        if not self.is_rehearsed:
            rehearsal = under.move(self.new_run("live", 0).case, self.ours.target)
            self._move_seconds = rehearsal.window.seconds
            turns.go_back()
        return turns


@dataclass
class TurnTaking:
    """What a turn does with the query."""

    ours: KeyCountRuns
    under: UnderLoad

    def control(self, run: RunResult, seconds: float) -> RunResult:
        """As long without a move."""
        with self._turn(run):
            self.watch(seconds + self.ours.timing.steady)
        return run

    def live(self, run: RunResult) -> RunResult:
        """From fewer workers to more; one that fails is a result too."""
        with self._turn(run) as begun:
            try:
                moved = self.under.move(run.case, self.ours.target)
            except Exception as error:
                self.under.query.watch(0.0)  # nothing can follow if the query has failed too
                run.error = brief(error)
            else:
                self.watch(self.ours.timing.steady)
                start, end = moved.window.start - begun, moved.window.end - begun
                run.moves = [replace(moved, window=TimeWindow(start, end))]
        return run

    def go_back(self) -> None:
        """To fewer workers, and rest."""
        self.under.move(BACK, self.ours.workers)
        self.watch(REST_SECONDS)

    def watch(self, seconds: float, look: Callable[[], None] = lambda: None) -> None:
        """Let the load run for so long."""
        self.under.watch(self.under.seconds + seconds, look)

    @contextmanager
    def _turn(self, run: RunResult) -> Iterator[float]:
        """The part of a load that is one run, as if the load had begun with it; when it began.

        Its first seconds are the same in every turn: looks cost something, so nobody has more.
        """
        query, load, steady = self.under.query, self.under.load, self.ours.timing.steady
        start, cores, peers = time.time(), CoreTimes(), PeerSamples(pids(self.under.side.service))
        self.watch(steady, peers.look)
        yield start - load.started
        query.collect()
        run.settle = steady / 4  # not from the very beginning: throughput counts from a commit on
        run.timeline, run.cores = Timeline(load.later(start), query.batches), cores.since()
        run.peers, run.peer_samples = peers.most, peers.count


def expected_seconds(run: RunResult, ours: KeyCountRuns) -> float:
    """Of a move that adds workers, about."""
    moved = run.load.state_bytes * (1 - ours.workers / ours.target)
    return max(REST_SECONDS, moved / EXPECTED_BYTES_PER_SECOND)


def _is_enough(done: RunSet, moves: int, count: int) -> bool:
    """Whether so many moves can be judged, or have failed, or it is no use."""
    told = [r for r in done.runs if r.label != CONTROL and (r.error or done.controls_of(r))]
    return len(told) >= count or moves >= count + RETAKES_MAX
