"""What `service.enable()` does to queries: names, warnings, refusals, and what stays on Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from tests.spark.differential import Feed

from anabranch import StateService
from anabranch.errors import InvalidArgument


@pytest.fixture
def service(spark: SparkSession, tmp_path: Path) -> Iterator[StateService]:
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
        yield service


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path, "k long, v long, t double")


def timed(df: DataFrame) -> DataFrame:
    return df.withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "5 seconds")


def run(df: DataFrame, checkpoint: Path, mode: str = "update", **said: Any) -> list[list[Any]]:
    """The rows of each batch, until there is no more input."""
    seen: list[list[Any]] = []

    def sink(batch: DataFrame, _: int) -> None:
        seen.append(sorted(map(tuple, batch.collect())))

    writer = df.writeStream.foreachBatch(sink).trigger(availableNow=True)
    query = writer.start(outputMode=mode, checkpointLocation=str(checkpoint), **said)
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return [rows for rows in seen if rows]


def names(service: StateService) -> set[str]:
    return {each.name for each in service.stored_state()}


class Count(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "c long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count = (self._count.get() or (0,))[0] + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(k=key[0], c=count)


@pytest.mark.slow
def test_names_and_mixed_operators(
    spark: SparkSession, service: StateService, feed: Feed, tmp_path: Path
) -> None:
    """A query's name is in the names of its state; `transformWithState` goes on as before."""
    feed.add([{"k": 1, "v": 1}, {"k": 1, "v": 1}, {"k": 2, "v": 3}])
    service.enable(names={"clicks.aggregate": "totals"}, strict=True)

    def query() -> DataFrame:
        once = feed.stream().dropDuplicates(["k", "v"])
        counted = once.groupBy("k").transformWithState(Count(), "k long, c long", "Update", "None")
        return counted.select("k", (F.col("c") + 10).alias("c"))

    assert run(query(), tmp_path / "c", queryName="clicks") == [[(1, 11), (2, 11)]]
    assert names(service) == {"clicks.dropDuplicates", "Count"}
    summed = feed.stream().groupBy("k").sum("v")
    assert run(summed, tmp_path / "d", queryName="clicks") == [[(1, 2), (2, 3)]]
    assert names(service) == {"clicks.dropDuplicates", "Count", "totals"}
    feed.add([{"k": 1, "v": 1}, {"k": 1, "v": 2}])
    assert run(query(), tmp_path / "c", queryName="clicks") == [[(1, 12)]]
    assert run(summed, tmp_path / "d", queryName="clicks") == [[(1, 5)]]
    assert names(service) == {"clicks.dropDuplicates", "Count", "totals"}


@pytest.mark.slow
def test_what_stays_on_spark(
    spark: SparkSession,
    service: StateService,
    feed: Feed,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One warning, an error with strict, and `explain` before anything starts."""
    feed.add([{"k": 1, "v": 1, "t": 10}, {"k": 1, "v": 2, "t": 11}])
    left, right = timed(feed.stream()), timed(feed.stream()).select("k", "ts")
    joined = left.alias("a").join(
        right.alias("b"), F.expr("a.k = b.k and b.ts between a.ts and a.ts + interval 2 seconds")
    )
    above = joined.select("a.k", "a.ts", "v").dropDuplicates(["k", "ts", "v"])
    with pytest.raises(InvalidArgument, match=r"service\.enable\(\) first"):
        service.explain(above)
    service.enable()
    service.explain(above)
    shown = capsys.readouterr().out
    assert "join: on Spark" in shown
    assert "dropDuplicates: on Spark, because below it, a join stays on Spark" in shown
    with caplog.at_level(logging.WARNING, "anabranch.service"):
        assert len(run(above, tmp_path / "c", "append")[0]) == 2
    (warning,) = [r.message for r in caplog.records if r.name == "anabranch.service"]
    assert "join (not taken over yet)" in warning
    assert "dropDuplicates (below it" in warning
    lists = feed.stream().groupBy("k").agg(F.collect_list("v"))
    service.disable()
    service.enable(strict=True)
    with pytest.raises(InvalidArgument, match="collect_list has a state that only Spark can merge"):
        run(lists, tmp_path / "d")
    assert not names(service)
    service.disable()
    service.enable(only={"dropDuplicates"})
    service.explain(feed.stream().dropDuplicates(["k"]).groupBy("k").count(), "update", "clicks")
    shown = capsys.readouterr().out
    assert "dropDuplicates: on the service, state name 'clicks.dropDuplicates'" in shown
    assert "aggregate: on Spark, because enable(only=...) leaves it out" in shown
    service.disable()
    with pytest.raises(InvalidArgument, match="only='window' is no operator"):
        service.enable(only={"window"})


@pytest.mark.slow
def test_a_query_that_began_on_spark_stays_there(
    spark: SparkSession, service: StateService, feed: Feed, tmp_path: Path
) -> None:
    counted = feed.stream().groupBy("k").count()
    feed.add([{"k": 1}])
    assert run(counted, tmp_path / "c") == [[(1, 1)]]
    feed.add([{"k": 1}, {"k": 2}])
    service.enable()
    assert run(counted, tmp_path / "c") == [[(1, 2), (2, 1)]]
    assert not names(service)
    service.disable()
    service.enable(strict=True)
    with pytest.raises(InvalidArgument, match="its state is in Spark's checkpoint"):
        run(counted, tmp_path / "c")


@pytest.mark.slow
def test_an_operator_that_computes_something_else_is_refused(
    spark: SparkSession, service: StateService, feed: Feed, tmp_path: Path
) -> None:
    """Before anything is touched: undone, the query goes on."""
    service.enable(strict=True)
    feed.add([{"k": 1, "v": 5}])
    assert run(feed.stream().groupBy("k").agg(F.max("v")), tmp_path / "c") == [[(1, 5)]]
    feed.add([{"k": 1, "v": 3}])
    with pytest.raises(StreamingQueryException, match="does not fit"):
        run(feed.stream().groupBy("k").agg(F.min("v")), tmp_path / "c")
    unrelated = feed.stream().where("v < 100").groupBy("k").agg(F.max("v").alias("most"))
    assert run(unrelated, tmp_path / "c") == [[(1, 5)]]


@pytest.mark.slow
def test_sinks_and_errors(
    spark: SparkSession, service: StateService, feed: Feed, tmp_path: Path
) -> None:
    service.enable(strict=True)
    feed.add([{"k": 1, "v": 5}, {"k": 1, "v": 6}])
    once = feed.stream().dropDuplicates(["k"]).select("k")
    # A writer can be started twice, and keeps its own plan.
    writer = once.writeStream.format("memory").outputMode("append")
    for name in ("first", "second"):
        query = writer.queryName(name).start()
        query.processAllAvailable()
        query.stop()
        assert spark.table(name).collect() == [Row(k=1)]
    assert names(service) == {"first.dropDuplicates", "second.dropDuplicates"}
    # foreachBatch must use all rows, as with Spark's own operators.
    partial = once.writeStream.foreachBatch(lambda batch, _: None)
    query = partial.option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(StreamingQueryException, match="did not process all"):
        query.processAllAvailable()
    query.stop()
    # What Spark refuses, it refuses in its own words.
    with pytest.raises(AnalysisException, match="without watermark"):
        run(feed.stream().groupBy("k").count(), tmp_path / "d", "append")
