"""`anabranch bench backends`: the backend "rocksdb" beside Spark's RocksDB, and beyond memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import agg
from anabranch.bench.keycount import COUNTER_OUTPUT, Counter, Keeper, new_keys, uniform_keys
from anabranch.bench.measure import Batches, run_batches
from anabranch.bench.throughput import Comparison, Say, workers_bytes
from anabranch.service import StateService

PARTS = ("aggregate", "rows", "beyond", "beyond-rows")
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
    beyond_rows: int = 100_000
    """Rows a batch for the row API over the large state."""
    workers: int = 2

    @property
    def beyond_keys(self) -> int:
        """So many that their state, 8 bytes of key and 8 of count included, is large enough."""
        state = TIMES_MEMORY * self.workers * self.state_memory_bytes
        return -(-state // (PAYLOAD_BYTES + 16))


def compared(
    part: str,
    ours: Batches,
    spark: Batches,
    factor: float,
    target: str,
    notes: Mapping[str, Batches],
) -> Comparison:
    """Both sides with batches of the same size; `notes` has what else was measured of ours."""
    ratio = ours.median_rate / spark.median_rate
    return Comparison(
        part,
        "rows a second",
        ours.rows_per_second,
        spark.rows_per_second,
        target,
        ratio >= factor,
        ratio,
        "; ".join(f"{what}: {done.median_rate:,.0f} rows a second" for what, done in notes.items()),
    )


def beyond(part: str, done: Batches, state_bytes: int, given: int, resident: int) -> Comparison:
    """Whether the rate is stable, and the state as large as it should be."""
    third = max(1, len(done.seconds) // 3)
    first = statistics.median(done.rows_per_second[:third])
    last = statistics.median(done.rows_per_second[-third:])
    mega = 1 << 20
    return Comparison(
        part,
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
            yield getattr(self, f"measure_{part.replace('-', '_')}")()

    def measure_aggregate(self) -> Comparison:
        """Columnar aggregate against Spark's JVM operator, both over RocksDB."""
        s = self.settings
        native = uniform_keys(self.spark, s.rows, s.keys).groupBy("k").count()
        return compared(
            "aggregate",
            self._ours("aggregate", "rocksdb", _totals, s.rows),
            self._batches("aggregate-spark", native),
            1.0,
            "at least Spark's JVM count over RocksDB",
            {'backend "memory"': self._ours("aggregate", "memory", _totals, s.rows)},
        )

    def measure_rows(self) -> Comparison:
        """Row API against Spark's Python operator, both over RocksDB, with the same batches."""
        s = self.settings
        df = uniform_keys(self.spark, s.native_rows, s.keys)
        native = df.groupBy("k").transformWithState(Counter(), COUNTER_OUTPUT, "Update", "None")
        notes = {
            f'backend "memory", {s.rows:,} rows a batch': self._ours(
                "rows", "memory", _counter, s.rows
            )
        }
        if s.native_rows != s.rows:
            large = self._ours("rows", "rocksdb", _counter, s.rows)
            notes[f"{s.rows:,} rows a batch"] = large
        return compared(
            "rows",
            self._ours("rows", "rocksdb", _counter, s.native_rows),
            self._batches("rows-spark", native),
            10.0,
            "at least 10 times Spark's Python transformWithState over RocksDB, both with "
            f"{s.native_rows:,} rows a batch",
            notes,
        )

    def measure_beyond(self) -> Comparison:
        """Aggregates over state of several times the memory that workers are given for it."""
        return self._beyond("beyond", _payloads, self.settings.rows)

    def measure_beyond_rows(self) -> Comparison:
        """The same in the row API."""
        return self._beyond("beyond-rows", _keeper, self.settings.beyond_rows)

    def _beyond(self, part: str, operator: Operator, rows: int) -> Comparison:
        s = self.settings
        checkpoint = self.folder / part
        with self._service(part, "rocksdb") as service:
            before = workers_bytes(service)
            self.say(f"{part}: filling {s.beyond_keys:,} keys")
            run_batches(
                operator(service, _with_payload(new_keys(self.spark, rows, s.beyond_keys))),
                checkpoint,
                warm_up=0,
                measured=-(-s.beyond_keys // rows),
                progress=self._progress(f"{part}, filling"),
            )
            state_bytes = service.status()["operators"]["payloads"]["bytes"]
            done = run_batches(  # the same query goes on, over all keys evenly
                operator(service, _with_payload(uniform_keys(self.spark, rows, s.beyond_keys))),
                checkpoint,
                warm_up=WARM_UP,
                measured=s.beyond_batches,
                progress=self._progress(part),
            )
            resident = workers_bytes(service) - before
        return beyond(part, done, state_bytes, s.workers * s.state_memory_bytes, resident)

    # -- helpers --

    def _ours(self, part: str, backend: str, operator: Operator, rows: int) -> Batches:
        name = f"{part}-{backend}-{rows}"
        with self._service(name, backend) as service:
            df = uniform_keys(self.spark, rows, self.settings.keys)
            return self._batches(name, operator(service, df))

    def _service(self, name: str, backend: str) -> StateService:
        # Under a limit "memory" would evict to the location: `bench hybrid` measures that.
        limit = self.settings.state_memory_bytes if backend == "rocksdb" else None
        return StateService(
            self.spark,
            str(self.folder / f"{name}-state"),
            workers=self.settings.workers,
            backend=backend,
            state_memory_bytes=limit,
        )

    def _batches(self, name: str, df: DataFrame) -> Batches:
        return run_batches(
            df,
            self.folder / name,
            warm_up=WARM_UP,
            measured=self.settings.batches,
            progress=self._progress(name),
        )

    def _progress(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self.say(f"{what}: batch {done} of {total}")


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


def _keeper(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").transformWithState(
        Keeper(), COUNTER_OUTPUT, "Update", "None", name="payloads"
    )
