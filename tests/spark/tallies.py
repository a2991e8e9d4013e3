"""Row and columnar state over the same rows in every run, and what it must be after each batch."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

ROWS = 60
"""Rows of a batch."""
KEYS = 97
WINDOW_SECONDS = 4
TALLY = "k long, total long, items long"


class Tally(StatefulProcessor):
    """Sum (value), all values (list), counts by remainder (map)."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "t long")
        self._items = handle.getListState("items", "v long")
        self._parts = handle.getMapState("parts", "r long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        stored = self._total.get()
        total = stored[0] if stored is not None else 0
        for row in rows:
            total += row.v
            self._items.appendValue((row.v,))
            part = (row.v % 3,)
            count = self._parts.getValue(part)
            self._parts.updateValue(part, ((count[0] if count else 0) + 1,))
        self._total.update((total,))
        yield Row(k=key[0], total=total, items=sum(1 for _ in self._items.get()))


def source(spark: SparkSession) -> DataFrame:
    """Batch b has the values from b * ROWS on, all at second b."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .option("startTimestamp", 0)
        .option("advanceMillisPerBatch", 1000)
        .load()
    )
    key = (F.col("value") * 7) % KEYS
    name = F.concat(F.lit("s"), (key % 5).cast("string"))
    return rows.select(
        key.alias("k"), name.alias("s"), F.col("value").alias("v"), F.col("timestamp").alias("ts")
    )


def values_of(key: int, batches: int) -> list[int]:
    """Values of a key in the first batches."""
    return [v for v in range(batches * ROWS) if v * 7 % KEYS == key]


def tally_of(key: int, batches: int) -> tuple[Any, Any, Any]:
    """Total, items and parts of a key; None if it has none."""
    values = values_of(key, batches)
    if not values:
        return None, None, None
    parts = {(r,): (n,) for r, n in Counter(v % 3 for v in values).items()}
    return (sum(values),), [(v,) for v in values], parts


def window_of(batch: int) -> tuple[datetime.datetime, datetime.datetime]:
    """The window of a batch's rows, in UTC."""
    start = batch // WINDOW_SECONDS * WINDOW_SECONDS
    ends = (start, start + WINDOW_SECONDS)
    utc = datetime.timezone.utc
    first, last = (datetime.datetime.fromtimestamp(second, utc) for second in ends)
    return first, last


def windowed_of(key: int, window: int, batches: int) -> tuple[int, int] | None:
    """Count and sum of a key in the window that starts at a second."""
    low, high = window * ROWS, min(batches, window + WINDOW_SECONDS) * ROWS
    values = [v for v in range(low, high) if v * 7 % KEYS == key]
    return (len(values), sum(values)) if values else None
