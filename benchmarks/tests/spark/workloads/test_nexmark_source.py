"""`format("nexmark")`: batches and streams have the generator's events, also after a restart."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.generator import NexmarkEvents
from anabranch_bench.workloads.nexmark.source import NexmarkSource


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(NexmarkSource)
    return spark


def generated(rows: int, **parameters: Any) -> Any:
    events = NexmarkEvents(NexmarkConfig(**parameters))
    return pa.Table.from_batches([events.between(0, rows)])


def comparable(rows: Any) -> Any:
    return rows.sort_by("event").to_pylist()


@pytest.mark.parametrize("partitions", [1, 3])
def test_batch(source: SparkSession, partitions: int) -> None:
    df = (
        source.read.format("nexmark")
        .option("rows", 3001)
        .option("numPartitions", partitions)
        .option("seed", 5)
        .option("hotAuctionRatio", 3)
        .option("text", True)
        .load()
    )
    assert df.rdd.getNumPartitions() == partitions
    expected = generated(3001, seed=5, hot_auction_ratio=3, text=True)
    assert comparable(df.toArrow()) == comparable(expected)


class Sink:
    def __init__(self) -> None:
        self.batches: dict[int, Any] = {}

    def write(self, batch: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = batch.select("event", "bid.price").toArrow()

    @property
    def rows(self) -> int:
        return sum(t.num_rows for t in self.batches.values())


def test_a_stream_goes_on_after_a_restart(source: SparkSession, tmp_path: Path) -> None:
    sink = Sink()
    for rows in (1, 2000):
        query = (
            source.readStream.format("nexmark")
            .option("rate", 2000)
            .option("rows", 6000)
            .option("group", 10)
            .load()
            .writeStream.foreachBatch(sink.write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        limit = time.monotonic() + 60
        goal = sink.rows + rows if rows == 1 else 6000
        while sink.rows < goal and time.monotonic() < limit:
            time.sleep(0.1)
            assert query.isActive, query.exception()
        query.stop()
    found = pa.concat_tables(sink.batches.values()).sort_by("event")
    expected = generated(6000, rate=2000, group=10).sort_by("event")
    prices = expected.column("bid").combine_chunks().field("price")
    assert found.column("event").to_pylist() == list(range(6000))
    assert found.column("price").to_pylist() == prices.to_pylist()
    assert len(sink.batches) > 2, "the rate holds rows back"


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("rows", "many", "positive number"), ("rate", "-1", "rate"), ("sed", "1", "Known: rate")],
)
def test_mistakes(source: SparkSession, option: str, value: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        source.read.format("nexmark").option("rows", "9").option(option, value).load().count()


def test_a_batch_needs_an_end(source: SparkSession) -> None:
    with pytest.raises(Exception, match="stream with an end"):
        source.read.format("nexmark").load().count()
