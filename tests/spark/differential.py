"""Runs an operator on Spark and on the service, on the same input, and compares every batch."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

WAIT_SECONDS_MAX = 120
SIDES = ("spark", "ours")

Batches = dict[int, list[str]]


def plain(value: Any) -> Any:
    """A value whose repr is equal for equal values: -0.0 differs from 0.0, NaN equals NaN."""
    if isinstance(value, Row):
        return ("row", *((name, plain(value[at])) for at, name in enumerate(value.__fields__)))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, *map(plain, value)
    if isinstance(value, Mapping):
        return "map", *sorted((plain(k), plain(v)) for k, v in value.items())
    if isinstance(value, float):
        return f"{value:.9g}"
    return bytes(value) if isinstance(value, bytearray) else value


class Feed:
    """A folder of JSON files that streams read; one file is one batch."""

    def __init__(self, spark: SparkSession, folder: Path, schema: str) -> None:
        self._folder = folder / "input"
        self._folder.mkdir(parents=True)
        self._spark = spark
        self._schema = schema
        self._files = 0

    def stream(self) -> DataFrame:
        """A new stream over all files, in their order."""
        reader = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.json(str(self._folder))

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """One more file, visible at once and whole."""
        written = self._folder.parent / "written.json"
        written.write_text("\n".join(json.dumps(row) for row in rows))
        # Spark orders files by time of change.
        os.utime(written, (1_700_000_000 + self._files, 1_700_000_000 + self._files))
        os.replace(written, self._folder / f"{self._files:03}.json")
        self._files += 1


class Watched:
    """A running query whose batches are collected."""

    def __init__(
        self,
        df: DataFrame,
        checkpoint: Path,
        output_mode: str = "update",
        trigger: Mapping[str, Any] | None = None,
        collect: Callable[[DataFrame], list[Row]] = DataFrame.collect,
    ) -> None:
        self.rows: dict[int, list[Row]] = {}

        def sink(batch: DataFrame, batch_id: int) -> None:
            self.rows[batch_id] = collect(batch)

        writer = df.writeStream.foreachBatch(sink).outputMode(output_mode)
        writer = writer.option("checkpointLocation", str(checkpoint))
        self.query: StreamingQuery = (
            writer.trigger(**trigger).start() if trigger else writer.start()
        )

    def batches(self, side: str | None = None) -> Batches:
        """Rows by batch, in an order that depends on nothing but the rows."""
        return {
            batch: sorted(repr(plain(row)) for row in rows if side in (None, row[0]))
            for batch, rows in sorted(self.rows.items())
        }

    def finish(self) -> None:
        """Wait for a query that ends by itself."""
        assert self.query.awaitTermination(WAIT_SECONDS_MAX), "The query does not end."

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self.query.stop()


def play(feed: Feed, batches: Sequence[Iterable[Mapping[str, Any]]], *queries: Watched) -> None:
    """Batch after batch through all queries, until none of them wants another batch."""
    for rows in batches:
        feed.add(rows)
        for watched in queries:
            watched.query.processAllAvailable()


def both(spark: DataFrame, ours: DataFrame) -> DataFrame:
    """Both sides in one query, so that they see the same clocks; marked in the first column."""
    assert spark.schema == ours.schema
    left, right = (df.select(F.lit(s), "*") for s, df in zip(SIDES, (spark, ours), strict=True))
    return left.union(right.repartition(2))  # without it, the lanes would be renumbered


def wait_for(condition: Callable[[], bool], watched: Watched) -> None:
    """Poll; a query that failed raises its error here."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        error = watched.query.exception()
        if error is not None:
            raise error
        assert time.monotonic() < deadline, "It takes too long."
        time.sleep(0.05)


def check_sides(watched: Watched) -> Batches:
    """Both sides of a query made by `both` are equal in each batch."""
    stripped = {
        side: {
            batch: sorted(repr(plain(row)[2:]) for row in rows if row[0] == side)
            for batch, rows in sorted(watched.rows.items())
        }
        for side in SIDES
    }
    check_equal(stripped["spark"], stripped["ours"])
    return stripped["spark"]


def check_equal(spark: Batches, ours: Batches) -> None:
    """Equal batch by batch, also the empty ones."""
    differences = [
        f"batch {batch}: {side} only: {row}"
        for batch in sorted(spark.keys() | ours.keys())
        for side, left, right in (("spark", spark, ours), ("ours", ours, spark))
        for row in sorted((Counter(left.get(batch, ())) - Counter(right.get(batch, ()))).elements())
    ]
    assert not differences, "\n".join(differences[:20])
    assert spark.keys() == ours.keys(), "batches without rows"
