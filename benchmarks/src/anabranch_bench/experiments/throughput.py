"""`anabranch bench throughput`: speed, memory and restart beside Spark's own operators."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.loadtest.loaded_query import Say
from anabranch.service import StateService
from anabranch_bench.probes.memory import workers_bytes
from anabranch_bench.results.verdicts import SideBySide
from anabranch_bench.runs.batch_runs import BatchDurations, run_batches, seconds_to_first_commit
from anabranch_bench.runs.key_counts import (
    counts,
    native_counts,
    native_row_counts,
    new_keys,
    row_counts,
    uniform_keys,
)

PARTS = ("aggregate", "rows", "small", "memory", "restart")
WARM_UP = 2


@dataclass(frozen=True, slots=True)
class ThroughputSettings:
    """Sizes of a run."""

    rows: int = 500_000
    keys: int = 500_000
    batches: int = 5
    native_rows: int = 500_000
    """Rows a batch for Spark's Python operator, which takes minutes for large ones."""
    small_rows: int = 1_000
    small_batches: int = 30
    large_keys: int = 5_000_000
    workers: int = 2
    restarts: int = 3


@dataclass
class ThroughputBench:
    """Runs the parts one after the other in one Spark session."""

    spark: SparkSession
    folder: Path
    settings: ThroughputSettings
    say: Say

    def run(self, parts: Sequence[str]) -> Iterator[SideBySide]:
        """The comparisons, as they come."""
        for part in parts:
            yield getattr(self, f"measure_{part}")()

    def measure_aggregate(self) -> SideBySide:
        """Columnar aggregate against Spark's JVM operator."""
        s = self.settings
        ours = self._ours("aggregate", uniform_keys(self.spark, s.rows, s.keys), _totals)
        native = native_counts(uniform_keys(self.spark, s.rows, s.keys), 0)
        spark = self._native("aggregate", native)
        return _rates("aggregate", ours, spark, 3.0, "at least 3 times Spark's JVM count")

    def measure_rows(self) -> SideBySide:
        """Row API against Spark's Python operator: the same class on both."""
        s = self.settings
        ours = self._ours("rows", uniform_keys(self.spark, s.rows, s.keys), row_counts)
        df = uniform_keys(self.spark, s.native_rows, s.keys)
        spark = self._native("rows", native_row_counts(df))
        note = f"Spark's side with {s.native_rows} rows a batch" * (s.native_rows != s.rows)
        return _rates(
            "rows", ours, spark, 25.0, "at least 25 times Spark's Python transformWithState", note
        )

    def measure_small(self) -> SideBySide:
        """Duration of small batches against Spark's JVM operator."""
        s = self.settings
        count = s.small_batches
        ours = self._ours("small", uniform_keys(self.spark, s.small_rows, s.keys), _totals, count)
        native = native_counts(uniform_keys(self.spark, s.small_rows, s.keys), 0)
        spark = self._native("small", native, count)
        ratio = ours.median_seconds / spark.median_seconds
        return SideBySide(
            "small",
            "seconds a batch",
            ours.seconds,
            spark.seconds,
            f"{s.small_rows} rows: no longer than Spark's JVM count",
            ratio <= 1.0,
            ratio,
        )

    def measure_memory(self) -> SideBySide:
        """Resident memory of the workers per key of columnar state."""
        with self._filled("memory") as (service, _):
            full = workers_bytes(service)
            rows = service.status()["operators"]["counts"]["rows"]
        empty = self._empty_workers_bytes()
        per_key = (full - empty) / rows
        return SideBySide(
            "memory",
            "bytes a key",
            (per_key,),
            (),
            f"at most 120 bytes a key at {rows} keys",
            per_key <= 120,
            note="growth of the workers' resident memory",
        )

    def measure_restart(self) -> SideBySide:
        """Time to the first committed batch with a large state."""
        s = self.settings
        with self._filled("restart") as (_, checkpoint):
            pass
        state = self.folder / "restart-state"
        ours = [self._restart_ours(state, checkpoint) for _ in range(s.restarts)]
        native_checkpoint = self.folder / "restart-native"

        def native() -> DataFrame:
            return native_counts(new_keys(self.spark, s.rows, s.large_keys), 0)

        self._fill(native(), native_checkpoint, "Spark")
        spark = [seconds_to_first_commit(native, native_checkpoint) for _ in range(s.restarts)]
        ratio = statistics.median(ours) / statistics.median(spark)
        return SideBySide(
            "restart",
            "seconds to the first commit",
            tuple(ours),
            tuple(spark),
            f"{s.large_keys} keys: no longer than Spark's own restart",
            ratio <= 1.0,
            ratio,
        )

    # -- helpers --

    def _ours(
        self,
        part: str,
        df: DataFrame,
        operator: Callable[[StateService, DataFrame], DataFrame],
        measured: int | None = None,
    ) -> BatchDurations:
        state = self.folder / f"{part}-state"
        with StateService(self.spark, str(state), workers=self.settings.workers) as service:
            return run_batches(
                operator(service, df),
                self.folder / f"{part}-ours",
                warm_up=WARM_UP,
                measured=measured or self.settings.batches,
                progress=self._progress(part, "Anabranch"),
            )

    def _native(self, part: str, df: DataFrame, measured: int | None = None) -> BatchDurations:
        return run_batches(
            df,
            self.folder / f"{part}-native",
            warm_up=WARM_UP,
            measured=measured or self.settings.batches,
            progress=self._progress(part, "Spark"),
        )

    def _progress(self, part: str, side: str) -> Callable[[int, int], None]:
        return lambda done, total: self.say(f"{part}: {side}, batch {done} of {total}")

    @contextmanager
    def _filled(self, part: str) -> Iterator[tuple[StateService, Path]]:
        s = self.settings
        checkpoint = self.folder / f"{part}-ours"
        state = str(self.folder / f"{part}-state")
        with StateService(self.spark, state, workers=s.workers) as service:
            df = _totals(service, new_keys(self.spark, s.rows, s.large_keys))
            self._fill(df, checkpoint, "Anabranch")
            yield service, checkpoint

    def _fill(self, df: DataFrame, checkpoint: Path, side: str) -> None:
        batches = -(-self.settings.large_keys // self.settings.rows)
        progress = self._progress("filling", side)
        run_batches(df, checkpoint, warm_up=0, measured=batches, progress=progress)

    def _restart_ours(self, state: Path, checkpoint: Path) -> float:
        s = self.settings
        services: list[StateService] = []

        def start() -> DataFrame:
            services.append(StateService(self.spark, str(state), workers=s.workers))
            return _totals(services[0], new_keys(self.spark, s.rows, s.large_keys))

        try:
            return seconds_to_first_commit(start, checkpoint)
        finally:
            for service in services:
                service.stop()

    def _empty_workers_bytes(self) -> int:
        """The same workers after a batch of few keys: what libraries and buffers take."""
        s = self.settings
        state = str(self.folder / "empty-state")
        with StateService(self.spark, state, workers=s.workers) as service:
            df = _totals(service, new_keys(self.spark, 1_000, 1_000))
            run_batches(df, self.folder / "empty-ours", warm_up=0, measured=2)
            return workers_bytes(service)


def _totals(service: StateService, df: DataFrame) -> DataFrame:
    return counts(service, df, 0)


def _rates(
    part: str,
    ours: BatchDurations,
    spark: BatchDurations,
    factor: float,
    target: str,
    note: str = "",
) -> SideBySide:
    ratio = ours.median_rate / spark.median_rate
    rates = ours.rows_per_second, spark.rows_per_second
    return SideBySide(part, "rows a second", *rates, target, ratio >= factor, ratio, note)
