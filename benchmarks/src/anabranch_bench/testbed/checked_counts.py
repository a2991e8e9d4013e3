"""The driver's side of `anabranch bench cluster`: a key-count with a payload, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch.loadtest.schedule import load_frame
from anabranch_bench.testbed.driver_program import Stage
from anabranch_bench.testbed.show import Show
from anabranch_bench.workloads.keycount import build

FILL_BATCHES = 8


class LastCounts:
    """An idempotent sink: the last count of each key."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def write(self, batch: DataFrame, number: int) -> None:
        """foreachBatch's function."""
        rows = batch.select("k", "n").toArrow().to_pydict()
        self.counts.update(zip(rows["k"], rows["n"], strict=True))


def begin(stage: Stage, keys: int, payload_bytes: int) -> None:
    """Start the query, and give each key its payload."""

    def make(schedule: Path) -> DataFrame:
        return build(stage.service, load_frame(stage.spark, schedule, keys, payload_bytes))

    sink = LastCounts()
    query = LoadedQuery(make, stage.folder, 0, sink.write)
    stage.queries["show"] = Show(query, sink)
    query.start()
    stage.closing.callback(query.stop)
    query.burst(keys, -(-keys // FILL_BATCHES), lambda _: None)


def timeline(stage: Stage) -> dict[str, Any]:
    """All batches since the load began."""
    show = stage.queries["show"]
    show.query.collect()
    told: dict[str, Any] = show.query.timeline(show.load).to_json()
    return told


def wrong_keys(stage: Stage, keys: int) -> int:
    """Deliver nothing more; how many counts differ from a batch query over the same rows."""
    show = stage.queries["show"]
    show.query.drain()
    rows = stage.spark.range(show.query.next_row).withColumnRenamed("id", "row")
    drawn = F.pmod(F.xxhash64("row"), F.lit(keys))
    key = F.when(F.col("row") < keys, F.col("row")).otherwise(drawn)
    table = rows.groupBy(key.alias("k")).count().toArrow().to_pydict()
    expected = dict(zip(table["k"], table["count"], strict=True))
    found = show.sink.counts
    return sum(1 for k in expected.keys() | found if expected.get(k) != found.get(k))
