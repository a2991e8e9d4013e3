"""One run under load: on the state service with a strategy, or without any (control)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch import agg
from anabranch.coordinator.move_handle import MoveHandle
from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.loadtest.latency import Batch, Latency, Timeline, TimeWindow, median
from anabranch.loadtest.loaded_query import (
    LOOK_SECONDS,
    WARM_UP_BATCHES,
    Folders,
    LoadedQuery,
    Prepared,
    Say,
    warm_up,
    watch_until,
)
from anabranch.loadtest.schedule import OpenLoop, load_frame
from anabranch.service import StateService
from anabranch_bench.bench.connections import PeerSamples
from anabranch_bench.bench.machine import CoreShares

CONTROL = "control"
NATIVE = "spark"
"""Label of Spark's own way: stop, repartition the checkpoint, start again."""

STRATEGIES = (
    "live",
    "lazy",
    "meces",
    "drrs",
    "rhino",
    "replicate",
    "megaphone",
    "order-unaware",
    "pause",
    "stop-restart",
)
"""All, in the order of reports: first those that do not make rows wait for whole key groups."""

KEY_BYTES = 16
"""A key and its count."""
FILL_BYTES_A_BATCH = 96 << 20
FILL_ROWS_A_BATCH_MAX = 500_000
CAPACITY_ROWS = 100_000
CAPACITY_BATCHES = 4
SETTLE_SECONDS = 20.0
MOVE_SECONDS_MAX = 1800.0
LOAD_SECONDS_MAX = 1800.0


@dataclass(frozen=True, slots=True)
class Case:
    """What is done to the query in the middle of a run."""

    label: str
    strategy: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Case:
        """`live`, `meces:batch=5`, `megaphone:plan=fluid`, `control` or `spark`."""
        name, _, rest = text.partition(":")
        if name in (CONTROL, NATIVE):
            return cls(name)
        options: dict[str, Any] = {}
        for part in filter(None, rest.split(",")):
            key, equals, value = part.partition("=")
            if not equals:
                raise InvalidArgument(f"'{text}': write options as {name}:name=value,name=value.")
            options[key] = _number_or_text(value)
        return cls(text, name, options)


def _number_or_text(value: str) -> int | float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(value)
    return value


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of the phases of a run."""

    settle: float = 10.0
    """Under load before anything counts."""
    steady: float = 20.0
    """Under load before and after the move."""
    trigger: float = 0.0
    """From the beginning of a batch to that of the next; 0: as soon as it is done."""


@dataclass
class Run:
    """What one run showed."""

    part: str
    case: Case
    repeat: int
    rate: float
    keys: int
    payload_bytes: int
    is_turn: bool = False
    """Whether it is a part of one long query (`bench/turns.py`), not a query of its own."""
    timeline: Timeline | None = None
    steady: TimeWindow | None = None
    """Under load before the move."""
    move: TimeWindow | None = None
    report: dict[str, Any] = field(default_factory=dict)
    peers: int | None = None
    """Most connections between workers at a time before the move."""
    peer_samples: int = 0
    """How often they were counted."""
    cores: CoreShares = field(default_factory=CoreShares)
    """In a turn."""
    written_a_second: float = 0.0
    """Bytes that workers wrote before the move."""
    error: str = ""

    @property
    def label(self) -> str:
        """Name in tables."""
        return self.case.label

    @property
    def state_bytes(self) -> int:
        """Keys, counts and payloads, without what any store adds."""
        return self.keys * (self.payload_bytes + KEY_BYTES)

    def before(self, window: TimeWindow | None = None) -> Latency | None:
        """Steady state before the move."""
        window = window or self.steady
        return self.timeline.before(window) if self.timeline and window else None

    def during(self, window: TimeWindow | None = None) -> Latency | None:
        """While the move ran, or in the window of another run."""
        window = window or self.move
        return self.timeline.during(window) if self.timeline and window else None

    def after(self, window: TimeWindow | None = None) -> Latency | None:
        """After the move (the end of `window`)."""
        window = window or self.move
        if not self.timeline or not window:
            return None
        return self.timeline.after(TimeWindow(window.end, self.timeline.end))


def counts(service: StateService, df: DataFrame, payload_bytes: int) -> DataFrame:
    """Key-count; with a payload, each key keeps its first one."""
    grouped = service.group_by(df, "k")
    if not payload_bytes:
        return grouped.aggregate(n=agg.count(), name="counts")
    payload = agg.first("payload", ignore_nulls=True)
    return grouped.aggregate(n=agg.count(), payload=payload, name="counts")


def capacity(batches: list[Batch]) -> float:
    """Rows a second of full batches back to back; the first one only warms up."""
    return median([b.rows / (b.committed - b.started) for b in batches[1:]])


def fill(query: LoadedQuery, keys: int, payload_bytes: int, say: Say) -> float:
    """Bring every key once, then measure the capacity: rows a second."""
    rows = min(FILL_ROWS_A_BATCH_MAX, FILL_BYTES_A_BATCH // (payload_bytes + KEY_BYTES))
    query.burst(keys, rows, lambda done: say(f"loading the state, {done:.0%}"))
    return _burst_capacity(query, say)


def settle(query: LoadedQuery, found: float, say: Say) -> float:
    """Run under load until the JVM is warm and what follows loading (snapshots) has been done.

    The capacity, rows a second: what was found before or, if that is less, what is found now. Half
    of a figure from a machine's best moment is more than half of what it can do.
    """
    watch_until(query, query.open(found / 2), SETTLE_SECONDS, say, "settling")
    query.drain()
    return min(found, _burst_capacity(query, say))


def _burst_capacity(query: LoadedQuery, say: Say) -> float:
    say("measuring the capacity")
    return capacity(query.burst(CAPACITY_BATCHES * CAPACITY_ROWS, CAPACITY_ROWS, lambda _: None))


@dataclass
class ServiceRuns:
    """Runs on the state service, all from copies of the same prepared state."""

    spark: SparkSession
    folder: Path
    timing: Timing
    workers: int
    target: int
    say: Say
    fsync: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the service, beside those above."""

    def __post_init__(self) -> None:
        self._folders = Folders(self.folder)

    def prepare(self, keys: int, payload_bytes: int) -> tuple[Prepared, float]:
        """Load a state once; the capacity that it was found to have, in rows a second."""
        folder = self._folders.fresh("prepared")
        with self._service(folder) as service:
            make = self._maker(service, keys, payload_bytes)
            with LoadedQuery(make, folder, 0, trigger_seconds=self.timing.trigger) as query:
                found = fill(query, keys, payload_bytes, self.say)
                found = settle(query, found, self.say)
                query.drain()
        return Prepared(folder, keys, payload_bytes, query.next_row), found

    def run(self, run: Run, prepared: Prepared, seconds_min: float = 0.0) -> None:
        """Fill in a run; a strategy that fails is a result too. Lasts at least `seconds_min`."""
        self.say("copying the prepared state")
        try:
            with self.started("run", prepared) as (service, query):
                self._measure(run, service, query, seconds_min)
        except Exception as error:  # the others are still to be run
            run.error = brief(error)

    def restart(self, prepared: Prepared) -> float:
        """Seconds from the start of a service and its query to the first batch on all keys."""
        with self._folders.copy("restart", prepared) as folder:
            started = time.time()
            with (
                self._service(folder) as service,
                LoadedQuery(
                    self._maker(service, prepared.keys, prepared.payload_bytes),
                    folder,
                    prepared.next_row,
                ) as query,
            ):
                batches = query.burst(CAPACITY_ROWS, CAPACITY_ROWS, lambda _: None)
                return batches[0].committed - started

    @contextmanager
    def started(self, name: str, prepared: Prepared) -> Iterator[tuple[StateService, LoadedQuery]]:
        """A service and a query on a copy of a prepared state."""
        with (
            self._folders.copy(name, prepared) as folder,
            self._service(folder) as service,
            LoadedQuery(
                self._maker(service, prepared.keys, prepared.payload_bytes),
                folder,
                prepared.next_row,
                trigger_seconds=self.timing.trigger,
            ) as query,
        ):
            yield service, query

    def _measure(
        self, run: Run, service: StateService, query: LoadedQuery, seconds_min: float
    ) -> None:
        warm_up(query, run.rate, self.say)
        wait_until_in_memory(service, self.say)  # that it comes is not what is measured here
        if run.case.strategy == "rhino":
            self._make_replicas(service, query, run.rate)
        load, wrote = query.open(run.rate), written_bytes(service)
        try:
            begin = self.timing.settle + self.timing.steady
            peers = PeerSamples(pids(service))
            watch_until(query, load, begin, self.say, "steady load", peers.look)
            run.peers, run.peer_samples = peers.most, peers.count
            wrote = written_bytes(service) - wrote
            run.written_a_second = wrote / max(1e-9, time.time() - load.started)
            if run.case.strategy is not None:
                run.steady = TimeWindow(self.timing.settle, time.time() - load.started)
                run.move = self.move(run, service, query, load)
                begin = run.move.end
            end = max(begin + self.timing.steady, seconds_min)
            watch_until(query, load, end, self.say, "steady load afterwards")
            query.drain()
        finally:
            query.collect()
            run.timeline = query.timeline(load)

    def _make_replicas(self, service: StateService, query: LoadedQuery, rate: float) -> None:
        """Rhino has its replicas before anything is measured."""
        standby, start, rows = service.standby(self.target), time.time(), max(1000, int(rate))
        while not standby.report().counters.get("replications"):
            self.say("making replicas")
            query.burst(rows, rows, lambda _: None)
            if time.time() - start > MOVE_SECONDS_MAX:
                raise AnabranchError("The replicas were not complete in time.")

    def move(
        self, run: Run, service: StateService, query: LoadedQuery, load: OpenLoop
    ) -> TimeWindow:
        """Reconfigure as the run's case says; when that was, in seconds since the load began."""
        case, start = run.case, time.time()
        assert case.strategy is not None
        move = service.rescale(self.target, strategy=case.strategy, wait=False, **case.options)
        follow(move, query, self.say, f"{self.workers} -> {self.target}")
        run.report = move.report().as_json()
        return TimeWindow(start - load.started, time.time() - load.started)

    def moves_idle(self, prepared: Prepared, strategy: str, count: int) -> list[tuple[int, float]]:
        """Bytes and seconds of unpaced moves while no rows come.

        The key groups of one worker go to another and back: no process starts or ends meanwhile.
        """
        with self.started("move", prepared) as (service, query):
            warm_up(query, CAPACITY_ROWS / WARM_UP_BATCHES, self.say)
            query.drain()
            wait_until_in_memory(service, self.say)
            return self._back_and_forth(service, strategy, count)

    def _back_and_forth(
        self, service: StateService, strategy: str, count: int
    ) -> list[tuple[int, float]]:
        forecast = service.rescale(self.workers - 1, dry_run=True)
        source, target = forecast.moves[0].source, forecast.moves[0].target
        groups = [int(m.group) for m in forecast.moves if m.target == target]
        found = []
        for number in range(count):
            self.say(f"{len(groups)} key groups, move {number + 1} of {count}")
            move = service.move(groups, target, strategy=strategy)
            move.wait(MOVE_SECONDS_MAX)
            report = move.report()
            found.append((report.bytes, report.seconds))
            source, target = target, source
        return found

    def _service(self, folder: Path) -> StateService:
        location = str(folder / "state")
        return StateService(
            self.spark, location, workers=self.workers, fsync=self.fsync, **self.settings
        )

    def _maker(
        self, service: StateService, keys: int, payload_bytes: int
    ) -> Callable[[Path], DataFrame]:
        def make(schedule: Path) -> DataFrame:
            df = load_frame(self.spark, schedule, keys, payload_bytes)
            return counts(service, df, payload_bytes)

        return make


def follow(move: MoveHandle, query: LoadedQuery, say: Say, what: str) -> None:
    """Wait for a move; raise if the query fails, or if it takes too long."""
    start = time.time()
    while not move.wait(LOOK_SECONDS):
        seconds = time.time() - start
        say(f"{what}, {move.progress:.0%}, {seconds:.0f} s")
        query.watch(0.0)
        if seconds > MOVE_SECONDS_MAX:
            raise AnabranchError(f"The move has not ended after {seconds:.0f} seconds.")


def pids(service: StateService) -> list[int]:
    """The worker processes of now."""
    return [w["pid"] for w in service.status()["workers"].values() if w["pid"]]


def wait_until_in_memory(service: StateService, say: Say) -> None:
    """After a restart the state comes in the background."""
    limit = time.time() + LOAD_SECONDS_MAX
    while (share := service.status()["operators"]["counts"]["in_memory"]) < 1:
        say(f"the state is coming into memory, {share:.0%}")
        time.sleep(0.1)
        if time.time() > limit:
            raise AnabranchError("The state was not in memory after half an hour.")


def written_bytes(service: StateService) -> int:
    """What the workers have written so far; 0 where the system does not tell."""
    total = 0
    for worker in service.status()["workers"].values():
        with suppress(OSError, ValueError):
            lines = Path(f"/proc/{worker['pid']}/io").read_text().splitlines()
            total += int(dict(line.split(": ") for line in lines)["wchar"])
    return total


def brief(error: BaseException) -> str:
    """An error in a line: its first one, and the cause if a traceback is in it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    causes = [line for line in lines[1:] if re.match(r"[\w.]*(Error|Exception): ", line)]
    return " ... ".join(line[:300] for line in dict.fromkeys([lines[0], *causes[-1:]]))
