"""The way back: every kind of state goes on in Spark's own operator."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import Feed, Watched
from tests.spark.test_migrating import (
    ALL,
    CASES,
    DAY_MS,
    FIRST,
    NEXT,
    SCHEMA,
    Case,
    Keeper,
    add,
    keeper_on_spark,
    keeper_on_us,
    run,
    timed,
)

import anabranch
from anabranch import StateService

CASE = CASES["rows"]
OUTPUT = "k string, told string"

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # trigger(once=True)


class PandasKeeper(Keeper):
    """The same for `transformWithStateInPandas`."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        found = [Row(v=_plain(row.v), ts=row.ts) for some in rows for row in some.itertuples()]
        for row in super().handleInputRows(key, iter(found), timerValues):
            yield pd.DataFrame({"k": [row.k], "told": [row.told]})


def _plain(value: float) -> int | None:
    return None if pd.isna(value) else int(value)


def back(spark: SparkSession, location: Path, df: DataFrame, in_pandas: bool = False) -> DataFrame:
    """The query on Spark's operator, with what the service has."""
    initial = anabranch.initial_state(spark, str(location), "it").groupBy("k")
    grouped = df.groupBy("k")
    if in_pandas:
        return grouped.transformWithStateInPandas(
            anabranch.Restoring(PandasKeeper()), OUTPUT, "Update", "ProcessingTime", initial
        )
    return grouped.transformWithState(
        anabranch.Restoring(Keeper()), OUTPUT, "Update", "ProcessingTime", initial
    )


LATER = [{"k": k, "v": 7, "d": 1, "t": 95} for k in ("a", "b", None, "new")]


def test_all_kinds_of_state_go_back(spark: SparkSession, tmp_path: Path) -> None:
    """What Spark's operator says with it is what the service would have said."""
    feed, later = Feed(spark, tmp_path, SCHEMA), Feed(spark, tmp_path / "later", SCHEMA)
    add(feed, CASE, FIRST)
    location = tmp_path / "state"
    with StateService(spark, str(location), workers=1, key_groups=8, fsync=False) as service:
        result = keeper_on_us(service, timed(feed))
        run(result, tmp_path / "ours", CASE)
        for each in (feed, later):
            each.add(LATER)
        # The state as of now: that the service goes on does not change it.
        on_spark = back(spark, location, timed(later))
        goes_on = run(result, tmp_path / "ours", CASE)
    again = run(on_spark, tmp_path / "back", CASE)
    assert len(again.rows[0]) == len(LATER)
    assert again.batches()[0] == goes_on.batches()[1]


def expiries(spark: SparkSession, checkpoint: Path, variable: str) -> list[int]:
    """When entries of a variable expire, in Spark's own state."""
    options = {"stateVarName": variable, "flattenCollectionTypes": "true"}
    found = spark.read.format("statestore").options(**options).load(str(checkpoint))
    (column,) = {"value", "list_element", "user_map_value"}.intersection(found.columns)
    return [row[0] for row in found.select(f"{column}.ttlExpirationMs").collect()]


@pytest.mark.soak
@pytest.mark.parametrize("in_pandas", [False, True])
def test_there_and_back(spark: SparkSession, tmp_path: Path, in_pandas: bool) -> None:
    """Spark, the service, Spark again: as if Spark had gone on."""
    feed, later = Feed(spark, tmp_path, SCHEMA), Feed(spark, tmp_path / "later", SCHEMA)
    add(feed, CASE, FIRST)
    old, new, location = tmp_path / "old", tmp_path / "new", tmp_path / "state"
    run(keeper_on_spark(timed(feed)), old, CASE)
    shutil.copytree(old, tmp_path / "stays")
    with StateService(spark, str(location), workers=1, key_groups=8, fsync=False) as service:
        result = keeper_on_us(service, timed(feed))
        service.import_checkpoint(str(old), to=str(new), result=result)
        feed.add(NEXT[0])
        run(result, new, CASE)
    run(keeper_on_spark(timed(feed)), tmp_path / "stays", CASE)
    for each in (feed, later):
        each.add(LATER)
    began_ms = 1000 * time.time()
    again = run(back(spark, location, timed(later), in_pandas), tmp_path / "back", CASE)
    spark_goes_on = run(keeper_on_spark(timed(feed)), tmp_path / "stays", CASE)
    assert len(again.rows[0]) == len(LATER)
    assert again.batches()[0] == spark_goes_on.batches()[2]
    # Times to live start anew, with the batch that brought the state.
    for variable in ("value_ttl", "list_ttl", "map_ttl"):
        times = expiries(spark, tmp_path / "back", variable)
        assert len(times) > 1
        assert min(times) > began_ms + DAY_MS


class Reminder(StatefulProcessor):
    """A timer half a minute after each row, in event time."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._last = handle.getValueState("last", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self._last.update((row.v,))
            self._handle.registerTimer(int(1000 * row.t) + 30_000)
        yield from ()

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        told = f"{expiredTimerInfo.getExpiryTimeInMs()} {self._last.get()}"
        yield Row(k=key[0], told=told)


@pytest.mark.soak
def test_timers_that_went_back_fire(spark: SparkSession, tmp_path: Path) -> None:
    feed, later = Feed(spark, tmp_path, SCHEMA), Feed(spark, tmp_path / "later", SCHEMA)
    feed.add(FIRST[0])
    how = OUTPUT, "Update", "EventTime"
    location = tmp_path / "state"

    def rows_of(watched: Watched) -> list[tuple[str, str]]:
        return sorted((row.k, row.told) for rows in watched.rows.values() for row in rows)

    with StateService(spark, str(location), workers=1, key_groups=8, fsync=False) as service:
        result = service.group_by(timed(feed), "k").transformWithState(Reminder(), *how, name="it")
        case = Case(keeper_on_spark, keeper_on_us, "update", ALL)
        assert rows_of(run(result, tmp_path / "ours", case)) == []
        initial = anabranch.initial_state(spark, str(location), "it").groupBy("k")
        for each in (feed, later):
            each.add([{"k": "z", "v": 1, "t": 100}])
        on_spark = (
            timed(later)
            .groupBy("k")
            .transformWithState(anabranch.Restoring(Reminder()), *how, initialState=initial)
        )
        goes_on = rows_of(run(result, tmp_path / "ours", case))
    assert goes_on == [("a", "31000 (1,)"), ("b", "32000 (2,)")]
    assert rows_of(run(on_spark, tmp_path / "back", case)) == goes_on
