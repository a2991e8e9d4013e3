"""Whole queries: chained operators, AvailableNow, what users do with a result."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import SIDES, Feed, Watched, check_equal, play

from anabranch import StateService, agg

INPUT = "k string, t double, v long"


class Closing(StatefulProcessor):
    """Counts rows of a key and tells the number when none came for some seconds."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long, due long")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count, due = self._count.get() or (0, 0)
        for row in rows:
            count += 1
            due = max(due, int(row.ts.timestamp() * 1000) + 3000)
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(due)
        self._count.update((count, due))
        return iter([])

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        count, _ = self._count.get() or (0, 0)
        self._count.clear()
        # Not before the watermark: what comes after this operator would take it for late.
        moment = timerValues.getCurrentWatermarkInMs() / 1000 + 1
        ts = datetime.datetime.fromtimestamp(moment, datetime.timezone.utc)
        yield Row(k=key[0], ts=ts, n=count)


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        yield service


def timed(stream: DataFrame) -> DataFrame:
    with_time = stream.withColumn("ts", F.timestamp_seconds("t"))
    return with_time.withWatermark("ts", "2 seconds")


def rows(*moments: float, keys: str = "abc") -> list[dict[str, Any]]:
    return [{"k": keys[at % len(keys)], "t": t, "v": at} for at, t in enumerate(moments)]


BATCHES = [
    rows(1, 2, 3, 4, 5),
    rows(9, 12, 13, 1, 8),
    rows(30, 31, 14, 29, keys="cd"),
    rows(90, keys="z"),
]
ENDED = ("k string, ts timestamp, n long", "Append", "EventTime")
COUNTED = ("k long, ts timestamp, n long", "Append", "EventTime")


Pair = tuple[DataFrame, DataFrame]


def processors(df: DataFrame, service: StateService) -> Pair:
    native = df.groupBy("k").transformWithState(Closing(), *ENDED, None, "ts")
    ours = service.group_by(df, "k").transformWithState(
        Closing(), *ENDED, None, "ts", name="processors-1"
    )
    return (
        native.groupBy("n").transformWithState(Closing(), *COUNTED),
        service.group_by(ours, "n").transformWithState(Closing(), *COUNTED, name="processors-2"),
    )


def windows(df: DataFrame, service: StateService) -> Pair:
    native = df.groupBy("k", F.window("ts", "5 seconds")).agg(F.count("v").alias("n"))
    ours = service.group_by(df, "k", window=agg.tumbling("ts", "5 seconds")).aggregate(
        n=agg.count("v"), outputMode="append", name="windows-1"
    )
    moment = F.window_time("window")
    return (
        native.groupBy(F.window(moment, "20 seconds")).agg(F.sum("n").alias("n")),
        service.group_by(ours, window=agg.tumbling(moment, "20 seconds")).aggregate(
            n=agg.sum("n"), outputMode="append", name="windows-2"
        ),
    )


def mixed(df: DataFrame, service: StateService) -> Pair:
    """The service's result in an operator of Spark."""
    native = df.groupBy("k").transformWithState(Closing(), *ENDED, None, "ts")
    ours = service.group_by(df, "k").transformWithState(
        Closing(), *ENDED, None, "ts", name="mixed-1"
    )
    window = F.window("ts", "10 seconds")
    return (
        native.groupBy(window).agg(F.sum("n").alias("n")),
        ours.groupBy(window).agg(F.sum("n").alias("n")),
    )


@pytest.mark.soak
@pytest.mark.parametrize("chain", [mixed, processors, windows])
def test_chained(
    spark: SparkSession,
    service: StateService,
    tmp_path: Path,
    chain: Callable[[DataFrame, StateService], Pair],
) -> None:
    """Event time goes through an operator into the next one."""
    feed = Feed(spark, tmp_path, INPUT)
    with ExitStack() as stack:
        native, ours = (
            stack.enter_context(Watched(result, tmp_path / side, "append"))
            for side, result in zip(SIDES, chain(timed(feed.stream()), service), strict=True)
        )
        play(feed, BATCHES, native, ours)
    check_equal(native.batches(), ours.batches())
    assert any(native.batches().values())
    # Operators in one query are at the same batch, also those that had nothing to do.
    epochs = {
        operator["last_epoch"]
        for name, operator in service.status()["operators"].items()
        if name.startswith(chain.__name__)
    }
    assert epochs == {max(ours.rows)}


def test_available_now(spark: SparkSession, service: StateService, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path, INPUT)
    for batch in BATCHES:
        feed.add(batch)
    df = timed(feed.stream())
    window = agg.tumbling("ts", "5 seconds")
    native = df.groupBy("k", window.spark()).agg(F.count("v").alias("n"))
    ours = service.group_by(df, "k", window=window).aggregate(
        n=agg.count("v"), outputMode="append", name="now"
    )
    # Spark's own never ends in processing time: it always wants another batch.
    endless = service.group_by(feed.stream(), "k").transformWithState(
        Reminding(), "k string, n long", "Update", "ProcessingTime", name="endless"
    )
    modes = {"spark": (native, "append"), "ours": (ours, "append"), "endless": (endless, "update")}
    watched = {}
    for name, (result, mode) in modes.items():
        with Watched(result, tmp_path / name, mode, {"availableNow": True}) as watched[name]:
            watched[name].finish()
    check_equal(watched["spark"].batches(), watched["ours"].batches())
    assert len(watched["ours"].rows) > len(BATCHES)
    assert sum(len(each) for each in watched["endless"].rows.values()) >= 10


class Reminding(StatefulProcessor):
    """Always has a timer that is due."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs())
        for row in rows:
            yield Row(k=key[0], n=row.v)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        self._handle.registerTimer(expiredTimerInfo.getExpiryTimeInMs() + 1)
        return iter([])


def test_uses_of_a_result(spark: SparkSession, service: StateService, tmp_path: Path) -> None:
    """What users do with a result: more than one action, a part of it, one partition, a union."""
    feed = Feed(spark, tmp_path, INPUT)
    df = feed.stream()
    expected = df.groupBy("k").agg(F.count("v").alias("n"), F.sum("v").alias("total"))

    def ours(name: str, own_stage: bool) -> DataFrame:
        return service.group_by(df, "k").aggregate(
            n=agg.count("v"), total=agg.sum("v"), name=name, own_stage=own_stage
        )

    def twice(batch: DataFrame) -> list[Row]:
        first = batch.collect()
        assert batch.count() == len(first)
        return batch.collect()

    def after_a_part(batch: DataFrame) -> list[Row]:
        batch.head(1)
        return batch.collect()

    uses: dict[str, tuple[DataFrame, Callable[[DataFrame], list[Row]]]] = {
        "spark": (expected, DataFrame.collect),
        "twice": (ours("twice", False), twice),
        "part": (ours("part", True), after_a_part),
        "coalesced": (ours("coalesced", True).coalesce(1), DataFrame.collect),
    }
    with ExitStack() as stack:
        watched = {
            use: stack.enter_context(Watched(result, tmp_path / use, collect=collect))
            for use, (result, collect) in uses.items()
        }
        play(feed, BATCHES[:3], *watched.values())
    for use in ("twice", "part", "coalesced"):
        check_equal(watched["spark"].batches(), watched[use].batches())
    union = ours("union", False).union(ours("other", False))
    with (
        Watched(union, tmp_path / "union") as displaced,
        pytest.raises(StreamingQueryException) as e,
    ):
        displaced.query.processAllAvailable()
    assert "own_stage=True" in str(e.value)
    assert not displaced.rows
