"""One run of a workload: under a steady load, rescaled on the way, verified at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.coordinator.move_handle import MoveHandle, MoveReport
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.loadtest.latency import Latency, Timeline, TimeWindow, median
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch.loadtest.schedule import OpenLoop, read_schedule
from anabranch.service import StateService
from anabranch_bench.workloads.contract import Workload
from anabranch_bench.workloads.source import event_stream, one_query
from anabranch_bench.workloads.verify import Collected, Verification, verify

PRELOAD_ROWS_A_BATCH = 200_000
WARM_UP_BATCHES = 4
WARM_UP_BATCH_ROWS_MIN = 1000
POLL_SECONDS = 0.1
MOVE_SECONDS_MAX = 600.0
KEY_GROUPS = 256


@dataclass(frozen=True, slots=True)
class Rescale:
    """Ask for so many workers, so many seconds after the load began."""

    workers: int
    at: float


@dataclass(frozen=True)
class RunSettings:
    """How a workload is run."""

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
    """Seconds that the load goes on after the last reconfiguration, at least."""
    standby: bool = False
    """Whether replicas for the first rescale are kept from the start (see `rhino`)."""
    key_groups: int = KEY_GROUPS

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


@dataclass(frozen=True)
class MeasuredMove:
    """A reconfiguration: when (seconds since the load began), and what it did."""

    window: TimeWindow
    report: MoveReport

    @property
    def name(self) -> str:
        """As in `2 -> 3 workers`."""
        report = self.report
        return f"{len(report.workers_before)} -> {len(report.workers_after)} workers"


@dataclass(frozen=True, slots=True)
class Replication:
    """What keeping replicas moved: at first, and under the load up to the reconfiguration."""

    copy_bytes: int
    steady_bytes: int
    seconds: float
    """Under load."""


@dataclass
class RunResult:
    """What a run showed, as far as it came."""

    workload: Workload
    settings: RunSettings
    timeline: Timeline | None = None
    rows: int = 0
    """Rows of the stream that were processed, preloaded ones included."""
    output_rows: int = 0
    capacity: float = math.nan
    """Rows a second of the last batches of the warm-up, back to back."""
    replication: Replication | None = None
    changes: list[MeasuredMove] = field(default_factory=list)
    verdicts: list[Verification] = field(default_factory=list)
    interrupted: bool = False

    @property
    def is_right(self) -> bool:
        """No output was found wrong."""
        return all(v.is_right for v in self.verdicts)

    def phases(self) -> list[tuple[str, Latency]]:
        """Latency before, during and after each reconfiguration; without one, over all."""
        timeline = self.timeline
        if timeline is None or not timeline.batches:
            return []
        if not self.changes:
            return [("all", timeline.after(TimeWindow(0.0, timeline.end)))]
        found, free = [], 0.0
        for number, change in enumerate(self.changes):
            window, later = change.window, self.changes[number + 1 :]
            end = later[0].window.start if later else timeline.end
            found.append((f"before {change.name}", timeline.before(TimeWindow(free, window.start))))
            found.append((f"during {change.name}", timeline.during(window)))
            found.append((f"after {change.name}", timeline.after(TimeWindow(window.end, end))))
            free = window.end
        return found

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        timeline, settings = self.timeline, self.settings
        return {
            "workload": self.workload.name,
            "rate": settings.rate,
            "duration": settings.duration,
            "workers": settings.workers,
            "strategy": settings.strategy,
            "interrupted": self.interrupted,
            "rows": self.rows,
            "output_rows": self.output_rows,
            # A list: a run that goes out, in and out again has phases of the same name.
            "latency": [{"phase": name} | latency.to_json() for name, latency in self.phases()],
            "reconfigurations": [
                {"name": c.name, "start": c.window.start, "end": c.window.end}
                | {"report": c.report.as_json()}
                for c in self.changes
            ],
            "verdicts": [v.to_json() for v in self.verdicts],
            "batches": [
                {"done": p.done, "slowest": p.slowest, "fastest": p.fastest, "rows": p.rows}
                for p in (timeline.points() if timeline else [])
            ],
        }


@dataclass(frozen=True)
class SchedulePace:
    """Follows the schedule in a file (see `bench.openloop`)."""

    path: str

    def end_of_batch(self, start: int, now: float) -> int:
        """What the schedule says at this time."""
        return read_schedule(Path(self.path)).end_of_batch(start, now)


@dataclass(frozen=True)
class Moment:
    """What is going on, for a display."""

    phase: str
    seconds: float
    """Since the load began; negative before."""
    rows: int
    latency: float | None
    """Of the slowest row of the last batch."""
    groups: dict[str, int]
    """Key groups of each worker."""
    progress: float | None = None
    """Of a reconfiguration that runs, or of the phase before the load."""


Show = Callable[[Moment], None]


class _Stopped(Exception):
    """Somebody wants the run to end now."""


def maker(
    spark: SparkSession, service: StateService, workload: Workload
) -> Callable[[Path], DataFrame]:
    """For LoadedQuery: the workload's whole query, following a schedule."""

    def make(schedule: Path) -> DataFrame:
        events = event_stream(spark, workload.events, SchedulePace(str(schedule)))
        return one_query(workload.build(service, events))

    return make


class WorkloadRun:
    """Runs a workload in a folder of its own."""

    def __init__(
        self,
        spark: SparkSession,
        folder: Path,
        workload: Workload,
        settings: RunSettings,
        show: Show = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._workload = workload
        self._settings = settings
        self._show = show
        self._should_stop = should_stop
        self._pending = sorted(settings.rescales, key=lambda r: r.at)
        self._moves: list[tuple[float, MoveHandle]] = []
        self._ended: dict[int, float] = {}
        self._standby: MoveHandle | None = None
        self._copied = 0
        self.result = RunResult(workload, settings)

    def run(self) -> RunResult:
        """Preload, warm up, load and rescale, drain, verify. `result` is filled on the way."""
        result = self.result
        sink = Collected(list(self._workload.outputs))
        write = sink.write if self._settings.verify else None
        with StateService(
            self._spark,
            str(self._folder / "state"),
            workers=self._settings.workers,
            key_groups=self._settings.key_groups,
        ) as service:
            make = maker(self._spark, service, self._workload)
            with LoadedQuery(make, self._folder, 0, write) as query:
                load: OpenLoop | None = None
                try:
                    self._warm_up(service, query)
                    load = query.open(self._settings.rate)
                    self._load(service, query, load)
                    query.drain()
                except _Stopped:
                    result.interrupted = True
                    query.drain()
                finally:
                    self._record(query, load)
                    result.output_rows = sink.rows
        if self._settings.verify:
            result.verdicts = verify(self._workload, result.rows, sink)
        return result

    # -- phases --

    def _warm_up(self, service: StateService, query: LoadedQuery) -> None:
        """State first; then batches as large as those to come, so that the JVM compiles."""

        def on(phase: str) -> Callable[[float], None]:
            def batch(done: float) -> None:
                self._check()
                self._show(Moment(phase, -1.0, query.next_row, None, groups_of(service), done))

            return batch

        preload = self._workload.preload_rows
        if preload:
            query.burst(preload, min(preload, PRELOAD_ROWS_A_BATCH), on("loading the state"))
        rows = warm_up_batch_rows(self._settings.rate)
        batches = query.burst(WARM_UP_BATCHES * rows, rows, on("warming up"))
        warm = batches[len(batches) // 2 :]
        self.result.capacity = median([b.rows / (b.committed - b.started) for b in warm])
        if self._settings.standby and self._settings.rescales:
            self._standby = service.standby(self._settings.rescales[0].workers)
            while not self._standby.report().counters.get("replications"):
                query.burst(rows, rows, on("making replicas"))
                self._standby.wait(0)  # raises if it has failed
            self._copied = self._standby.report().bytes

    def _load(self, service: StateService, query: LoadedQuery, load: OpenLoop) -> None:
        while self._goes_on(load):
            now = time.time() - load.started
            if self._pending and now >= self._pending[0].at:
                self._end_standby(now)
                self._moves.append((now, self._rescale(service, self._pending.pop(0).workers)))
            query.watch(POLL_SECONDS)
            for _, move in self._moves:
                if move.number not in self._ended and move.wait(0):
                    self._ended[move.number] = time.time() - load.started
            self._tell(service, query, load)
            self._check()

    def _end_standby(self, now: float) -> None:
        """A rescale takes its place."""
        if self._standby is not None:
            steady = self._standby.report().bytes - self._copied
            self.result.replication = Replication(self._copied, steady, now)
            self._standby = None

    def _record(self, query: LoadedQuery, load: OpenLoop | None) -> None:
        """What was seen so far."""
        query.collect()
        self.result.rows = query.next_row
        if load is None:
            return
        self.result.timeline = query.timeline(load)
        end = self.result.timeline.end
        self.result.changes = [
            MeasuredMove(TimeWindow(start, self._ended.get(move.number, end)), move.report())
            for start, move in self._moves
        ]

    def _goes_on(self, load: OpenLoop) -> bool:
        """For the duration, and until the last reconfiguration is done and seen off."""
        seconds = time.time() - load.started
        if seconds < self._settings.duration or self._pending:
            return True
        if all(move.number in self._ended for _, move in self._moves):
            return seconds < max(self._ended.values(), default=0.0) + self._settings.after
        if seconds - self._moves[-1][0] > MOVE_SECONDS_MAX:
            raise AnabranchError(
                f"The reconfiguration has not ended after {MOVE_SECONDS_MAX:.0f} seconds. Ask for "
                "a lower --rate: the query may be overloaded."
            )
        return True

    def _rescale(self, service: StateService, workers: int) -> MoveHandle:
        settings = self._settings
        return service.rescale(
            workers, strategy=settings.strategy, dry_run=False, **settings.options
        )

    def _tell(self, service: StateService, query: LoadedQuery, load: OpenLoop) -> None:
        last, latency = query.batches[-1], None
        if last.end_row > load.first_row:
            latency = last.committed - load.intended(max(last.first_row, load.first_row))
        running = [move.progress for _, move in self._moves if not move.is_done]
        seconds = time.time() - load.started
        groups, progress = groups_of(service), running[-1] if running else None
        self._show(Moment("load", seconds, last.end_row, latency, groups, progress))

    def _check(self) -> None:
        if self._should_stop():
            raise _Stopped


def warm_up_batch_rows(rate: float) -> int:
    """Rows of each batch of the warm-up: those of a second, or a few more."""
    return max(WARM_UP_BATCH_ROWS_MIN, int(rate))


def groups_of(service: StateService) -> dict[str, int]:
    """Key groups of each worker."""
    workers = service.status()["workers"]
    return {name: worker["key_groups"] for name, worker in workers.items()}
