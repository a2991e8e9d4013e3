"""The planner, and one run against Spark's own transformWithState."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    ParseException,
    PySparkRuntimeError,
    PySparkTypeError,
)
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues
from tests.unit.processor.rows.processors import Counter
from tests.unit.processor.rows.support import MemoryTransaction, Service

from anabranch.errors import InvalidArgument, ProcessorError
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.contract import BatchTimes, RowChunk
from anabranch.spark.stateful import grouping_of, plan_transform_with_state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KC = "k long, c long"


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    return spark.range(6).select("id", (F.col("id") % 2).cast("string").alias("v"))


def plan(frame: DataFrame, processor: StatefulProcessor | None = None, **options: Any) -> Any:
    arguments: dict[str, Any] = {
        "keys": ["id"],
        "statefulProcessor": processor or Counter(),
        "outputStructType": KC,
        "outputMode": "Update",
        "timeMode": "None",
        **options,
    }
    return plan_transform_with_state(frame, **arguments)


def test_a_plan(frame: DataFrame) -> None:
    found = plan(frame)
    assert found.input.columns == [HASH, "id", "v"]
    hashes = frame.select(F.xxhash64("id")).collect()
    assert found.input.select(HASH).collect() == hashes
    assert found.output_schema.simpleString() == "struct<k:bigint,c:bigint>"
    assert found.definition.rows.key_at == (0,)
    assert found.definition.output_schema.names == ["k", "c"]
    assert found.time_mode == "none"
    description = found.definition.description
    assert json.loads(json.dumps(description)) == description
    copied = pickle.loads(pickle.dumps(found.definition))
    assert copied.description == description
    copied.open(KeySpace()).close()


def test_grouping_expressions(frame: DataFrame) -> None:
    parity = (F.col("id") % 2).alias("parity")
    found_frame, keys = grouping_of(frame.groupBy("v", parity, F.length("v") + 1, frame.id))
    found = plan(found_frame, keys=keys)
    assert found.input.columns == [HASH, "id", "v", "__key1", "__key2"]
    assert found.definition.rows.names == ("id", "v")
    assert found.definition.rows.key_at == (1, 2, 3, 0)
    assert found.definition.key_schema.names == ["v", "parity", "(length(v) + 1)", "id"]
    want = frame.select(F.xxhash64("v", parity, F.length("v") + 1, "id")).collect()
    assert found.input.select(HASH).collect() == want


def test_no_grouping_and_equal_names(frame: DataFrame) -> None:
    assert plan(frame, keys=[]).input.select(HASH).distinct().collect() == [(0,)]
    twice = frame.select("v", frame.v, "id")
    found = plan(twice)
    assert found.definition.rows.names == ("v", "v", "id")
    assert found.input.count() == 6


def test_watermark_and_event_time_column(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load().withWatermark("timestamp", "3 seconds")
    options: dict[str, Any] = {
        "keys": ["value"],
        "outputStructType": "k long, at timestamp",
        "timeMode": "EventTime",
        "eventTimeColumnName": "at",
    }
    found = plan(stream, **options)
    assert found.watermark_delay_ms == 3000
    assert found.event_time_column == "at"
    assert found.time_mode == "eventtime"
    assert found.definition.rows.event_time_at == 0
    with pytest.raises(AnalysisException):
        plan(stream, **{**options, "eventTimeColumnName": "nowhere"})
    # Outside event time mode, Spark drops no late rows.
    options = {**options, "timeMode": "ProcessingTime", "eventTimeColumnName": ""}
    assert plan(stream, **options).definition.rows.event_time_at is None


def test_initial_state(frame: DataFrame) -> None:
    found = plan(frame, initialState=frame.groupBy("id"))
    assert found.initial is not None
    assert found.initial.columns == [HASH, "id", "v"]
    assert found.definition.initial.key_at == (0,)
    also = plan(frame, initialState=(frame, [F.col("id") + 1]))
    assert also.definition.initial.key_at == (2,)
    with pytest.raises(InvalidArgument, match="Cast the keys"):
        plan(frame, initialState=frame.groupBy("v"))
    with pytest.raises(PySparkTypeError):
        plan(frame, initialState=frame)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"outputMode": "sideways"}, IllegalArgumentException),
        ({"timeMode": "sometimes"}, IllegalArgumentException),
        ({"eventTimeColumnName": "c"}, AnalysisException),
        ({"outputStructType": "k longg"}, ParseException),
        ({"outputStructType": "long"}, PySparkTypeError),
        ({"keys": ["nowhere"]}, AnalysisException),
        ({"statefulProcessor": 5}, PySparkTypeError),
    ],
)
def test_bad_arguments(frame: DataFrame, options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        plan(frame, **options)


class Initial(Counter):
    """A processor whose `init` is a given function."""

    def __init__(self, body: Callable[[Any], Any]) -> None:
        self.body = body

    def init(self, handle: Any) -> None:
        self.body(handle)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda handle: handle.getValueState("x", "c longg"), ParseException),
        (lambda handle: handle.getValueState("x", "c long", 5), PySparkRuntimeError),
        (lambda handle: handle.registerTimer(5), PySparkRuntimeError),
        (lambda handle: 1 // 0, ProcessorError),
    ],
)
def test_bad_processors(frame: DataFrame, body: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        plan(frame, Initial(body))


def test_a_processor_that_cannot_be_pickled(frame: DataFrame) -> None:
    processor = Counter()
    processor.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(pickle.PicklingError):
        plan(frame, processor)


def test_reserved_column(frame: DataFrame) -> None:
    with pytest.raises(InvalidArgument, match="reserved"):
        plan(frame.withColumnRenamed("v", HASH))


class Diary(StatefulProcessor):
    """Writes down everything it sees."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long, last timestamp")
        self.items = handle.getListState("items", "v double")
        self.map = handle.getMapState("map", "v double", "n long, s struct<a:int,b:string>")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        for row in rows:
            count = self.count.get()
            self.count.update(((count[0] if count else 0) + 1, row.at))
            self.items.appendValue((row.v,))
            self.map.updateValue((row.v,), (row.v and int(row.v), Row(a=1, b="x")))
            yield Row(text=f"row {key} {row} {type(row.at).__name__}")
            self.handle.registerTimer(int(row.v) * 1000)
        yield Row(text=f"state {key} {self.seen()} {timerValues.getCurrentWatermarkInMs()}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        expiry_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield Row(text=f"timer {key} {expiry_ms} {self.seen()}")
        if expiry_ms == 10_000:
            self.count.clear()
            self.map.clear()
            self.items.put([(0.5,)])

    def seen(self) -> Any:
        return (
            self.count.get(), list(self.items.get()), sorted(self.map.iterator()),
            self.map.getValue((10.0,)), sorted(self.handle.listTimers()),
        )  # fmt: skip


SCHEMA = "k string, at timestamp, v double, s struct<a:int,t:timestamp>, m map<string,int>"
BATCHES: list[list[tuple[str, int, float]]] = [
    [("a", 10, 10.0), ("b", 5, 5.5), ("a", 11, 11.0)],
    [("a", 3, 9.0), ("c", 12, 30.0)],
    [("a", 11, 1.0), ("b", 12, 1.0), ("c", 15, 15.0)],
    [("d", 40, 40.0)],
]


def rows_of(batch: list[tuple[str, int, float]]) -> list[dict[str, Any]]:
    return [
        {
            "k": k, "at": f"1970-01-01T00:00:{at:02d}.000Z", "v": v,
            "s": {"a": at, "t": "2020-01-01T00:00:00Z"}, "m": {"x": at},
        }
        for k, at, v in batch
    ]  # fmt: skip


def by_spark(spark: SparkSession, folder: Path) -> list[list[str]]:
    stream = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", 1)
        .json(str(folder))
        .withWatermark("at", "0 seconds")
    )
    found: list[list[str]] = []
    query = (
        stream.groupBy("k")
        .transformWithState(Diary(), "text string", "Update", "EventTime")
        .writeStream.outputMode("Update")
        .foreachBatch(lambda frame, _: found.append(sorted(row[0] for row in frame.collect())))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return found


def by_us(spark: SparkSession, folder: Path) -> list[list[str]]:
    stream = spark.readStream.schema(SCHEMA).json(str(folder)).withWatermark("at", "0 seconds")
    options: dict[str, Any] = {"keys": ["k"], "outputStructType": "text string"}
    definition = plan(stream, Diary(), timeMode="EventTime", **options).definition
    worker = Service(definition)
    found = []
    late_ms = watermark_ms = highest_ms = 0
    for number in range(len(BATCHES) + 1):
        chunks = []
        if number < len(BATCHES):
            static = spark.read.schema(SCHEMA).json(str(folder / f"{number}.json"))
            table = plan(static, Diary(), timeMode="EventTime", **options).input.toArrow()
            chunks = [RowChunk(tuple(worker.states), table)]
            highest_ms = max(highest_ms, *(at * 1000 for _, at, _ in BATCHES[number]))
        times = BatchTimes(1, watermark_ms, late_ms)
        tx = MemoryTransaction(number, tuple(worker.states), times, chunks, [])
        for state in worker.states.values():
            state.begin()
        worker.engine.apply(tx, worker.states)
        found.append(sorted(text for table in tx.outputs for text in table["text"].to_pylist()))
        late_ms, watermark_ms = watermark_ms, highest_ms
    return found


@pytest.mark.slow
def test_like_spark(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("google.protobuf", reason="Spark's own operator needs it")
    import os

    for number, batch in enumerate(BATCHES):
        path = tmp_path / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, rows_of(batch))))
        os.utime(path, (1_000_000 + number, 1_000_000 + number))
    ours = by_us(spark, tmp_path)
    theirs = by_spark(spark, tmp_path)
    assert len(theirs) > len(BATCHES)
    # `toArrow` says UTC where `mapInArrow` says the session's time zone.
    zone = str(spark.conf.get("spark.sql.session.timeZone"))
    ours = [[text.replace("key='UTC'", f"key='{zone}'") for text in batch] for batch in ours]
    assert ours[: len(theirs)] == theirs
