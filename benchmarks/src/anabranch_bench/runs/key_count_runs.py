"""Key-counts whose state is loaded once, and copied for each run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.loadtest.latency import Batch, median
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
from anabranch.loadtest.schedule import load_frame
from anabranch.service import StateService
from anabranch_bench.probes.workers import wait_until_in_memory
from anabranch_bench.results.cases import NATIVE
from anabranch_bench.results.loads import KEY_BYTES
from anabranch_bench.results.run_result import RunResult, brief
from anabranch_bench.runs.key_counts import counts, native_counts
from anabranch_bench.runs.loaded_run import LoadedRun, Rescale, RunSettings
from anabranch_bench.runs.native import NativeSide
from anabranch_bench.runs.sides import ServiceSide, Side
from anabranch_bench.runs.under_load import MOVE_SECONDS_MAX, told

FILL_BYTES_A_BATCH = 96 << 20
FILL_ROWS_A_BATCH_MAX = 500_000
CAPACITY_ROWS = 100_000
CAPACITY_BATCHES = 4
SETTLE_SECONDS = 20.0


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
class KeyCountRuns:
    """Runs from copies of the same prepared state, on the state service or (native) on Spark."""

    spark: SparkSession
    folder: Path
    timing: Timing
    workers: int
    target: int
    say: Say
    is_native: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the service, beside those above."""

    def __post_init__(self) -> None:
        self._folders = Folders(self.folder)

    def prepare(self, keys: int, payload_bytes: int) -> tuple[Prepared, float]:
        """Load a state once; the capacity that it was found to have, in rows a second."""
        folder = self._folders.fresh("native-prepared" if self.is_native else "prepared")
        prepared = Prepared(folder, keys, payload_bytes, 0)
        with self._started(folder, prepared) as (_, query):
            rows = min(FILL_ROWS_A_BATCH_MAX, FILL_BYTES_A_BATCH // (payload_bytes + KEY_BYTES))
            query.burst(keys, rows, lambda done: self.say(f"loading the state, {done:.0%}"))
            found = self._settle(query, self._capacity(query))
            query.drain()
        return Prepared(folder, keys, payload_bytes, query.next_row), found

    def run(self, result: RunResult, prepared: Prepared, seconds_min: float = 0.0) -> None:
        """Fill in a run; a strategy that fails is a result too. Lasts at least `seconds_min`."""
        settings = self._settings(result, seconds_min)
        result.settle = self.timing.settle
        try:
            with self.started("run", prepared) as (side, query):
                LoadedRun(side, query, settings, result, lambda m: self.say(told(m))).run()
        except Exception as error:  # the others are still to be run
            result.error = brief(error)

    def _settings(self, result: RunResult, seconds_min: float) -> RunSettings:
        """Nothing happens to a control run, but it is looked at in the same way."""
        timing, case = self.timing, result.case
        at = timing.settle + timing.steady
        moves = case.strategy is not None or case.label == NATIVE
        return RunSettings(
            rate=result.load.rate,
            duration=max(at + timing.steady, seconds_min),
            workers=self.workers,
            rescales=(Rescale(self.target, at),) if moves else (),
            strategy=case.strategy or case.label,
            options=dict(case.options),
            after=timing.steady,
            standby=case.strategy == "rhino",
            warm_up_batches=WARM_UP_BATCHES,
            probe_seconds=0.0 if self.is_native else at,
            look_seconds=LOOK_SECONDS,
            move_seconds_max=MOVE_SECONDS_MAX,
        )

    def restart(self, prepared: Prepared) -> float:
        """Seconds from the start of a service and its query to the first batch on all keys."""
        with self._folders.copy("restart", prepared) as folder:
            started = time.time()
            with (
                self._open(folder, prepared) as side,
                LoadedQuery(side.make, folder, prepared.next_row) as query,
            ):
                batches = query.burst(CAPACITY_ROWS, CAPACITY_ROWS, lambda _: None)
                return batches[0].committed - started

    @contextmanager
    def started(self, name: str, prepared: Prepared) -> Iterator[tuple[Side, LoadedQuery]]:
        """A side and its query on a copy of a prepared state."""
        self.say("copying the prepared state")
        with (
            self._folders.copy(name, prepared) as folder,
            self._started(folder, prepared) as both,
        ):
            yield both

    def moves_idle(self, prepared: Prepared, strategy: str, count: int) -> list[tuple[int, float]]:
        """Bytes and seconds of unpaced moves while no rows come.

        The key groups of one worker go to another and back: no process starts or ends meanwhile.
        """
        with self.started("move", prepared) as (side, query):
            assert isinstance(side, ServiceSide)
            warm_up(query, CAPACITY_ROWS / WARM_UP_BATCHES, self.say)
            query.drain()
            wait_until_in_memory(side.service, self.say)
            return self._back_and_forth(side.service, strategy, count)

    def _back_and_forth(
        self, service: StateService, strategy: str, count: int
    ) -> list[tuple[int, float]]:
        planned = service.rescale(self.workers - 1, dry_run=True).moves
        ends = planned[0].target, planned[0].source
        groups = [int(move.group) for move in planned if move.target == ends[0]]
        found = []
        for number in range(count):
            self.say(f"{len(groups)} key groups, move {number + 1} of {count}")
            move = service.move(groups, ends[number % 2], strategy=strategy)
            move.wait(MOVE_SECONDS_MAX)
            found.append((move.report().bytes, move.report().seconds))
        return found

    # -- sides --

    @contextmanager
    def _started(self, folder: Path, prepared: Prepared) -> Iterator[tuple[Side, LoadedQuery]]:
        trigger = self.timing.trigger
        with (
            self._open(folder, prepared) as side,
            LoadedQuery(side.make, folder, prepared.next_row, trigger_seconds=trigger) as query,
        ):
            yield side, query

    def _open(self, folder: Path, prepared: Prepared) -> AbstractContextManager[Side]:
        keys, size = prepared.keys, prepared.payload_bytes

        def build(service: StateService, schedule: Path) -> DataFrame:
            return counts(service, load_frame(self.spark, schedule, keys, size), size)

        def native(schedule: Path) -> DataFrame:
            return native_counts(load_frame(self.spark, schedule, keys, size), size)

        if self.is_native:
            settle = self.timing.settle
            return nullcontext(NativeSide(self.spark, folder, native, settle, self.workers))
        return ServiceSide.started(self.spark, folder, build, workers=self.workers, **self.options)

    # -- capacity --

    def _settle(self, query: LoadedQuery, found: float) -> float:
        """Run under load until the JVM is warm and what follows loading (snapshots) has been done.

        The capacity, rows a second: what was found before or, if that is less, what is found now.
        Half of a figure from a machine's best moment is more than half of what it can do.
        """
        watch_until(query, query.open(found / 2), SETTLE_SECONDS, self.say, "settling")
        query.drain()
        return min(found, self._capacity(query))

    def _capacity(self, query: LoadedQuery) -> float:
        self.say("measuring the capacity")
        rows = CAPACITY_ROWS
        return capacity(query.burst(CAPACITY_BATCHES * rows, rows, lambda _: None))


def capacity(batches: list[Batch]) -> float:
    """Rows a second of full batches back to back; the first one only warms up."""
    return median([b.rows / (b.committed - b.started) for b in batches[1:]])
