"""`anabranch bench backends`: the backend "rocksdb" beside Spark's RocksDB, and beyond memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import agg
from anabranch.loadtest.loaded_query import Say
from anabranch.service import StateService
from anabranch_bench.probes.workers import workers_bytes
from anabranch_bench.results.verdicts import SideBySide
from anabranch_bench.runs.batch_runs import BatchDurations, BatchRuns, Operator
from anabranch_bench.runs.key_counts import (
    COUNTER_OUTPUT,
    Keeper,
    counts,
    native_counts,
    native_row_counts,
    new_keys,
    row_counts,
    uniform_keys,
)

PARTS = ("aggregate", "rows", "beyond", "beyond-rows")
WARM_UP = 4
"""After these most keys are there, more than stay in memory."""
PAYLOAD_BYTES = 128
TIMES_MEMORY = 3
STABLE = 0.75
"""Rate of the last batches, as a share of that of the first ones."""
IN_MEMORY_MAX = 0.5
"""What the workers' memory may grow by in the second half of the filling, as a share of what the
state does: by then batches, caches and buffers have what they need. All in memory would be 1."""

Sample = tuple[int, int]
"""Bytes of state, bytes of the workers' resident memory."""


@dataclass(frozen=True, slots=True)
class BackendSettings:
    """Sizes of a run."""

    rows: int = 500_000
    keys: int = 1_000_000
    batches: int = 5
    native_rows: int = 50_000
    """Rows a batch for Spark's Python operator, which takes minutes for large ones."""
    state_memory_bytes: int = 64 << 20
    """Of each worker."""
    beyond_batches: int = 12
    beyond_rows: int = 50_000
    """Rows a batch over the large state: few, or their memory would hide that of the state."""
    workers: int = 2

    @property
    def beyond_keys(self) -> int:
        """So many that their state, 8 bytes of key and 8 of count included, is large enough."""
        state = TIMES_MEMORY * self.workers * self.state_memory_bytes
        return -(-state // (PAYLOAD_BYTES + 16))


def compared(
    part: str,
    ours: BatchDurations,
    spark: BatchDurations,
    factor: float,
    target: str,
    notes: Mapping[str, BatchDurations],
) -> SideBySide:
    """Both sides with batches of the same size; `notes` has what else was measured of ours."""
    told = [f"{what}: {done.median_rate:,.0f} rows a second" for what, done in notes.items()]
    rates = ours.rows_per_second, spark.rows_per_second
    return SideBySide.of_rates(part, *rates, factor, target, "; ".join(told))


def grown(filling: Sequence[Sample]) -> Sample:
    """What state and memory grew by in the second half of the filling."""
    half = [sample for sample in filling if 2 * sample[0] >= filling[-1][0]]
    third = max(1, len(half) // 3)
    first, last = zip(*half[:third], strict=True), zip(*half[-third:], strict=True)
    state, resident = (
        statistics.median(after) - statistics.median(before)
        for before, after in zip(first, last, strict=True)
    )
    return round(state), round(resident)


def beyond(part: str, done: BatchDurations, given: int, filling: Sequence[Sample]) -> SideBySide:
    """Whether the rate is stable, the state as large as it should be, and not in memory."""
    third = max(1, len(done.seconds) // 3)
    first = statistics.median(done.rows_per_second[:third])
    last = statistics.median(done.rows_per_second[-third:])
    mega = 1 << 20
    state_bytes, (more_state, more_memory) = filling[-1][0], grown(filling)
    is_bounded = more_state > 0 and more_memory <= IN_MEMORY_MAX * more_state
    return SideBySide(
        part,
        "rows a second",
        done.rows_per_second,
        (),
        f"state of at least {TIMES_MEMORY} times the memory limit, last batches at "
        f"{STABLE:.0%} of the first ones' rate or more; in the second half of the filling memory "
        f"grows by at most {IN_MEMORY_MAX:.0%} of what the state does",
        last >= STABLE * first and state_bytes >= TIMES_MEMORY * given and is_bounded,
        last / first,
        f"{state_bytes / mega:,.0f} MiB of state, limit {given / mega:,.0f} MiB; in the second "
        f"half of the filling the state grew by {more_state / mega:,.0f} MiB and the workers' "
        f"resident memory by {more_memory / mega:,.0f} MiB",
    )


@dataclass
class BackendsBench:
    """Runs the parts one after the other in one Spark session."""

    spark: SparkSession
    folder: Path
    settings: BackendSettings
    say: Say

    def run(self, parts: Sequence[str]) -> Iterator[SideBySide]:
        """The comparisons, as they come."""
        for part in parts:
            yield getattr(self, f"measure_{part.replace('-', '_')}")()

    def measure_aggregate(self) -> SideBySide:
        """Columnar aggregate against Spark's JVM operator, both over RocksDB."""
        s = self.settings
        native = native_counts(uniform_keys(self.spark, s.rows, s.keys))
        return compared(
            "aggregate",
            self._ours("aggregate", "rocksdb", counts, s.rows),
            self._runs.measure("aggregate-spark", native, s.batches),
            1.0,
            "at least Spark's JVM count over RocksDB",
            {'backend "memory"': self._ours("aggregate", "memory", counts, s.rows)},
        )

    def measure_rows(self) -> SideBySide:
        """Row API against Spark's Python operator, both over RocksDB, with the same batches."""
        s = self.settings
        df = uniform_keys(self.spark, s.native_rows, s.keys)
        notes = {
            f'backend "memory", {s.rows:,} rows a batch': self._ours(
                "rows", "memory", row_counts, s.rows
            )
        }
        if s.native_rows != s.rows:
            large = self._ours("rows", "rocksdb", row_counts, s.rows)
            notes[f"{s.rows:,} rows a batch"] = large
        return compared(
            "rows",
            self._ours("rows", "rocksdb", row_counts, s.native_rows),
            self._runs.measure("rows-spark", native_row_counts(df), s.batches),
            10.0,
            "at least 10 times Spark's Python transformWithState over RocksDB, both with "
            f"{s.native_rows:,} rows a batch",
            notes,
        )

    def measure_beyond(self) -> SideBySide:
        """Aggregates over state of several times the memory that workers are given for it."""
        return self._beyond("beyond", _payloads)

    def measure_beyond_rows(self) -> SideBySide:
        """The same in the row API."""
        return self._beyond("beyond-rows", _keeper)

    def _beyond(self, part: str, operator: Operator) -> SideBySide:
        s, keys = self.settings, self.settings.beyond_keys
        with self._runs.service(part, **self._options("rocksdb")) as service:
            filling: list[Sample] = []

            def sample(number: int, total: int) -> None:
                state = service.status()["operators"]["payloads"]["bytes"]
                filling.append((state, workers_bytes(service)))
                self.say(f"{part}, filling: batch {number} of {total}")

            self.say(f"{part}: filling {keys:,} keys")
            rows = _with_payload(new_keys(self.spark, s.beyond_rows, keys))
            self._runs.fill(part, operator(service, rows), -(-keys // s.beyond_rows), sample)
            # The same query goes on, over all keys evenly.
            rows = _with_payload(uniform_keys(self.spark, s.beyond_rows, keys))
            done = self._runs.measure(part, operator(service, rows), s.beyond_batches)
        return beyond(part, done, s.workers * s.state_memory_bytes, filling)

    # -- helpers --

    @cached_property
    def _runs(self) -> BatchRuns:
        return BatchRuns(self.spark, self.folder, self.say, self.settings.workers, WARM_UP)

    def _ours(self, part: str, backend: str, operator: Operator, rows: int) -> BatchDurations:
        df = uniform_keys(self.spark, rows, self.settings.keys)
        name, options = f"{part}-{backend}-{rows}", self._options(backend)
        return self._runs.on_service(name, df, operator, self.settings.batches, **options)

    def _options(self, backend: str) -> dict[str, Any]:
        # Under a limit "memory" would evict to the location: `bench hybrid` measures that.
        limit = self.settings.state_memory_bytes if backend == "rocksdb" else None
        return {"backend": backend, "state_memory_bytes": limit}


def _payloads(service: StateService, df: DataFrame) -> DataFrame:
    grouped = service.group_by(df, "k")
    return grouped.aggregate(n=agg.count(), payload=agg.last("payload"), name="payloads")


def _with_payload(df: DataFrame) -> DataFrame:
    return df.withColumn("payload", F.sha2(F.col("k").cast("string"), 4 * PAYLOAD_BYTES))


def _keeper(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").transformWithState(
        Keeper(), COUNTER_OUTPUT, "Update", "None", name="payloads"
    )
