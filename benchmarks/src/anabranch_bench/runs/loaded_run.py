"""One run: a query is warmed up, put under load, moved on the way, drained and verified."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.loadtest.latency import Batch, median
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch.loadtest.schedule import read_schedule
from anabranch.service import StateService
from anabranch_bench.probes.connections import PeerSamples
from anabranch_bench.probes.workers import pids, wait_until_in_memory, written_bytes
from anabranch_bench.results.cases import CONTROL, Case
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.run_result import INTERRUPTED, Replication, RunResult
from anabranch_bench.runs.sides import Build, ServiceSide, Side
from anabranch_bench.runs.under_load import MOVE_SECONDS_MAX, Moment, ShowMoment, UnderLoad
from anabranch_bench.workloads.contract import Workload
from anabranch_bench.workloads.source import event_stream, one_query
from anabranch_bench.workloads.verify import Collected, verify

PRELOAD_ROWS_A_BATCH = 200_000
WARM_UP_BATCHES = 4
WARM_UP_BATCH_ROWS_MIN = 1000
LOOK_SECONDS = 0.1
"""For people, who look on."""
KEY_GROUPS = 256
CATCHING_UP = "catching up"


@dataclass(frozen=True, slots=True)
class Rescale:
    """Ask for so many workers, so many seconds after the load began."""

    workers: int
    at: float


@dataclass(frozen=True)
class RunSettings:
    """How a query is run."""

    rate: float
    duration: float
    """Seconds of load."""
    workers: int = 2
    rescales: tuple[Rescale, ...] = ()
    strategy: str = "live"
    verify: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    """Of the strategy, as `rescale` takes them."""
    after: float = 0.0
    """Seconds that the load goes on after the last move, at least."""
    standby: bool = False
    """Whether replicas for the first rescale are kept from the start (see `rhino`)."""
    key_groups: int = KEY_GROUPS
    preload_rows: int = 0
    """Rows that fill the state before anything else."""
    warm_up_batches: int = WARM_UP_BATCHES
    probe_seconds: float = 0.0
    """Under load, in which connections between workers and what they write are counted."""
    look_seconds: float = LOOK_SECONDS
    move_seconds_max: float = 600.0

    def __post_init__(self) -> None:
        if not self.rate > 0 or not self.duration > 0:
            raise InvalidArgument("Rate and duration must be above 0.")
        most = max(self.workers, *(r.workers for r in self.rescales), 1)
        if self.workers < 1 or most > self.key_groups:
            raise InvalidArgument(
                f"The number of workers must be between 1 and {self.key_groups}, the number of key "
                f"groups; got {self.workers if self.workers < 1 else most}."
            )
        late = [r for r in self.rescales if r.at >= self.duration]
        if late:
            raise InvalidArgument(
                f"The rescale to {late[0].workers} workers at {late[0].at:g} s is after the end of "
                f"the load at {self.duration:g} s. Ask for it earlier, or for a longer --duration."
            )

    @property
    def case(self) -> Case:
        """What its rescales do."""
        if not self.rescales:
            return Case(CONTROL)
        return Case(self.strategy, self.strategy, self.options)


class _Stopped(Exception):
    """Somebody wants the run to end now."""


@dataclass
class LoadedRun:
    """A run on a query that was started."""

    side: Side
    query: LoadedQuery
    settings: RunSettings
    result: RunResult
    show: ShowMoment = lambda _: None
    should_stop: Callable[[], bool] = lambda: False
    _standby: MoveHandle | None = None
    _copied: int = 0
    """Bytes of the first replicas."""
    _under: UnderLoad | None = None

    def run(self) -> None:
        """Warm up, load and move, drain; the result is filled on the way."""
        is_restarted = self.query.next_row > 0
        try:
            self._warm_up()
            if is_restarted:
                wait_until_in_memory(self.side.service, self._say)
            if self.settings.standby and self.settings.rescales:
                self._make_replicas(self.settings.rescales[0].workers)
            self._load()
            self.query.drain(self._say_left)
        except _Stopped:
            self.result.error = INTERRUPTED
            self.query.drain(self._say_left)
        finally:
            self._record()

    # -- phases --

    def _warm_up(self) -> None:
        """State first; then batches as large as those to come, so that the JVM compiles."""
        preload = self.settings.preload_rows
        if preload:
            self._burst(preload, min(preload, PRELOAD_ROWS_A_BATCH), "loading the state")
        rows = warm_up_batch_rows(self.settings.rate)
        batches = self._burst(self.settings.warm_up_batches * rows, rows, "warming up")
        warm = batches[len(batches) // 2 :]
        self.result.capacity = median([b.rows / (b.committed - b.started) for b in warm])

    def _make_replicas(self, workers: int) -> None:
        """They are there before anything is measured."""
        assert self.side.service is not None
        self._standby = standby = self.side.service.standby(workers)
        start, rows = time.time(), warm_up_batch_rows(self.settings.rate)
        while not standby.report().counters.get("replications"):
            self._burst(rows, rows, "making replicas")
            standby.wait(0)  # raises if it has failed
            if time.time() - start > MOVE_SECONDS_MAX:
                raise AnabranchError("The replicas were not complete in time.")
        self._copied = standby.report().bytes

    def _load(self) -> None:
        settings = self.settings
        self._under = under = UnderLoad(
            self.side,
            self.query,
            self.query.open(settings.rate),
            self._show,
            settings.look_seconds,
            settings.move_seconds_max,
        )
        if settings.probe_seconds:
            self._probe(under)
        for rescale in sorted(settings.rescales, key=lambda r: r.at):
            under.watch(rescale.at)
            self._end_standby(under.seconds)
            under.begin_move(settings.case, rescale.workers)
        under.watch(settings.duration)
        under.follow()
        under.watch(under.ended + settings.after)

    def _probe(self, under: UnderLoad) -> None:
        """What workers do while nothing moves."""
        peers, wrote = PeerSamples(pids(self.side.service)), written_bytes(self.side.service)
        under.watch(self.settings.probe_seconds, peers.look)
        self.result.peers, self.result.peer_samples = peers.most, peers.count
        wrote = written_bytes(self.side.service) - wrote
        self.result.written_a_second = wrote / max(1e-9, under.seconds)

    def _end_standby(self, now: float) -> None:
        """A rescale takes its place."""
        if self._standby is not None:
            steady = self._standby.report().bytes - self._copied
            self.result.replication = Replication(self._copied, steady, now)
            self._standby = None

    def _record(self) -> None:
        """What was seen so far."""
        self.query.collect()
        self.result.rows = self.query.next_row
        if self._under is not None:
            load = self._under.load
            self.result.timeline = self.query.timeline(load)
            self.result.moves = [move.measured(load) for move in self._under.moves]

    # -- helpers --

    def _burst(self, rows: int, batch_rows: int, phase: str) -> list[Batch]:
        return self.query.burst(rows, batch_rows, lambda done: self._say(phase, done))

    def _say(self, phase: str, done: float | None = None) -> None:
        self._show(Moment(phase, -1.0, self.query.next_row, None, progress=done))

    def _say_left(self, rows: int) -> None:
        # Who wants it to stop waits for this.
        self.show(Moment(CATCHING_UP, -1.0, self.query.next_row, None, left=rows))

    def _show(self, moment: Moment) -> None:
        self.show(moment)
        if self.should_stop():
            raise _Stopped


@dataclass
class WorkloadRun:
    """A workload on a service of its own, from an empty state on; verified at the end."""

    spark: SparkSession
    folder: Path
    workload: Workload
    settings: RunSettings
    show: ShowMoment = lambda _: None
    should_stop: Callable[[], bool] = lambda: False
    made: RunResult | None = None
    """To be filled; a new one if None."""

    def __post_init__(self) -> None:
        load = RunLoad(self.workload.name, self.settings.rate, self.workload.description)
        self.result = self.made or RunResult(load, self.settings.case)

    def run(self) -> RunResult:
        """Preload, warm up, load and rescale, drain, verify. `result` is filled on the way."""
        settings = replace(self.settings, preload_rows=self.workload.preload_rows)
        result, sink = self.result, Collected(list(self.workload.outputs))
        build = workload_query(self.spark, self.workload)
        options = {"workers": settings.workers, "key_groups": settings.key_groups}
        with (
            ServiceSide.started(self.spark, self.folder, build, **options) as side,
            LoadedQuery(
                side.make, self.folder, 0, sink.write if settings.verify else None
            ) as query,
        ):
            try:
                LoadedRun(side, query, settings, result, self.show, self.should_stop).run()
            finally:
                result.output_rows = sink.rows
        if settings.verify:
            result.verifications = verify(self.workload, result.rows, sink)
        return result


@dataclass(frozen=True)
class SchedulePace:
    """Follows the schedule in a file (see `anabranch.loadtest.schedule`)."""

    path: str

    def end_of_batch(self, start: int, now: float) -> int:
        """What the schedule says at this time."""
        return read_schedule(Path(self.path)).end_of_batch(start, now)


def workload_query(spark: SparkSession, workload: Workload) -> Build:
    """The workload's whole query."""

    def build(service: StateService, schedule: Path) -> DataFrame:
        events = event_stream(spark, workload.events, SchedulePace(str(schedule)))
        return one_query(workload.build(service, events))

    return build


def warm_up_batch_rows(rate: float) -> int:
    """Rows of each batch of the warm-up: those of a second, or a few more."""
    return max(WARM_UP_BATCH_ROWS_MIN, int(rate))
