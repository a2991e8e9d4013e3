"""The same mistakes give the same errors on the service as on Spark."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.errors import PySparkException, PySparkTypeError, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import Feed, Watched, both, check_sides, play, wait_for

from anabranch import StateService

SHOWN = "name string, outcome string"
ONCE = {"processingTime": "1 hour"}

VALUES: dict[str, tuple[str, Any]] = {
    "number as text": ("string", 5),
    "text as bytes": ("binary", "ab"),
    "long fraction": ("decimal(10,2)", decimal.Decimal("1.239")),
    "moment as day": ("date", datetime.datetime(2024, 1, 2, 3)),  # noqa: DTZ001
    "aware": (
        "timestamp",
        datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    ),
    "naive": ("timestamp", datetime.datetime(2024, 1, 2, 3, 4, 5)),  # noqa: DTZ001
    "numpy": ("long", np.int64(7)),
    "numpy flag": ("boolean", np.bool_(True)),
    "list as struct": ("struct<a: int, b: string>", [1, "x"]),
    "part of a struct": ("struct<a: int, b: string>", {"b": "x"}),
    "row as struct": ("struct<a: int, b: string>", Row(a=1, b="x")),
    "tuple as array": ("array<int>", (1, 2)),
}
"""Values that are not quite of the declared type; Spark takes them."""


class Telling(StatefulProcessor):
    """Tries things and tells what came of it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for name, attempt in self.attempts().items():
            try:
                outcome = repr(attempt())
            except Exception as error:
                outcome = f"{type(error).__name__}: {error}"
            yield Row(name=name, outcome=outcome)

    def attempts(self) -> dict[str, Callable[[], Any]]:
        raise NotImplementedError


class Sloppy(Telling):
    """Mistakes after which Spark goes on."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._value = handle.getValueState("value", "n long")
        self._list = handle.getListState("list", "n long")
        self._values = {
            name: handle.getValueState(f"v{at}", f"x {kind}")
            for at, (name, (kind, _)) in enumerate(VALUES.items())
        }

    def _keep(self, name: str) -> Any:
        self._values[name].update((VALUES[name][1],))
        return self._values[name].get()

    def attempts(self) -> dict[str, Callable[[], Any]]:
        bad: Any = None
        return {
            "not a tuple": lambda: self._value.update(5),  # type: ignore[arg-type]
            "no value": lambda: self._value.update(bad),
            "not a list": lambda: self._list.put(5),  # type: ignore[arg-type]
            "no element": lambda: self._list.appendValue(bad),
            "timer of text": lambda: self._handle.registerTimer("x"),  # type: ignore[arg-type]
            "timer of a fraction": lambda: self._handle.deleteTimer(1.5),  # type: ignore[arg-type]
            **{name: (lambda name=name: self._keep(name)) for name in VALUES},  # type: ignore[misc]
        }


class Deleting(Telling):
    """Uses state variables that it has deleted, after it has defined them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("kept", "n long")
        self._value = handle.getValueState("value", "n long")
        self._list = handle.getListState("list", "n long")
        self._map = handle.getMapState("map", "s string", "n long")
        for name in ("value", "list", "map"):
            handle.deleteIfExists(name)

    def attempts(self) -> dict[str, Callable[[], Any]]:
        return {
            "kept": self._kept.get,
            "keep": lambda: self._kept.update((1,)),
            "value.exists": self._value.exists,
            "value.get": self._value.get,
            "value.update": lambda: self._value.update((1,)),
            "value.clear": self._value.clear,
            "list.exists": self._list.exists,
            "list.get": lambda: list(self._list.get()),
            "list.put": lambda: self._list.put([(1,)]),
            "list.append": lambda: self._list.appendValue((1,)),
            "list.extend": lambda: self._list.appendList([(1,)]),
            "list.clear": self._list.clear,
            "map.exists": self._map.exists,
            "map.get": lambda: self._map.getValue(("a",)),
            "map.has": lambda: self._map.containsKey(("a",)),
            "map.put": lambda: self._map.updateValue(("a",), (1,)),
            "map.items": lambda: list(self._map.iterator()),
            "map.keys": lambda: list(self._map.keys()),
            "map.values": lambda: list(self._map.values()),
            "map.remove": lambda: self._map.removeKey(("a",)),
            "map.clear": self._map.clear,
        }


class SignedZeros(Telling):
    """-0.0 and 0.0 in the keys of maps."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._plain = handle.getMapState("plain", "d double", "n long")
        self._pair = handle.getMapState("pair", "d float, s string", "n long")
        self._deep = handle.getMapState("deep", "d struct<d: double>", "n long")

    def attempts(self) -> dict[str, Callable[[], Any]]:
        plain, pair, deep = self._plain, self._pair, self._deep
        return {
            "0 before": lambda: sorted(map(repr, plain.iterator())),
            "1 put": lambda: plain.updateValue((-0.0,), (1,)),
            "2 keys": lambda: list(plain.keys()),
            "3 get 0.0": lambda: plain.getValue((0.0,)),
            "4 get -0.0": lambda: plain.getValue((-0.0,)),
            "5 put 0.0": lambda: plain.updateValue((0.0,), (2,)),
            "6 items": lambda: sorted(map(repr, plain.iterator())),
            "7 remove 0.0": lambda: plain.removeKey((0.0,)),
            "8 items": lambda: list(plain.iterator()),
            "9 put": lambda: pair.updateValue((-0.0, "x"), (1,)),
            "a keys": lambda: list(pair.keys()),
            "b put": lambda: deep.updateValue((Row(d=-0.0),), (1,)),
            "c keys": lambda: list(deep.keys()),
            "d get": lambda: (deep.getValue((Row(d=0.0),)), deep.containsKey((Row(d=-0.0),))),
        }


class Broken(Telling):
    """Mistakes at which Spark's query breaks, often without a word why."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._value = handle.getValueState("value", "n long, s string")
        self._list = handle.getListState("list", "n long")
        self._map = handle.getMapState("map", "s string", "n long")

    def attempts(self) -> dict[str, Callable[[], Any]]:
        return {
            "INVALID_HANDLE_STATE": lambda: self._handle.getListState("late", "n long"),
            "INVALID_TIME_MODE": lambda: self._handle.registerTimer(1),
            "EMPTY_LIST_VALUE": lambda: self._list.put([]),
            "LENGTH_MISMATCH": lambda: self._value.update((1,)),
            # Spark stores null instead of these.
            "DATA_TYPE_UNACCEPTABLE": lambda: self._value.update(("x", "y")),
            "bigint can not accept": lambda: self._map.updateValue(("a",), ("x",)),
        }


class Odd(Telling):
    """Rows and frames whose fields are not quite those of the output schema."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        yield Row(outcome="other order", name="a")
        yield Row(name="more fields", outcome="b", extra=1)
        yield Row(name="fewer fields")
        yield Row(other="no field")
        yield Row("outcome", "name")("row class", "c")
        yield Row("extra", "outcome", "name")(1, "row class with more", "d")
        yield Row("name", "outcome")("row class with fewer")


class OddFrames(Telling):
    """The same with frames; Spark refuses those without a field."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield pd.DataFrame({"outcome": ["other order"], "name": ["a"]})
        yield pd.DataFrame({"extra": [1], "name": ["more columns"], "outcome": ["b"]})
        yield pd.DataFrame([["more by position", "c", "d"]])
        yield pd.DataFrame(index=[0])


class Wrong(StatefulProcessor):
    """Fails in the way it is told to."""

    def __init__(self, way: str) -> None:
        self._way = way

    def init(self, handle: StatefulProcessorHandle) -> None:
        if self._way == "ttl":
            handle.getValueState("v", "n long", 1000)
        if self._way == "schema":
            handle.getValueState("v", "n longer")
        if self._way == "init":
            raise RuntimeError("no init today")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        if self._way == "raise":
            raise RuntimeError("no rows today")
        if self._way == "columns":
            yield pd.DataFrame({"name": ["x"], "other": ["y"]})
        yield Row(name=object(), outcome="x") if self._way == "type" else 5


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=1, fsync=False) as service:
        yield service


@pytest.fixture
def df(spark: SparkSession, tmp_path: Path) -> DataFrame:
    feed = Feed(spark, tmp_path, "k string, t double")
    feed.add([{"k": "a", "t": 1.5}])
    return feed.stream()


@pytest.mark.soak
def test_sloppy_processor(service: StateService, df: DataFrame, tmp_path: Path) -> None:
    arguments = (Sloppy(), SHOWN, "Update", "ProcessingTime")
    native = df.groupBy("k").transformWithState(*arguments)
    ours = service.group_by(df, "k").transformWithState(*arguments, name="sloppy", own_stage=True)
    with Watched(both(native, ours), tmp_path / "check", trigger=ONCE) as watched:
        wait_for(lambda: bool(watched.rows), watched)
    shown = check_sides(watched)[0]
    assert len(shown) == len(VALUES) + 6
    assert sum("TypeError" in row for row in shown) == 6


@pytest.mark.parametrize("processor", [Deleting(), SignedZeros()], ids=["deleted", "zeros"])
def test_corners_of_state(
    spark: SparkSession, service: StateService, tmp_path: Path, processor: Telling
) -> None:
    feed = Feed(spark, tmp_path, "k string")
    df = feed.stream()
    name = type(processor).__name__
    arguments = (processor, SHOWN, "Update", "None")
    native = df.groupBy("k").transformWithState(*arguments)
    ours = service.group_by(df, "k").transformWithState(*arguments, name=name, own_stage=True)
    with Watched(both(native, ours), tmp_path / "check") as watched:
        play(feed, [[{"k": "a"}]] * 2, watched)
    shown = check_sides(watched)
    assert [len(rows) for rows in shown.values()] == [len(watched.rows[0]) // 2] * 2
    assert any("-0.0" in row or "not initialized" in row for row in shown[1])


@pytest.mark.parametrize("api", ["rows", "frames"])
def test_odd_outputs(service: StateService, df: DataFrame, tmp_path: Path, api: str) -> None:
    """Fields go by name, missing ones are null, undeclared ones are dropped silently."""
    arguments = (Odd() if api == "rows" else OddFrames(), SHOWN, "Update", "None")
    method = "transformWithState" + ("InPandas" if api == "frames" else "")
    native = getattr(df.groupBy("k"), method)(*arguments)
    ours = getattr(service.group_by(df, "k"), method)(*arguments, name=f"odd {api}", own_stage=True)
    with Watched(both(native, ours), tmp_path / "check", trigger=ONCE) as watched:
        wait_for(lambda: bool(watched.rows), watched)
    assert len(check_sides(watched)[0]) == (7 if api == "rows" else 4)


def test_broken_processor(service: StateService, df: DataFrame, tmp_path: Path) -> None:
    result = service.group_by(df, "k").transformWithState(Broken(), SHOWN, "Update", "None")
    with Watched(result, tmp_path / "check") as watched:
        watched.query.processAllAvailable()
    outcomes = {row["name"]: row["outcome"] for row in watched.rows[0]}
    assert len(outcomes) == 6
    for condition, outcome in outcomes.items():
        assert condition in outcome
        assert outcome.startswith("PySpark")


def failure(df: DataFrame, checkpoint: Path) -> str:
    with pytest.raises(StreamingQueryException) as caught, Watched(df, checkpoint) as watched:
        watched.query.processAllAvailable()
    return str(caught.value)


def test_failing_processors(service: StateService, df: DataFrame, tmp_path: Path) -> None:
    """The query fails and says why; the service goes on."""
    arguments = (SHOWN, "Update", "None")
    native = df.groupBy("k").transformWithState(Wrong("raise"), *arguments)
    assert "no rows today" in failure(native, tmp_path / "spark")
    for way, expected in {
        "raise": 'raise RuntimeError("no rows today")',
        "type": "The output column 'name' is declared as string",
        "scalar": "5 (int) where a Row is expected",
    }.items():
        result = service.group_by(df, "k").transformWithState(Wrong(way), *arguments, name=way)
        text = failure(result, tmp_path / way)
        assert expected in text
        assert "STATEFUL_PROCESSOR_FAILED" in text
    result = service.group_by(df, "k").transformWithStateInPandas(
        Wrong("columns"), *arguments, name="columns"
    )
    assert "without the column(s) outcome" in failure(result, tmp_path / "columns")
    pids = [worker["pid"] for worker in service.status()["workers"].values()]
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    assert all(worker["restarts"] <= 1 for worker in service.status()["workers"].values())


def test_mistakes_in_a_definition(
    spark: SparkSession, service: StateService, df: DataFrame
) -> None:
    """Both refuse before a query starts, with the same condition."""
    timed = df.withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "1 second")
    initial = spark.createDataFrame([("a", 1)], "k string, n int")
    right: dict[str, Any] = {
        "statefulProcessor": Wrong(""),
        "outputStructType": SHOWN,
        "outputMode": "Update",
        "timeMode": "None",
    }
    mistakes: dict[str, tuple[DataFrame, str, dict[str, Any]]] = {
        "key": (df, "nope", {}),
        "output mode": (df, "k", {"outputMode": "Completely"}),
        "time mode": (df, "k", {"timeMode": "Sometimes"}),
        "output schema": (df, "k", {"outputStructType": "name strong"}),
        "event time without watermark": (
            df, "k", {"timeMode": "EventTime", "eventTimeColumnName": "name"},
        ),
        "event time column": (
            timed, "k", {"timeMode": "EventTime", "eventTimeColumnName": "nope"},
        ),
    }  # fmt: skip
    operators = service.status()["operators"]
    for name, (frame, key, changes) in mistakes.items():
        found = []
        for group in (frame.groupBy, lambda *keys, frame=frame: service.group_by(frame, *keys)):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                group(key).transformWithState(**{**right, **changes})
            found.append(caught.value)
        assert isinstance(found[1], type(found[0])), f"{name}: {found}"
        native, ours = found
        if isinstance(native, PySparkException) and isinstance(ours, PySparkException):
            assert ours.getCondition() == native.getCondition(), name
    with pytest.raises(PySparkTypeError, match="groupBy"):
        service.group_by(df, "k").transformWithState(**right, initialState=initial)
    assert service.status()["operators"] == operators
