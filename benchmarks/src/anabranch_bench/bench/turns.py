"""`live` and its control in turns, in one running query.

Two queries differ by more than a move costs: the JVM compiles for minutes, and a shared machine is
not as fast from minute to minute. So one query goes from 2 workers to 3 several times (and back,
which does not count), and each move is compared with as long a time without one just before it and
just after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from anabranch.loadtest.latency import Timeline, TimeWindow
from anabranch.loadtest.loaded_query import LoadedQuery, Prepared, warm_up, watch_until
from anabranch.loadtest.schedule import OpenLoop
from anabranch.service import StateService
from anabranch_bench.bench.comparison import controls_of
from anabranch_bench.bench.connections import PeerSamples
from anabranch_bench.bench.machine import CoreTimes
from anabranch_bench.bench.rescale_runs import (
    CONTROL,
    Run,
    ServiceRuns,
    brief,
    follow,
    pids,
    wait_until_in_memory,
)

BACK = "megaphone"
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

    ours: ServiceRuns
    new_run: Callable[[str, int], Run]
    """Of a label and a number."""
    is_rehearsed: bool
    """Whether the JVM has seen such a load and such a move before."""
    _move_seconds: float = 0.0
    """How long the last move took, or is expected to."""

    def run(self, prepared: Prepared, count: int) -> Iterator[Run]:
        """Control, live, control, live, ..., control; each as soon as it is done.

        More than `count` moves if some have nothing to be compared with: a hypervisor may give
        the cores to others for a minute.
        """
        done: list[Run] = []
        for run in self._take(prepared, lambda moves: _is_enough(done, moves, count)):
            done.append(run)
            yield run

    def _take(self, prepared: Prepared, is_enough: Callable[[int], bool]) -> Iterator[Run]:
        run, moves = self.new_run(CONTROL, 0), 0
        self._move_seconds = expected_seconds(run, self.ours)
        try:
            self.ours.say("copying the prepared state")
            with self.ours.started("turns", prepared) as (service, query):
                running = self._begin(run.rate, service, query)
                yield running.control(run, self._move_seconds)
                while not is_enough(moves):
                    run = self.new_run("live", moves)
                    yield running.live(run)
                    if run.move is not None:
                        self._move_seconds = run.move.seconds
                    moves += 1
                    run = self.new_run(CONTROL, moves)
                    running.go_back()
                    yield running.control(run, self._move_seconds)
                run = self.new_run(CONTROL, moves + 1)  # what fails now is not the last one's fault
                query.drain()
        except Exception as error:  # other parts of the benchmark are still to be run
            run.error = brief(error)
            yield run

    def _begin(self, rate: float, service: StateService, query: LoadedQuery) -> RunningQuery:
        say = self.ours.say
        warm_up(query, rate, say)
        wait_until_in_memory(service, say)
        running = RunningQuery(self.ours, service, query, query.open(rate))
        running.watch(WARM_AGAIN_SECONDS if self.is_rehearsed else WARM_SECONDS, "warming up")
        if not self.is_rehearsed:
            rehearsal = self.new_run("live", 0)
            self._move_seconds = self.ours.move(rehearsal, service, query, running.load).seconds
            running.go_back()
        return running


@dataclass
class RunningQuery:
    """A query under load, and what a turn does with it."""

    ours: ServiceRuns
    service: StateService
    query: LoadedQuery
    load: OpenLoop

    def control(self, run: Run, seconds: float) -> Run:
        """As long without a move."""
        steady, cut = self.ours.timing.steady, Cut(self, run)
        self._steady(run, "without a move")
        self.watch(seconds + steady, "without a move")
        return cut.end()

    def live(self, run: Run) -> Run:
        """From fewer workers to more; one that fails is a result too."""
        cut = Cut(self, run)
        self._steady(run, "steady load")
        try:
            moved = self.ours.move(run, self.service, self.query, self.load)
        except Exception as error:
            self.query.watch(0.0)  # nothing can follow if the query has failed too
            run.error = brief(error)
            return cut.end()
        self.watch(self.ours.timing.steady, "steady load afterwards")
        run.move = TimeWindow(moved.start - cut.begun, moved.end - cut.begun)
        # Not from the very beginning: throughput is counted from a commit on.
        run.steady = TimeWindow(self.ours.timing.steady / 4, run.move.start)
        return cut.end()

    def go_back(self) -> None:
        """To fewer workers, and rest."""
        move = self.service.rescale(self.ours.workers, strategy=BACK, wait=False)
        follow(move, self.query, self.ours.say, f"back to {self.ours.workers} workers")
        self.watch(REST_SECONDS, "resting")

    def watch(self, seconds: float, what: str, look: Callable[[], None] = lambda: None) -> None:
        """Let the load run for so long."""
        end = time.time() - self.load.started + seconds
        watch_until(self.query, self.load, end, self.ours.say, what, look)

    def _steady(self, run: Run, what: str) -> None:
        """What every turn begins with: looks cost something, so nobody has more than others."""
        peers = PeerSamples(pids(self.service))
        self.watch(self.ours.timing.steady, what, peers.look)
        run.peers, run.peer_samples = peers.most, peers.count


class Cut:
    """The part of a load that is one run, as if the load had begun with it."""

    def __init__(self, running: RunningQuery, run: Run) -> None:
        self._running, self._run = running, run
        self._start, self._cores = time.time(), CoreTimes()
        self.begun = self._start - running.load.started
        """In seconds since the load began."""

    def end(self) -> Run:
        """The run with all that it has seen."""
        self._running.query.collect()
        later = self._running.load.later(self._start)
        self._run.timeline = Timeline(later, self._running.query.batches)
        self._run.cores = self._cores.since()
        return self._run


def expected_seconds(run: Run, ours: ServiceRuns) -> float:
    """Of a move that adds workers, about."""
    moved = run.state_bytes * (1 - ours.workers / ours.target)
    return max(REST_SECONDS, moved / EXPECTED_BYTES_PER_SECOND)


def _is_enough(done: Sequence[Run], moves: int, count: int) -> bool:
    """Whether so many moves can be judged, or have failed, or it is no use."""
    told = [r for r in done if r.label != CONTROL and (r.error or controls_of(r, done))]
    return len(told) >= count or moves >= count + RETAKES_MAX
