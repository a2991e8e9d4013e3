"""`transformWithState` on the service equals Spark's own, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.differential import (
    Feed,
    Watched,
    both,
    check_equal,
    check_sides,
    play,
    wait_for,
)
from tests.spark.scripted import (
    INPUT,
    OUTPUT,
    STATE_OPS,
    TIMER_OPS,
    Scripted,
    ScriptedFrames,
    ScriptedRows,
    commands,
)

from anabranch import StateService

APIS: dict[str, tuple[str, type[Scripted]]] = {
    "rows": ("transformWithState", ScriptedRows),
    "pandas": ("transformWithStateInPandas", ScriptedFrames),
}


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        yield service


@pytest.mark.parametrize("api", ["rows", pytest.param("pandas", marks=pytest.mark.soak)])
def test_state_variables(
    spark: SparkSession, service: StateService, tmp_path: Path, api: str
) -> None:
    method, kind = APIS[api]
    feed = Feed(spark, tmp_path, INPUT)
    df = feed.stream()
    arguments = (OUTPUT, "Update", "None")
    native = getattr(df.groupBy("g", "h"), method)(kind("None"), *arguments)
    grouped = service.group_by(df, "g", "h")
    ours = getattr(grouped, method)(kind("None"), *arguments, name=f"state-{api}", own_stage=True)
    with Watched(both(native, ours), tmp_path / "check") as watched:
        play(feed, commands(1, 4, 150, STATE_OPS, null_h=api == "rows"), watched)
    shown = check_sides(watched)
    assert [len(rows) for rows in shown.values()] == [150] * 4
    for word in ("bool True", "bool False", "tuple", "list"):
        assert any(word in row for rows in shown.values() for row in rows), word


def initial_state(spark: SparkSession) -> DataFrame:
    rows = [("X", 1, 9, "one"), ("X", 2, 25, "two"), ("Z", 7, 13, None), (None, 3, 21, "x")]
    return spark.createDataFrame(rows, "g string, h int, a long, b string")


@pytest.mark.parametrize("api", [pytest.param("rows", marks=pytest.mark.soak), "pandas"])
def test_event_time(spark: SparkSession, service: StateService, tmp_path: Path, api: str) -> None:
    """Timers, late rows, batches without rows, initial state, keys that are expressions."""
    method, kind = APIS[api]
    feed = Feed(spark, tmp_path, INPUT)
    df = feed.stream().withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "5 seconds")

    def transform(grouped: Any) -> DataFrame:
        result: DataFrame = getattr(grouped, method)(
            kind("EventTime"), OUTPUT, "Update", "EventTime",
            initialState=initial_state(spark).groupBy("g", "h"),
        )  # fmt: skip
        return result

    # Spark groups by columns only; the service also by expressions.
    native = transform(df.withColumn("upper", F.upper("g")).groupBy("upper", "h"))
    service.enable()
    try:
        ours = transform(df.groupBy(F.upper("g"), "h"))
    finally:
        service.disable()
    with Watched(native, tmp_path / "spark") as left, Watched(ours, tmp_path / "ours") as right:
        play(feed, commands(2, 4, 60, STATE_OPS[::3] + TIMER_OPS, step=8), left, right)
    assert kind.__name__ in service.status()["operators"]
    shown = left.batches()
    check_equal(shown, right.batches())
    assert len(shown) > 5, "no batches without rows"
    assert sum("'timer'" in row for rows in shown.values() for row in rows) > 10
    assert 100 < sum("timer'" not in row for rows in shown.values() for row in rows) < 240


@pytest.mark.soak
@pytest.mark.parametrize("api", ["rows", "pandas"])
def test_processing_time(
    spark: SparkSession, service: StateService, tmp_path: Path, api: str
) -> None:
    """Timers and TTL; both sides in one query, so that batch times are the same."""
    method, kind = APIS[api]
    feed = Feed(spark, tmp_path, INPUT)
    df = feed.stream()

    def transform(grouped: Any, **more: Any) -> DataFrame:
        result: DataFrame = getattr(grouped, method)(
            kind("ProcessingTime", ttl_ms=1500), OUTPUT, "Update", "ProcessingTime",
            initialState=initial_state(spark).groupBy("g", "h"), **more,
        )  # fmt: skip
        return result

    native = transform(df.groupBy("g", "h"))
    ours = transform(service.group_by(df, "g", "h"), name=f"processing-{api}", own_stage=True)
    batches = commands(3, 4, 80, STATE_OPS + TIMER_OPS)
    with Watched(both(native, ours), tmp_path / "check") as watched:
        for at, rows in enumerate(batches):
            feed.add(rows)
            # Spark always wants another batch, so that there is no end to wait for.
            wait_for(partial(has_seen, watched, 2 * 80 * (at + 1)), watched)
    shown = check_sides(watched)
    assert sum("'timer'" in row for rows in shown.values() for row in rows) > 10


def has_seen(watched: Watched, commands: int) -> bool:
    batches = list(watched.rows.values())
    return sum(1 for rows in batches for row in rows if row["op"] != "timer") == commands
