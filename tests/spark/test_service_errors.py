"""Bad input through the service: early, clear errors; nothing is started or changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.processes import workers_alive
from tests.spark.differential import Feed, Watched

from anabranch import StateService, agg
from anabranch.errors import (
    InvalidArgument,
    LocationInUse,
    LocationNotWritable,
    ProcessorError,
    StateMismatch,
)

COUNTS = ("k string, n long", "Update", "None")


class Counting(StatefulProcessor):
    """Counts rows of a key; fails at a value if told so."""

    def __init__(self, fails_at: int | None = None, state: str = "n long") -> None:
        self._fails_at = fails_at
        self._state = state

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", self._state)

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count = (self._count.get() or (0,))[0]
        for row in rows:
            count += 1
            self._count.update((count,))
            if row.v == self._fails_at:
                raise ValueError(f"no {row.v} please")
        yield Row(k=key[0], n=count)


class Unpicklable(Counting):
    """Holds what cannot travel."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()


class FailsAtOnce(Counting):
    """Fails in the driver."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        raise ValueError("no init today")


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        deadline = time.monotonic() + 60
        while len(workers_alive()) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        yield service


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    return Feed(spark, tmp_path, "k string, v long")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"workers": -2}, "workers"),
        ({"workers": 1.5}, "workers"),
        ({"workers": True}, "workers"),
        ({"workers": 9, "key_groups": 8}, "9 workers cannot share 8 key groups"),
        ({"key_groups": 0}, "key_groups"),
        ({"bins": 0}, "bins"),
        ({"lanes": 0}, "lanes"),
        ({"memory_bytes": 5}, "memory_bytes"),
        ({"state": "remote", "checkpoint": "independent"}, 'state="remote" cannot be obeyed'),
        ({"local_dir": "/data"}, "local_dir cannot be obeyed"),
        ({"snapshot_seconds": 30.0}, "snapshot_seconds cannot be obeyed"),
    ],
)
def test_bad_arguments(
    spark: SparkSession, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    before = set(workers_alive())
    with pytest.raises(InvalidArgument, match=message):
        StateService(spark, str(tmp_path / "state"), **arguments)
    assert set(workers_alive()) == before
    assert not (tmp_path / "state").exists()


def test_bad_locations(spark: SparkSession, service: StateService, tmp_path: Path) -> None:
    before = set(workers_alive())
    (tmp_path / "file").write_text("not a folder")
    for location in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(LocationNotWritable, match="file"):
            StateService(spark, str(location))
        new = str(tmp_path / "new")
        with pytest.raises(LocationNotWritable, match="local_dir"):
            StateService(spark, new, backend="rocksdb", local_dir=str(location))
    in_use = repr(service).split("'")[1]
    with pytest.raises(LocationInUse, match="state"):
        StateService(spark, in_use)
    assert set(workers_alive()) == before
    assert (tmp_path / "file").read_text() == "not a folder"
    assert len(service.status()["workers"]) == 2


def test_bad_definitions(spark: SparkSession, service: StateService, feed: Feed) -> None:
    df = feed.stream()
    before = service.status()
    while None in [w["pid"] for w in before["workers"].values()]:  # they start beside us
        time.sleep(0.05)
        before = service.status()
    location = Path(repr(service).split("'")[1])
    files = sorted(location.rglob("*"))
    static = spark.createDataFrame([("a", 1)], "k string, v long")
    grouped = service.group_by(df, "k")
    no_processor: Any = "no processor"
    count: Any = {"n": agg.count()}
    mistakes: list[tuple[type[Exception], str, Any]] = [
        (AnalysisException, "nope",
            lambda: service.group_by(df, "nope").aggregate(**count, name="x")),
        (AnalysisException, "nope", lambda: grouped.aggregate(n=agg.sum("nope"), name="x")),
        (AnalysisException, "nope",
            lambda: service.group_by(df, "nope").transformWithState(Counting(), *COUNTS)),
        (PySparkException, "PARSE_SYNTAX_ERROR",
            lambda: grouped.transformWithState(Counting(), "k string n long", "Update", "None")),
        (PySparkException, "longer",
            lambda: grouped.transformWithState(Counting(state="n longer"), *COUNTS)),
        (PicklingError, "_thread.lock",
            lambda: grouped.transformWithState(Unpicklable(), *COUNTS)),
        (ProcessorError, 'raise ValueError\\("no init today"\\)',
            lambda: grouped.transformWithState(FailsAtOnce(), *COUNTS)),
        (PySparkException, "StatefulProcessor",
            lambda: grouped.transformWithState(no_processor, *COUNTS)),
        (InvalidArgument, "streaming DataFrame",
            lambda: service.group_by(static, "k").aggregate(**count, name="x")),
        (InvalidArgument, "streaming DataFrame",
            lambda: service.group_by(static, "k").transformWithState(Counting(), *COUNTS)),
        (InvalidArgument, "at least one", lambda: grouped.aggregate(name="x")),
        (InvalidArgument, "sideways",
            lambda: grouped.aggregate(**count, name="x", outputMode="sideways")),
        (InvalidArgument, "name", lambda: grouped.aggregate(**count, name="")),
        (InvalidArgument, "is for aggregate",
            lambda: service.group_by(df, "k", window=agg.tumbling("ts", "1 second"))
            .transformWithState(Counting(), *COUNTS)),
    ]  # fmt: skip
    for kind, message, mistake in mistakes:
        with pytest.raises(kind, match=message):
            mistake()
    after = service.status()
    assert after["operators"] == before["operators"]
    assert [w["pid"] for w in after["workers"].values()] == [
        w["pid"] for w in before["workers"].values()
    ]
    assert sorted(location.rglob("*")) == files


def test_failed_batch_changes_nothing(service: StateService, feed: Feed, tmp_path: Path) -> None:
    """After user code failed, the query goes on from the batch before with a mended processor."""
    df = feed.stream()

    def counted(fails_at: int | None) -> DataFrame:
        return service.group_by(df, "k").transformWithState(
            Counting(fails_at), *COUNTS, name="mended"
        )

    feed.add([{"k": "a", "v": 1}, {"k": "b", "v": 2}])
    with Watched(counted(7), tmp_path / "check") as watched:
        watched.query.processAllAvailable()
        # A name that is in use cannot be defined again.
        with pytest.raises(InvalidArgument, match="'mended' is used by the running query"):
            counted(None)
        feed.add([{"k": key, "v": value} for key in "abcdefgh" for value in (3, 7)])
        with pytest.raises(StreamingQueryException, match="no 7 please") as caught:
            watched.query.processAllAvailable()
    assert 'raise ValueError(f"no {row.v} please")' in str(caught.value)
    assert service.status()["operators"]["mended"]["last_epoch"] == 0
    with Watched(counted(None), tmp_path / "check") as watched:
        watched.query.processAllAvailable()
    assert {row.k: row.n for row in watched.rows[1]} == dict.fromkeys("cdefgh", 2) | {
        "a": 3,
        "b": 3,
    }


def test_state_of_another(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    """A location remembers its query, its operators and its key space."""
    df = feed.stream()
    feed.add([{"k": "a", "v": 1}])
    location = str(tmp_path / "state")

    def counted(service: StateService, state: str = "n long") -> DataFrame:
        grouped = service.group_by(df, "k")
        return grouped.transformWithState(Counting(state=state), *COUNTS, name="counted")

    with StateService(spark, location, workers=1, key_groups=8, fsync=False) as service:
        with Watched(counted(service), tmp_path / "check") as watched:
            watched.query.processAllAvailable()
        files = {path: path.stat().st_mtime_ns for path in Path(location).rglob("operators/**/*")}
        with pytest.raises(StateMismatch, match="counted"):
            counted(service, state="n string")
        with (
            pytest.raises(StreamingQueryException, match=r"STATE_LOCATION\.MISMATCH"),
            Watched(counted(service), tmp_path / "other") as other,
        ):
            other.query.processAllAvailable()
        assert not other.rows
    with StateService(spark, location, workers=1, key_groups=16, fsync=False) as service:  # noqa: SIM117
        with pytest.raises(StateMismatch, match="key group"):
            counted(service)
    assert (
        files.items()
        <= {
            path: path.stat().st_mtime_ns for path in Path(location).rglob("operators/**/*")
        }.items()
    )
    with StateService(spark, location, workers=2, key_groups=8, fsync=False) as service:
        feed.add([{"k": "a", "v": 1}])
        with Watched(counted(service), tmp_path / "check") as watched:
            watched.query.processAllAvailable()
    assert [tuple(row) for row in watched.rows[1]] == [("a", 2)]


def test_stopped_service(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    df = feed.stream()
    before = set(workers_alive())
    service = StateService(spark, str(tmp_path / "state"), workers=1, fsync=False)
    result = service.group_by(df, "k").aggregate(n=agg.count(), name="late")
    service.stop()
    service.stop()
    assert not service.is_running
    assert set(workers_alive()) == before
    for use in (
        service.status,
        service.enable,
        lambda: service.group_by(df, "k").aggregate(n=agg.count(), name="x"),
        lambda: service.group_by(df, "k").transformWithState(Counting(), *COUNTS),
    ):
        with pytest.raises(InvalidArgument, match="was stopped"):
            use()
    feed.add([{"k": "a", "v": 1}])
    with (
        pytest.raises(StreamingQueryException, match="STATE_SERVICE_UNAVAILABLE"),
        Watched(result, tmp_path / "check") as watched,
    ):
        watched.query.processAllAvailable()
    # The location is free again.
    StateService(spark, str(tmp_path / "state"), workers=1, fsync=False).stop()


def test_enable_gives_back(spark: SparkSession, service: StateService, feed: Feed) -> None:
    df = feed.stream()

    def plan() -> str:
        counted = df.groupBy("k").transformWithState(Counting(), *COUNTS)
        return str(counted._jdf.queryExecution().analyzed().toString())

    assert "TransformWithState" in plan()
    service.enable()
    service.enable()
    try:
        assert "TransformWithState" not in plan()
        # Static DataFrames stay Spark's.
        static = spark.createDataFrame([("a", 1)], "k string, v long")
        counted = static.groupBy("k").transformWithState(Counting(), *COUNTS)
        assert "TransformWithState" in counted._jdf.queryExecution().analyzed().toString()
    finally:
        service.disable()
    assert "TransformWithState" in plan()
