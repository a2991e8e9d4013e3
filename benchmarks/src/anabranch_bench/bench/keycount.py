"""Key-count: the smallest stateful workload, on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle


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
