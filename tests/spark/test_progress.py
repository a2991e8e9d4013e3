"""Operators of the service in their query's progress, beside Spark's own on the same input."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import (
    StatefulProcessor,
    StatefulProcessorHandle,
    StreamingQueryListener,
)
from tests.spark.differential import Feed, Watched, check_equal, play, wait_for

from anabranch import ProgressListener, QueryProgress, StateService, agg
from anabranch.spark.progress import SWITCH

SCHEMA = "k string, t double"
WINDOW = agg.tumbling("ts", "5 seconds")
FIELDS = ("operatorName", "numRowsTotal", "numRowsUpdated", "numRowsRemoved")
LATE = "numRowsDroppedByWatermark"


def rows(*pairs: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"k": key, "t": moment} for key, moment in pairs]


BATCHES = [
    rows(("a", 1), ("a", 2), ("b", 9), ("c", 31)),
    rows(("d", 2), ("e", 3), ("a", 40), ("c", 32)),
    rows(("a", 41), ("z", 90)),
]
"""In the second one, two rows are late."""


def shown(watched: Watched, *fields: str) -> dict[int, list[Any]]:
    """What progress says of the one operator, by batch."""
    found: dict[int, Any] = {}
    for progress in watched.query.recentProgress:
        if "addBatch" in progress.durationMs:  # else no batch ran
            (found[progress.batchId],) = progress.stateOperators
    return {
        batch: [getattr(operator, field) for field in fields] for batch, operator in found.items()
    }


def observed(watched: Watched) -> dict[int, Row]:
    """What `observe` on the operator's result has seen, by batch."""
    return {
        progress.batchId: progress.observedMetrics["told"]
        for progress in watched.query.recentProgress
        if "addBatch" in progress.durationMs
    }


class Seen(StreamingQueryListener):
    """Collects the operators of each progress event."""

    def __init__(self) -> None:
        self.operators: dict[tuple[str, int], list[Any]] = {}

    def onQueryStarted(self, event: Any) -> None:
        pass

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        self.operators[str(progress.id), progress.batchId] = progress.stateOperators

    def onQueryIdle(self, event: Any) -> None:
        pass

    def onQueryTerminated(self, event: Any) -> None:
        pass


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "update"])
def test_windows(spark: SparkSession, tmp_path: Path, mode: str) -> None:
    """Every number of rows is Spark's, batch by batch: late ones, closed windows, no rows."""
    feed = Feed(spark, tmp_path, SCHEMA)
    df = feed.stream().withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "2 seconds")
    native = df.groupBy("k", WINDOW.spark()).agg(F.count("t").alias("n"))
    seen = Seen()
    spark.streams.addListener(seen)
    try:
        with StateService(spark, str(tmp_path / "state"), workers=2, fsync=False) as service:
            ours = service.group_by(df, "k", window=WINDOW).aggregate(
                n=agg.count("t"), outputMode=mode, name="windows"
            )
            told = F.count("*").alias("rows"), F.sum("n").alias("n")
            native, ours = (side.observe("told", *told) for side in (native, ours))
            feed.add(BATCHES[0])
            starting = (native, tmp_path / "spark", mode), (ours, tmp_path / "ours", mode)
            with Watched(*starting[0]) as left, Watched(*starting[1]) as right:
                for watched in (left, right):
                    watched.query.processAllAvailable()
                play(feed, BATCHES[1:], left, right)
                lanes = service._lanes
                status = service.status()["operators"]["windows"]
                query = str(right.query.id)
                wait_for(lambda: (query, max(right.rows)) in seen.operators, right)
    finally:
        spark.streams.removeListener(seen)
    check_equal(left.batches(), right.batches())
    assert shown(left, *FIELDS, LATE) == shown(right, *FIELDS, LATE)
    late = {batch: counts[-1] for batch, counts in shown(right, *FIELDS, LATE).items()}
    assert sum(late.values()) == 2
    assert observed(left) == observed(right)
    assert sum(row.n for row in observed(right).values() if row.n is not None) > 0
    (operator,) = seen.operators[query, max(right.rows)]
    assert operator.operatorName == "stateStoreSave"
    assert operator.numRowsTotal == status["rows"]
    assert operator.memoryUsedBytes > 0
    assert operator.numShufflePartitions == operator.numStateStoreInstances == lanes
    assert operator.customMetrics["rowsInput"] == 0, "the last batch has no rows"


class Counter(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        handle.deleteIfExists("former")
        self._count = handle.getValueState("count", "n long")
        self._list = handle.getListState("times", "t double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        before = self._count.get()
        count = (before[0] if before else 0) + sum(len(each) for each in rows)
        self._count.update((count,))
        yield pd.DataFrame({"k": [key[0]], "n": [count]})


@pytest.mark.slow
def test_processors_idle_and_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    """Code for Spark's own progress runs: `stateOperators[0]`, its custom metrics."""
    feed = Feed(spark, tmp_path, SCHEMA)
    idle = "spark.sql.streaming.noDataProgressEventInterval"
    before = spark.conf.get(idle)
    spark.conf.set(idle, "0")
    try:
        with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
            counts: DataFrame = service.group_by(feed.stream(), "k").transformWithStateInPandas(
                Counter(), "k string, n long", "Update", "None", name="counter"
            )
            with Watched(counts, tmp_path / "check") as watched:
                play(feed, BATCHES[:2], watched)
                wait_for(lambda: watched.query.recentProgress[-1].batchId == 2, watched)
                (nothing,) = watched.query.recentProgress[-1].stateOperators
            with Watched(counts, tmp_path / "check") as again:
                play(feed, BATCHES[2:], again)
    finally:
        spark.conf.set(idle, str(before))
    name, metrics, *counted = shown(watched, "operatorName", "customMetrics", *FIELDS[1:])[1]
    assert (name, counted) == ("transformWithStateInPandasExec", [5, 4, 0])
    assert metrics["numValueStateVars"] == metrics["numListStateVars"] == 1
    assert metrics["numDeletedStateVars"] == 1
    assert metrics["rowsInput"] == 4
    # A trigger without a batch: what state is, not what a batch did.
    assert (nothing.numRowsTotal, nothing.numRowsUpdated) == (5, 0)
    assert shown(again, *FIELDS[1:]) == {2: [6, 2, 0]}


class Told:
    """Collects what a ProgressListener tells."""

    def __init__(self) -> None:
        self.progress: list[QueryProgress] = []

    def __call__(self, progress: QueryProgress) -> None:
        self.progress.append(progress)


@pytest.mark.slow
@pytest.mark.parametrize("is_on", [True, False])
def test_observed_metrics_have_the_same_numbers(
    spark: SparkSession, tmp_path: Path, is_on: bool
) -> None:
    told = Told()
    listener = ProgressListener(told)
    spark.streams.addListener(listener)
    spark.conf.set(SWITCH, str(is_on).lower())
    try:
        with StateService(spark, str(tmp_path / "state"), workers=1, key_groups=8) as service:
            rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
            keyed = rate.selectExpr("value % 5 as k").observe("mine", F.count("*").alias("n"))
            counted = service.group_by(keyed, "k").aggregate(n=agg.count(), name="counted")
            query = (
                counted.writeStream.format("noop")
                .outputMode("update")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .start()
            )
            deadline = time.monotonic() + 120
            while not any(p.operators or not is_on for p in told.progress[3:]):
                assert query.exception() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            query.stop()
            progress = service.progress(query)
            last = query.lastProgress
            assert last is not None
            assert "mine" in last.observedMetrics
            assert progress.query_id == query.id
            assert progress.batch == last.batchId
            if is_on:
                numbers, operator = progress.operators["counted"], last.stateOperators[0]
                assert numbers["numRowsTotal"] == operator.numRowsTotal == 5
                assert numbers["numRowsUpdated"] == operator.numRowsUpdated
                assert numbers["rowsInput"] == operator.customMetrics["rowsInput"]
            else:
                assert not progress.operators
                assert not [name for name in last.observedMetrics if name != "mine"]
    finally:
        spark.conf.unset(SWITCH)
        spark.streams.removeListener(listener)
