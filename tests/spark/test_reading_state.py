"""State as a DataFrame: every kind of operator and variable, while the service runs."""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import Feed

from anabranch import ColumnarProcessor, KeyedBatch, StateService, Update, agg, register
from anabranch.cli.main import main
from anabranch.errors import CorruptState, EpochGap, InvalidArgument
from anabranch.spark.state_reader import StateReader, StateSelection
from anabranch.spark.state_source import StateSource

SCHEMA = "k string, v long, t double"
ROWS = [
    {"k": "a", "v": 1, "t": 1},
    {"k": "b", "v": 2, "t": 2},
    {"k": "a", "v": 3, "t": 30},
]
MORE = [{"k": "a", "v": 10, "t": 31}]


class Highest(ColumnarProcessor):
    state_schema = pa.schema([pa.field("highest", pa.int64())])

    def process(self, batch: KeyedBatch) -> Update:
        seen = batch.reduce(np.maximum, "v")
        before = batch.state.column("highest").fill_null(0).to_numpy()
        highest = np.maximum(seen, before)
        output = batch.keys.append_column("highest", pa.array(highest))
        return Update(state=pa.table({"highest": highest}), output=output)


class Everything(StatefulProcessor):
    """A variable of each kind, and timers."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._value = handle.getValueState("last", "v long, at timestamp")
        self._list = handle.getListState("seen", "v long")
        self._map = handle.getMapState("sums", "parity string, mod int", "total long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in sorted(rows, key=lambda row: row.t):
            self._value.update((row.v, row.ts))
            self._list.appendValue((row.v,))
            place = ("even" if row.v % 2 == 0 else "odd", row.v % 3)
            total = self._map.getValue(place)
            self._map.updateValue(place, ((total[0] if total else 0) + row.v,))
            self._handle.registerTimer(int(row.t) * 1000 + 100_000)
        yield Row(k=key[0])


def load(spark: SparkSession, location: Path, **options: Any) -> DataFrame:
    return spark.read.format("anabranch").options(**options).load(str(location))


def shown(df: DataFrame) -> list[tuple[Any, ...]]:
    """The rows without their key group, in order."""
    return sorted(tuple(row) for row in df.drop("key_group").collect())


@pytest.fixture(scope="module")
def location(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[StateService, Path]]:
    """A running service with an operator of each kind."""
    folder = tmp_path_factory.mktemp("reading")
    feed = Feed(spark, folder, SCHEMA)
    # One batch, but for the operator that is read as of two.
    df = spark.readStream.schema(SCHEMA).json(str(folder / "input"))
    timed = df.withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "20 seconds")
    window, session = agg.tumbling("ts", "10 seconds"), agg.session("ts", "5 seconds")
    feed.add(ROWS)
    feed.add(MORE)
    with StateService(
        spark, str(folder / "state"), workers=1, key_groups=8, lanes=2, fsync=False
    ) as service:
        results = [
            service.group_by(feed.stream(), "k").aggregate(
                n=agg.count(), total=agg.sum("v"), mean=agg.avg("v"), name="totals"
            ),
            service.group_by(timed, "k", window=window).aggregate(n=agg.count(), name="windows"),
            service.group_by(timed, "k", window=session).aggregate(n=agg.count(), name="sessions"),
            service.group_by(df).aggregate(n=agg.count(), name="all"),
            service.group_by(df, "k").process(Highest(), "k string, highest long", name="highest"),
            service.group_by(timed, "k").transformWithState(
                Everything(), "k string", "Update", "EventTime", name="everything"
            ),
        ]
        # Side by side, a query each: faster than one with six operators.
        queries = [
            result.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(folder / f"check{number}"))
            .start()
            for number, result in enumerate(results)
        ]
        for query in queries:
            query.processAllAvailable()
        yield service, folder / "state"
        for query in queries:
            query.stop()


Location = tuple[StateService, Path]


def test_columnar_operators(spark: SparkSession, location: Location) -> None:
    _, folder = location
    totals = load(spark, folder, operatorName="totals")
    assert totals.schema.simpleString() == (
        "struct<key:struct<k:string>,value:struct<n:struct<count:bigint>,total:struct<sum:bigint>,"
        "mean:struct<sum:double,count:bigint>>,key_group:int>"
    )
    flat = totals.selectExpr("key.k", "value.n.count", "value.total.sum", "value.mean.sum")
    assert shown(flat) == [("a", 3, 14, 14.0), ("b", 1, 2, 2.0)]
    # As of the batch before, and its key group is the one that its hash says.
    before = load(spark, folder, operatorName="totals", batchId=0, numPartitions=3)
    assert before.rdd.getNumPartitions() == 3
    group = F.pmod(F.xxhash64("key.k"), F.lit(8)).cast("int")
    rows = before.select("key.k", "value.n.count", group == F.col("key_group"))
    assert shown(rows) == [("a", 2, True), ("b", 1, True)]
    windows = load(spark, folder, operatorName="windows")
    seconds = windows.selectExpr(
        "key.k", "unix_seconds(key.window.start)", "unix_seconds(key.window.end)", "value.n.count"
    )
    assert shown(seconds) == [("a", 30, 40, 2)]  # the others have closed
    sessions = load(spark, folder, operatorName="sessions").selectExpr(
        "key.k", "unix_seconds(key.window.start)", "unix_seconds(key.window.end)", "value.n.count"
    )
    assert shown(sessions) == [("a", 30, 36, 2)]
    highest = load(spark, folder, operatorName="highest").select("key.k", "value.highest")
    assert shown(highest) == [("a", 10), ("b", 2)]
    everything = load(spark, folder, operatorName="all")
    assert everything.columns == ["value", "key_group"]
    assert shown(everything.select("value.n.count")) == [(4,)]


def test_row_operators(spark: SparkSession, location: Location) -> None:
    _, folder = location

    def rows(*columns: str, **options: Any) -> list[tuple[Any, ...]]:
        found = load(spark, folder, operatorName="everything", **options)
        return shown(found.selectExpr("key.k", *columns))

    last = rows("value.v", "unix_seconds(value.at)", stateVarName="last")
    assert last == [("a", 10, 31), ("b", 2, 2)]
    elements = rows("list_element.v", stateVarName="seen")
    assert elements == [("a", 1), ("a", 3), ("a", 10), ("b", 2)]
    nested = rows("list_value.v", stateVarName="seen", flattenCollectionTypes=False)
    assert nested == [("a", [1, 3, 10]), ("b", [2])]
    entries = rows("user_map_key.parity", "user_map_key.mod", "user_map_value.total",
                   stateVarName="sums")  # fmt: skip
    assert entries == [("a", "even", 1, 10), ("a", "odd", 0, 3), ("a", "odd", 1, 1),
                       ("b", "even", 2, 2)]  # fmt: skip
    maps = rows(
        "cardinality(map_value)", "map_value[struct('even', int(1))].total",
        stateVarName="sums", flattenCollectionTypes=False,
    )  # fmt: skip
    assert [(k, n) for k, n, _ in maps] == [("a", 3), ("b", 1)]
    timers = rows("expiration_timestamp_ms", readRegisteredTimers=True)
    assert timers == [("a", 101_000), ("a", 130_000), ("a", 131_000), ("b", 102_000)]


def test_metadata(spark: SparkSession, location: Location) -> None:
    _, folder = location
    found = spark.read.format("anabranch-metadata").load(str(folder)).collect()
    listed = {(row.operatorName, row.stateVarName): row for row in found}
    assert set(listed) == {
        *((name, "state") for name in ("all", "highest", "sessions", "totals", "windows")),
        *(("everything", name) for name in ("last", "seen", "sums", None)),
    }
    totals = listed["totals", "state"]
    assert totals.stateVarType == "aggregate"
    assert (totals.minBatchId, totals.maxBatchId, totals.batchIds) == (0, 1, [0, 1])
    assert totals.schema == load(spark, folder, operatorName="totals").schema.simpleString()
    assert totals.keyGroups == 8
    assert totals.files > 0
    assert totals.snapshotBytes + totals.changelogBytes > 0
    assert totals.queryId is not None
    assert listed["everything", None].stateVarType == "timers"
    assert listed["everything", "sums"].timeMode == "eventtime"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "several operators: 'all', 'everything', .*option operatorName"),
        ({"operatorName": "nobody"}, "no operator 'nobody'. It has: 'all'"),
        ({"operatorName": "everything"}, "several state variables: 'last', 'seen', 'sums'"),
        ({"operatorName": "everything", "stateVarName": "x"}, "no state variable 'x'"),
        ({"operatorName": "totals", "readRegisteredTimers": True}, "no timers. It has: 'state'"),
        ({"operatorName": "totals", "batchId": 99}, r"can be read: 0 to \d"),
        ({"operatorName": "totals", "batchId": "x"}, "batchId must be a whole number"),
        ({"operatorName": "totals", "flattenCollectionTypes": 1}, "must be true or false"),
        ({"operatorId": 0}, "Operators have names here: use operatorName"),
        ({"readChangeFeed": True}, "Options: operatorName, stateVarName"),
    ],
)
def test_what_is_not_there_is_told(
    location: Location, options: dict[str, Any], message: str
) -> None:
    given = {name: str(value) for name, value in options.items()}
    source = StateSource(CaseInsensitiveDict(given, path=str(location[1])))
    with pytest.raises(InvalidArgument, match=message):
        source.schema()  # without a JVM: each error would take a second there


def test_a_folder_that_is_no_location(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    with pytest.raises(AnalysisException, match="holds no state"):
        load(spark, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_the_command(location: Location, tmp_path: Path, capsys: Any) -> None:
    folder = str(location[1])
    assert main(["state", folder]) == 0
    listing = capsys.readouterr().out
    assert re.search(
        r"^totals  state \(aggregate\)\n  query \S+\n  batches 0 to 1, ", listing, re.M
    )
    assert main(["state", folder, "--operator", "totals", "--batch", "0"]) == 0
    shown, *rows = capsys.readouterr().out.splitlines()
    assert shown.startswith("totals as of batch 0: struct<key:struct<k:string>")
    values = sorted(
        (row["key"]["k"], row["value"]["total"]["sum"]) for row in map(json.loads, rows)
    )
    assert values == [("a", 4), ("b", 2)]
    target = tmp_path / "timers.parquet"
    words = ["state", folder, "--operator", "everything", "--timers", "--export", str(target)]
    assert main(words) == 0
    assert "4 rows of 'everything' as of batch" in capsys.readouterr().out
    exported = pq.read_table(target)
    assert sorted(exported["expiration_timestamp_ms"].to_pylist()) == [
        *(101_000, 102_000, 130_000, 131_000)
    ]
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["timers.parquet"]


def test_a_batch_that_is_removed_while_it_is_read(location: Location, tmp_path: Path) -> None:
    copy = tmp_path / "state"
    shutil.copytree(location[1], copy)
    reader = StateReader(copy, StateSelection("totals", epoch=0))
    again = pickle.loads(pickle.dumps(reader))
    assert sum(table.num_rows for table in again.read(range(8))) == 2
    shutil.rmtree(copy / "operators" / "totals" / "changelog")
    with pytest.raises(CorruptState, match="is missing"):
        list(reader.read(range(8)))
    shutil.rmtree(copy / "operators" / "totals" / "manifests")
    with pytest.raises(EpochGap, match="was removed while it was being read"):
        list(reader.read(range(8)))
