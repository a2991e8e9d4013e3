"""`anabranch bench throughput`: speed, memory and restart beside Spark's own operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.loadtest.loaded_query import Say
from anabranch.service import StateService
from anabranch_bench.probes.workers import workers_bytes
from anabranch_bench.results.verdicts import SideBySide
from anabranch_bench.runs.batch_runs import BatchDurations, BatchRuns, seconds_to_first_commit
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

    @cached_property
    def _runs(self) -> BatchRuns:
        return BatchRuns(self.spark, self.folder, self.say, self.settings.workers, WARM_UP)

    def measure_aggregate(self) -> SideBySide:
        """Columnar aggregate against Spark's JVM operator."""
        s = self.settings
        ours, spark = self._counts("aggregate", s.rows, s.batches)
        target = "at least 3 times Spark's JVM count"
        rates = ours.rows_per_second, spark.rows_per_second
        return SideBySide.of_rates("aggregate", *rates, 3.0, target)

    def measure_rows(self) -> SideBySide:
        """Row API against Spark's Python operator: the same class on both."""
        s, runs = self.settings, self._runs
        df = uniform_keys(self.spark, s.rows, s.keys)
        ours = runs.on_service("rows-ours", df, row_counts, s.batches)
        df = uniform_keys(self.spark, s.native_rows, s.keys)
        spark = runs.measure("rows-native", native_row_counts(df), s.batches)
        note = f"Spark's side with {s.native_rows} rows a batch" * (s.native_rows != s.rows)
        target = "at least 25 times Spark's Python transformWithState"
        rates = ours.rows_per_second, spark.rows_per_second
        return SideBySide.of_rates("rows", *rates, 25.0, target, note)

    def measure_small(self) -> SideBySide:
        """Duration of small batches against Spark's JVM operator."""
        rows = self.settings.small_rows
        ours, spark = self._counts("small", rows, self.settings.small_batches)
        target = f"{rows} rows: no longer than Spark's JVM count"
        seconds = ours.seconds, spark.seconds
        return SideBySide.of_seconds("small", "seconds a batch", *seconds, target)

    def measure_memory(self) -> SideBySide:
        """Resident memory of the workers per key of columnar state."""
        with self._runs.service("memory") as service:
            self._fill("memory-ours", counts(service, self._large()))
            full = workers_bytes(service)
            rows = service.status()["operators"]["counts"]["rows"]
        with self._runs.service("empty") as service:
            # The same workers after a batch of few keys: what libraries and buffers take.
            self._runs.fill("empty-ours", counts(service, new_keys(self.spark, 1_000, 1_000)), 2)
            empty = workers_bytes(service)
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
        with self._runs.service("restart") as service:
            checkpoint = self._fill("restart-ours", counts(service, self._large()))
        ours = tuple(self._restart(checkpoint) for _ in range(s.restarts))

        def native() -> DataFrame:
            return native_counts(self._large())

        checkpoint = self._fill("restart-native", native())
        spark = tuple(seconds_to_first_commit(native, checkpoint) for _ in range(s.restarts))
        unit = "seconds to the first commit"
        target = f"{s.large_keys} keys: no longer than Spark's own restart"
        return SideBySide.of_seconds("restart", unit, ours, spark, target)

    # -- helpers --

    def _counts(self, part: str, rows: int, measured: int) -> tuple[BatchDurations, BatchDurations]:
        """The same rows on both sides."""
        first, second = (uniform_keys(self.spark, rows, self.settings.keys) for _ in range(2))
        ours = self._runs.on_service(f"{part}-ours", first, counts, measured)
        return ours, self._runs.measure(f"{part}-native", native_counts(second), measured)

    def _large(self) -> DataFrame:
        return new_keys(self.spark, self.settings.rows, self.settings.large_keys)

    def _fill(self, name: str, df: DataFrame) -> Path:
        return self._runs.fill(name, df, -(-self.settings.large_keys // self.settings.rows))

    def _restart(self, checkpoint: Path) -> float:
        services: list[StateService] = []

        def start() -> DataFrame:
            services.append(self._runs.service("restart"))
            return counts(services[0], self._large())

        try:
            return seconds_to_first_commit(start, checkpoint)
        finally:
            for service in services:
                service.stop()
