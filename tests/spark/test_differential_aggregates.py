"""`aggregate` on the service equals `groupBy().agg()` on Spark, batch by batch."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.differential import Feed, Watched, check_equal, play

from anabranch import StateService, agg
from anabranch.agg import Aggregate, Window

INPUT = "k string, j int, t double, v long, x double, d decimal(12,2), s string"
AGGREGATES: dict[str, Aggregate] = {
    "n": agg.count(),
    "some": agg.count("v"),
    "total": agg.sum("v"),
    "area": agg.sum("x"),
    "money": agg.sum("d"),
    "low": agg.min("s"),
    "high": agg.max("x"),
    "mean": agg.avg("v"),
    "price": agg.avg("d"),
    "head": agg.first("j"),
    "tail": agg.last("j"),
    "kinds": agg.approx_count_distinct("s"),
}
WINDOWS: dict[str, Window] = {
    "tumbling": agg.tumbling("ts", "10 seconds"),
    "sliding": agg.sliding("ts", "12 seconds", "5 seconds"),
    "session": agg.session("ts", "4 seconds"),
}


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        yield service


def events(seed: int, batches: int, rows: int, step: float = 9) -> list[list[dict[str, Any]]]:
    chance = random.Random(seed)
    return [
        [
            {
                "k": chance.choice(["a", "b", "c", None]),
                # The same for all rows of a batch: which row is first is not said by Spark.
                "j": batch,
                # No two rows at one moment: which is the last one is not said either.
                "t": 30 + step * batch + chance.randrange(-40, 20) / 2 + (batch * rows + at) / 1000,
                "v": chance.choice([None, chance.randrange(-1000, 1000)]),
                "x": chance.choice([None, chance.random(), "NaN", -0.0, 1e300]),
                "d": chance.choice([None, round(chance.random() * 1000, 2)]),
                "s": chance.choice([None, "", "x", str(chance.random())]),
            }
            for at in range(rows)
        ]
        for batch in range(batches)
    ]


def timed(stream: DataFrame) -> DataFrame:
    with_time = stream.withColumn("ts", F.timestamp_seconds("t"))
    return with_time.withWatermark("ts", "6 seconds")


def alike(name: str, df: DataFrame, window: Window | None, aggregates: Mapping[str, Any]) -> Any:
    """One schema for all operators, so that they can share a query."""
    shown = F.lit(None) if window is None else F.col("window").cast("string")
    return df.select(F.lit(name).alias("operator"), "k", shown.alias("window"), *aggregates)


def union(parts: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.union, parts)


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["append", "update"])
def test_windows(spark: SparkSession, service: StateService, tmp_path: Path, mode: str) -> None:
    """Several operators in one query, on each side; late rows; batches without rows."""
    feed = Feed(spark, tmp_path, INPUT)
    df = timed(feed.stream())
    # Spark has no sessions in update mode, and no plain groups in append mode.
    chosen: dict[str, Window | None] = {"tumbling": WINDOWS["tumbling"]}
    if mode == "append":
        chosen |= {"sliding": WINDOWS["sliding"], "session": WINDOWS["session"]}
    else:
        chosen |= {"sliding": WINDOWS["sliding"], "plain": None}
    native, ours = [], []
    for name, window in chosen.items():
        windows = [] if window is None else [window.spark().alias("window")]
        columns = [aggregate.spark().alias(n) for n, aggregate in AGGREGATES.items()]
        reference = df.groupBy("k", *windows).agg(*columns)
        native.append(alike(name, reference, window, AGGREGATES))
        result = service.group_by(df, "k", window=window).aggregate(
            name=f"{mode}-{name}", outputMode=mode, own_stage=True, **AGGREGATES
        )
        ours.append(alike(name, result, window, AGGREGATES))
    with ExitStack() as stack:
        watched = [
            stack.enter_context(Watched(union(parts), tmp_path / side, mode))
            for side, parts in (("spark", native), ("ours", ours))
        ]
        play(feed, events(5, 4, 60), *watched)
    shown = watched[0].batches()
    check_equal(shown, watched[1].batches())
    assert len(shown) > 4
    for name in chosen:
        assert sum(f"'{name}'" in row for rows in shown.values() for row in rows) > 5
