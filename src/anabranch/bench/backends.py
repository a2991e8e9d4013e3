"""`anabranch bench backends`: the backend "rocksdb" beside Spark's RocksDB, and beyond memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import agg
from anabranch.bench.keycount import COUNTER_OUTPUT, Counter, new_keys, uniform_keys
from anabranch.bench.measure import Batches, run_batches
from anabranch.bench.throughput import Comparison, Say, resident_bytes
from anabranch.service import StateService

PARTS = ("aggregate", "rows", "beyond")
WARM_UP = 4
"""After these most keys are there, more than stay in memory."""
PAYLOAD_BYTES = 128
TIMES_MEMORY = 3
STABLE = 0.75
"""Rate of the last batches, as a share of that of the first ones."""

Operator = Callable[[StateService, DataFrame], DataFrame]


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of a run."""

    rows: int = 500_000
    keys: int = 1_000_000
    batches: int = 5
    native_rows: int = 50_000
    """Rows a batch for Spark's Python operator, which takes minutes for large ones."""
    state_memory_bytes: int = 64 << 20
    """Of each worker."""
    beyond_batches: int = 12
    workers: int = 2

    @property
    def beyond_keys(self) -> int:
        """So many that their state, 8 bytes of key and 8 of count included, is large enough."""
        state = TIMES_MEMORY * self.workers * self.state_memory_bytes
        return -(-state // (PAYLOAD_BYTES + 16))


@dataclass
class BackendsBench:
    """Runs the parts one after the other in one Spark session."""

    spark: SparkSession
    folder: Path
    settings: Settings
    say: Say

    def run(self, parts: Sequence[str]) -> Iterator[Comparison]:
        """The comparisons, as they come."""
        for part in parts:
            yield getattr(self, f"measure_{part}")()

    def measure_aggregate(self) -> Comparison:
        """Columnar aggregate against Spark's JVM operator, both over RocksDB."""
        s = self.settings
        native = uniform_keys(self.spark, s.rows, s.keys).groupBy("k").count()
        target = "at least Spark's JVM count over RocksDB"
        return self._compared("aggregate", _totals, s.rows, native, 1.0, target)

    def measure_rows(self) -> Comparison:
        """Row API against Spark's Python operator, both over RocksDB."""
        s = self.settings
        df = uniform_keys(self.spark, s.native_rows, s.keys)
        native = df.groupBy("k").transformWithState(Counter(), COUNTER_OUTPUT, "Update", "None")
        target = "at least 10 times Spark's Python transformWithState over RocksDB"
        return self._compared("rows", _counter, s.native_rows, native, 10.0, target)

    def _compared(
        self,
        part: str,
        operator: Operator,
        native_rows: int,
        native: DataFrame,
        factor: float,
        target: str,
    ) -> Comparison:
        s = self.settings
        rates = {}
        for backend in ("memory", "rocksdb"):
            with self._service(f"{part}-{backend}", backend) as service:
                df = operator(service, uniform_keys(self.spark, s.rows, s.keys))
                rates[backend] = self._batches(f"{part}-{backend}", df, s.batches)
        spark = self._batches(f"{part}-spark", native, s.batches)
        ratio = rates["rocksdb"].median_rate / spark.median_rate
        note = f'backend "memory": {rates["memory"].median_rate:,.0f} rows a second'
        if native_rows != s.rows:
            note += f"; Spark's side with {native_rows:,} rows a batch"
        return Comparison(
            part,
            "rows a second",
            rates["rocksdb"].rows_per_second,
            spark.rows_per_second,
            target,
            ratio >= factor,
            ratio,
            note,
        )

    def measure_beyond(self) -> Comparison:
        """State of several times the memory that workers are given for it: is the rate stable?"""
        s = self.settings
        state_bytes = resident = 0
        with self._service("beyond", "rocksdb") as service:
            before = self._resident(service)
            fills = -(-s.beyond_keys // s.rows)
            self.say(f"beyond: filling {s.beyond_keys:,} keys")
            filling = _with_payload(new_keys(self.spark, s.rows, s.beyond_keys))
            run_batches(
                _payloads(service, filling),
                self.folder / "beyond",
                warm_up=0,
                measured=fills,
                progress=self._progress("beyond, filling"),
            )
            state_bytes = service.status()["operators"]["payloads"]["bytes"]
            running = _with_payload(uniform_keys(self.spark, s.rows, s.beyond_keys))
            checkpoint = self.folder / "beyond"  # the same query goes on, over all keys evenly
            done = run_batches(
                _payloads(service, running),
                checkpoint,
                warm_up=WARM_UP,
                measured=s.beyond_batches,
                progress=self._progress("beyond"),
            )
            resident = self._resident(service) - before
        third = max(1, len(done.seconds) // 3)
        first = statistics.median(done.rows_per_second[:third])
        last = statistics.median(done.rows_per_second[-third:])
        given = s.workers * s.state_memory_bytes
        mega = 1 << 20
        return Comparison(
            "beyond",
            "rows a second",
            done.rows_per_second,
            (),
            f"state of at least {TIMES_MEMORY} times the memory limit, last batches at "
            f"{STABLE:.0%} of the first ones' rate or more",
            last >= STABLE * first and state_bytes >= TIMES_MEMORY * given,
            last / first,
            f"{state_bytes / mega:,.0f} MiB of state, limit {given / mega:,.0f} MiB, the workers' "
            f"resident memory grew by {resident / mega:,.0f} MiB",
        )

    # -- helpers --

    def _service(self, name: str, backend: str) -> StateService:
        return StateService(
            self.spark,
            str(self.folder / f"{name}-state"),
            workers=self.settings.workers,
            backend=backend,
            state_memory_bytes=self.settings.state_memory_bytes,
        )

    def _batches(self, name: str, df: DataFrame, measured: int) -> Batches:
        return run_batches(
            df,
            self.folder / name,
            warm_up=WARM_UP,
            measured=measured,
            progress=self._progress(name),
        )

    def _progress(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self.say(f"{what}: batch {done} of {total}")

    def _resident(self, service: StateService) -> int:
        workers = service.status()["workers"].values()
        return sum(resident_bytes(worker["pid"]) for worker in workers)


def _totals(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").aggregate(n=agg.count(), name="totals")


def _payloads(service: StateService, df: DataFrame) -> DataFrame:
    grouped = service.group_by(df, "k")
    return grouped.aggregate(n=agg.count(), payload=agg.last("payload"), name="payloads")


def _with_payload(df: DataFrame) -> DataFrame:
    return df.withColumn("payload", F.sha2(F.col("k").cast("string"), 4 * PAYLOAD_BYTES))


def _counter(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").transformWithState(
        Counter(), COUNTER_OUTPUT, "Update", "None", name="counts"
    )
