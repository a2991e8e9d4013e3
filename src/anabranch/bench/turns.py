"""`live` and its control in turns, in one running query.

Two queries differ by more than a move costs: the JVM compiles for minutes, and a shared machine is
not as fast from minute to minute. So one query goes from 2 workers to 3 several times (and back,
which does not count), and each move is compared with as long a time without one just before it and
just after.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anabranch.bench.connections import PeerSamples
from anabranch.bench.latency import Timeline, Window
from anabranch.bench.load import LoadedQuery, Prepared
from anabranch.bench.machine import StolenShare
from anabranch.bench.openloop import OpenLoop
from anabranch.bench.rescale_runs import (
    CONTROL,
    Run,
    ServiceRuns,
    brief,
    pids,
    wait_until_in_memory,
    warm_up,
    watch_until,
)
from anabranch.service import StateService

BACK = "megaphone"
"""The way back: over in seconds, and nobody measures it."""
REST_SECONDS = 15.0
"""After the way back, before anything counts."""
WARM_SECONDS = 75.0
"""Under load until the JVM has compiled most of what it will."""
CONTROL_SECONDS = 45.0
"""Of a time without a move as long as nobody knows how long a move takes."""


@dataclass
class Turns:
    """A query under load, and what is done with it in turns."""

    ours: ServiceRuns
    new_run: Callable[[str, int], Run]
    """Of a label and a number."""
    is_rehearsed: bool
    """Whether the JVM has seen such a load and such a move before."""
    _control_seconds: float = CONTROL_SECONDS
    """As long as the last move."""

    def run(self, prepared: Prepared, count: int) -> Iterator[Run]:
        """Control, live, control, live, ..., control; each as soon as it is done."""
        first = self.new_run(CONTROL, 0)
        try:
            self.ours.say("copying the prepared state")
            with self.ours.started("turns", prepared) as (service, query):
                load = self._begin(first, service, query)
                yield self._control(first, service, query, load)
                for number in range(count):
                    yield self._live(self.new_run("live", number), service, query, load)
                    self._go_back(service, query, load)
                    run = self.new_run(CONTROL, number + 1)
                    yield self._control(run, service, query, load)
                query.drain()
        except Exception as error:  # other parts of the benchmark are still to be run
            failed = self.new_run("live", count)
            failed.error = brief(error)
            yield failed

    def _begin(self, run: Run, service: StateService, query: LoadedQuery) -> OpenLoop:
        ours, settle = self.ours, self.ours.timing.settle
        warm_up(query, run.rate, ours.say)
        wait_until_in_memory(service, ours.say)
        load = query.open(run.rate)
        if self.is_rehearsed:
            watch_until(query, load, settle, ours.say, "settling")
            return load
        watch_until(query, load, WARM_SECONDS, ours.say, "warming up")
        rehearsal = self.new_run("live", 0)
        self._control_seconds = ours.move(rehearsal, service, query, load).seconds
        self._go_back(service, query, load)
        return load

    def _control(self, run: Run, service: StateService, query: LoadedQuery, load: OpenLoop) -> Run:
        steady, start, stolen = self.ours.timing.steady, time.time(), StolenShare()
        peers = PeerSamples(pids(service))
        end = start - load.started + 2 * steady + self._control_seconds
        watch_until(query, load, end, self.ours.say, "without a move", peers.look)
        run.peers, run.peer_samples = peers.most, peers.count
        run.stolen = stolen.since()
        return self._cut(run, query, load, start)

    def _live(self, run: Run, service: StateService, query: LoadedQuery, load: OpenLoop) -> Run:
        steady, start, stolen = self.ours.timing.steady, time.time(), StolenShare()
        begun = start - load.started
        watch_until(query, load, begun + steady, self.ours.say, "steady load")
        moved = self.ours.move(run, service, query, load)
        watch_until(query, load, moved.end + steady, self.ours.say, "steady load afterwards")
        run.steady = Window(0.0, moved.start - begun)
        run.move = Window(moved.start - begun, moved.end - begun)
        self._control_seconds = run.move.seconds
        run.stolen = stolen.since()
        return self._cut(run, query, load, start)

    def _go_back(self, service: StateService, query: LoadedQuery, load: OpenLoop) -> None:
        self.ours.say(f"back to {self.ours.workers} workers")
        service.rescale(self.ours.workers, strategy=BACK, wait=True)
        end = time.time() - load.started + REST_SECONDS
        watch_until(query, load, end, self.ours.say, "resting")

    def _cut(self, run: Run, query: LoadedQuery, load: OpenLoop, start: float) -> Run:
        """What the load has seen since then, as if it had begun then."""
        query.collect()
        run.timeline = Timeline(load.later(start), query.batches)
        return run
