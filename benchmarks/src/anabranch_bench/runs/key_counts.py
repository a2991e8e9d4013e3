"""Key-count, the smallest stateful query: on the state service and on Spark's own operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from anabranch import agg
from anabranch.service import StateService


class Counter(StatefulProcessor):
    """Counts rows of a key: the same class runs on Spark's operator and on ours."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One value state."""
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Add the rows of this batch."""
        state = self._count.get()
        count = (state[0] if state else 0) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(k=key[0], c=count)

    def close(self) -> None:
        """Nothing to clean up."""


class Keeper(StatefulProcessor):
    """Counts rows of a key and keeps the newest payload: state of some size for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """One value state."""
        self._kept = handle.getValueState("kept", "count long, payload string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Add the rows of this batch."""
        state = self._kept.get()
        count, payload = (state[0], state[1]) if state else (0, "")
        for row in rows:
            count, payload = count + 1, row.payload
        self._kept.update((count, payload))
        yield Row(k=key[0], c=count)

    def close(self) -> None:
        """Nothing to clean up."""


COUNTER_OUTPUT = "k long, c long"


def counts(service: StateService, df: DataFrame, payload_bytes: int = 0) -> DataFrame:
    """Rows of each key; with a payload, each key keeps its first one."""
    grouped = service.group_by(df, "k")
    if not payload_bytes:
        return grouped.aggregate(n=agg.count(), name="counts")
    payload = agg.first("payload", ignore_nulls=True)
    return grouped.aggregate(n=agg.count(), payload=payload, name="counts")


def native_counts(df: DataFrame, payload_bytes: int = 0) -> DataFrame:
    """The same on Spark's JVM operator."""
    aggregates = [F.count(F.lit(1)).alias("n")]
    if payload_bytes:
        aggregates.append(F.first("payload", ignorenulls=True).alias("payload"))
    return df.groupBy("k").agg(*aggregates)


def row_counts(service: StateService, df: DataFrame) -> DataFrame:
    """The same in the row API."""
    return service.group_by(df, "k").transformWithState(
        Counter(), COUNTER_OUTPUT, "Update", "None", name="counts"
    )


def native_row_counts(df: DataFrame) -> DataFrame:
    """The same on Spark's Python operator."""
    return df.groupBy("k").transformWithState(Counter(), COUNTER_OUTPUT, "Update", "None")


def uniform_keys(spark: SparkSession, rows_a_batch: int, keys: int) -> DataFrame:
    """The same rows in the same batches, each time: keys drawn evenly (by hash) from `keys`."""
    return _batches(spark, rows_a_batch).select(F.pmod(F.xxhash64("value"), F.lit(keys)).alias("k"))


def new_keys(spark: SparkSession, rows_a_batch: int, keys: int) -> DataFrame:
    """Every key once, then again: `keys / rows_a_batch` batches fill the state."""
    return _batches(spark, rows_a_batch).select(F.pmod("value", F.lit(keys)).alias("k"))


def _batches(spark: SparkSession, rows_a_batch: int) -> DataFrame:
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows_a_batch)
        .option("numPartitions", 2)
        .load()
    )
