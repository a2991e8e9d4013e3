"""From Spark's own operators to the service and back: state, offsets and outputs go on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import Feed, Watched, plain

import anabranch
from anabranch import StateService, agg
from anabranch.errors import InvalidArgument, StateMismatch
from anabranch.spark.checkpoint_folder import Checkpoint

ONCE = {"once": True}
"""With processing time, availableNow never ends."""
ALL = {"availableNow": True}

SCHEMA = "k string, v long, d double, t double"
FIRST: list[list[dict[str, Any]]] = [
    [{"k": "a", "v": 1, "d": 1.5, "t": 1}, {"k": "b", "v": 2, "d": 2.5, "t": 2}],
    [{"k": "a", "v": 3, "d": -1, "t": 30}, {"k": None, "v": None, "t": 31}],
]
NEXT: list[list[dict[str, Any]]] = [
    [{"k": "a", "v": 10, "d": 4, "t": 31}, {"k": "c", "v": 5, "d": 0.5, "t": 58}],
    [{"k": "b", "v": 6, "d": 4, "t": 90}],
]
FAR_FUTURE_MS = 4_102_444_800_000
DAY_MS = 86_400_000


class Keeper(StatefulProcessor):
    """Every kind of state variable, with and without TTL, and a timer that is far away."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._value = handle.getValueState("value", "v long, at timestamp")
        self._list = handle.getListState("list", "v long")
        self._map = handle.getMapState("map", "v long, s string", "n int")
        self._value_ttl = handle.getValueState("value_ttl", "v long", DAY_MS)
        self._list_ttl = handle.getListState("list_ttl", "v long", DAY_MS)
        self._map_ttl = handle.getMapState("map_ttl", "v long", "n int", DAY_MS)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            self._value.update((row.v, row.ts))
            self._list.appendValue((row.v,))
            self._map.updateValue((row.v, key[0]), (1,))
            self._value_ttl.update((row.v,))
            self._list_ttl.appendValue((row.v,))
            self._map_ttl.updateValue((row.v,), (2,))
            self._handle.registerTimer(FAR_FUTURE_MS + (row.v or 0))
        seen = [list(state.get()) for state in (self._list, self._list_ttl)]
        maps = [sorted(map(str, state.iterator())) for state in (self._map, self._map_ttl)]
        timers = sorted(self._handle.listTimers())
        told = (self._value.get(), self._value_ttl.get(), seen, maps, timers)
        yield Row(k=key[0], told=repr(plain(told)))


EXPIRING = ("value_ttl", "list_ttl", "map_ttl")


@dataclass
class Case:
    """A query on Spark's operators and on ours."""

    spark: Callable[[DataFrame], DataFrame]
    ours: Callable[[StateService, DataFrame], DataFrame]
    mode: str
    trigger: Mapping[str, Any]


def keeper_on_spark(df: DataFrame) -> DataFrame:
    return df.groupBy("k").transformWithState(
        Keeper(), "k string, told string", "Update", "ProcessingTime"
    )


def keeper_on_us(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").transformWithState(
        Keeper(), "k string, told string", "Update", "ProcessingTime", name="it"
    )


AGGREGATES: dict[str, Any] = {
    "n": agg.count(),
    "some": agg.count("v"),
    "total": agg.sum("v"),
    "doubles": agg.sum("d"),
    "mean": agg.avg("v"),
    "least": agg.min("k"),
    "most": agg.max("ts"),
    "short": agg.sum("short_decimal"),
    "short_mean": agg.avg("short_decimal"),
    "long": agg.sum("long_decimal"),
    "long_mean": agg.avg("long_decimal"),
    "first": agg.first("v"),
    "last": agg.last("v", ignore_nulls=True),
    "distinct": agg.approx_count_distinct("v", 0.2),
}


def on_spark(*keys: Any) -> Callable[[DataFrame], DataFrame]:
    def query(df: DataFrame) -> DataFrame:
        return df.groupBy(*keys).agg(*(a.spark().alias(n) for n, a in AGGREGATES.items()))

    return query


def on_us(window: Any, mode: str) -> Callable[[StateService, DataFrame], DataFrame]:
    def query(service: StateService, df: DataFrame) -> DataFrame:
        grouped = service.group_by(df, "k", window=window)
        return grouped.aggregate(name="it", outputMode=mode, **AGGREGATES)

    return query


CASES = {
    "rows": Case(keeper_on_spark, keeper_on_us, "update", ONCE),
    "totals": Case(on_spark("k"), on_us(None, "update"), "update", ALL),
    "windows": Case(
        lambda df: on_spark(F.window("ts", "10 seconds"), "k")(df).select(
            "k", "window", *AGGREGATES
        ),
        on_us(agg.tumbling("ts", "10 seconds"), "append"),
        "append",
        ALL,
    ),
    "sessions": Case(
        lambda df: on_spark("k", F.session_window("ts", "5 seconds"))(df).withColumnRenamed(
            "session_window", "window"
        ),
        on_us(agg.session("ts", "5 seconds"), "append"),
        "append",
        ALL,
    ),
}

QUICK = ("windows",)
"""All aggregates, ticks, a batch that runs again; the others take longer than CI has."""


def timed(feed: Feed) -> DataFrame:
    df = feed.stream().selectExpr(
        "*",
        "timestamp_seconds(t) ts",
        "cast(d as decimal(6, 2)) short_decimal",
        "cast(d as decimal(20, 3)) long_decimal",
    )
    return df.withWatermark("ts", "10 seconds")


def add(feed: Feed, case: Case, batches: list[list[dict[str, Any]]]) -> None:
    """As batches of their own, or as the one that the trigger allows."""
    for rows in [list(chain(*batches))] if case.trigger is ONCE else batches:
        feed.add(rows)


def run(df: DataFrame, checkpoint: Path, case: Case) -> Watched:
    watched = Watched(df, checkpoint, case.mode, case.trigger)
    watched.finish()
    return watched


def not_empty(watched: Watched) -> list[list[str]]:
    """The rows of each batch; Spark runs more batches without rows than are needed here."""
    return [rows for rows in watched.batches().values() if rows]


def of_spark(spark: SparkSession, checkpoint: Path, **options: Any) -> list[str]:
    found = spark.read.format("statestore").options(**options).load(str(checkpoint))
    return sorted(repr(plain(row)) for row in found.drop("partition_id").collect())


def of_ours(spark: SparkSession, location: Path, **options: Any) -> list[str]:
    found = spark.read.format("anabranch").options(**options).load(str(location))
    return sorted(repr(plain(row)) for row in found.drop("key_group").collect())


@pytest.mark.filterwarnings("ignore::FutureWarning")  # trigger(once=True)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.soak) for n in CASES]
)
def test_a_query_moves_over(spark: SparkSession, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    feed = Feed(spark, tmp_path, SCHEMA)
    add(feed, case, FIRST)
    old = tmp_path / "old"
    run(case.spark(timed(feed)), old, case)
    if name == "windows":  # as if it had been killed in its last batch, which runs again
        last = max(int(file.name) for file in (old / "commits").glob("[0-9]*"))
        for file in (old / "commits").glob(f"*{last}*"):
            file.unlink()
    shutil.copytree(old, tmp_path / "stays")
    new, location = tmp_path / "new", tmp_path / "state"
    with StateService(spark, str(location), workers=1, key_groups=8, fsync=False) as service:
        result = case.ours(service, timed(feed))
        report = service.import_checkpoint(str(old), to=str(new), result=result)
        assert report.batch_id == max(int(f.name) for f in (old / "commits").glob("[0-9]*"))
        if name == "rows":
            for variable in EXPIRING:  # the outputs below have all but times to live
                options = {"stateVarName": variable, "flattenCollectionTypes": "false"}
                stored = of_spark(spark, old, **options)
                assert of_ours(spark, location, **options) == stored
            assert report.rows["it"] == dict.fromkeys(("value", "value_ttl"), 3) | dict.fromkeys(
                ("list", "list_ttl", "map", "map_ttl", "$timers"), 4
            )
        add(feed, case, NEXT)
        ours = run(result, new, case)
    spark_goes_on = run(case.spark(timed(feed)), tmp_path / "stays", case)
    assert sum(map(len, ours.rows.values())) >= 3
    assert not_empty(ours) == not_empty(spark_goes_on)


def test_what_does_not_fit_is_refused_and_nothing_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path, SCHEMA)
    feed.add(FIRST[0])
    df = timed(feed)
    totals = df.groupBy("k").agg(F.count("*"), F.sum("v"), F.stddev("d"))
    old, new = tmp_path / "old", tmp_path / "new"
    Watched(totals, old, "update", ALL).finish()
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
        defined = {
            "swapped": service.group_by(df, "k").aggregate(
                t=agg.sum("v"), n=agg.count(), name="swapped"
            ),
            "less": service.group_by(df, "k").aggregate(n=agg.count(), t=agg.sum("v"), name="less"),
            "other key": service.group_by(df, "v").aggregate(n=agg.count(), name="other key"),
            "windowed": service.group_by(df, "k", window=agg.tumbling("ts", "5 seconds")).aggregate(
                n=agg.count(), name="windowed"
            ),
            "session": service.group_by(df, "k", window=agg.session("ts", "5 seconds")).aggregate(
                n=agg.count(), name="session"
            ),
            "rows": keeper_on_us(service, df),
        }

        def attempt(name: str, kind: type[Exception], message: str, **changed: Any) -> None:
            known = "it" if name == "rows" else name
            given: dict[str, Any] = {
                "checkpoint": str(old),
                "to": str(new),
                "result": defined[name],
            }
            given |= {"operators": {known: 0}, **changed}
            with pytest.raises(kind, match=message):
                service.import_checkpoint(**given)

        attempt("swapped", StateMismatch, r"keeps \(count: bigint, sum: bigint, n: double.*order")
        attempt("less", StateMismatch, "functions other than those of anabranch.agg")
        attempt("other key", StateMismatch, "Group by the columns of the old query")
        attempt("windowed", StateMismatch, "groups by a window, but the checkpoint's key has none")
        attempt("session", StateMismatch, "sessionWindowStateStoreSaveExec")
        attempt("rows", StateMismatch, "operator is stateStoreSave")
        attempt("less", InvalidArgument, "Say which operator is which", operators=None)
        attempt("less", InvalidArgument, "is not defined yet", operators={"nobody": 0})
        attempt("less", InvalidArgument, "needs its counterpart", operators={"less": 1})
        attempt("less", InvalidArgument, "exists. Give a new folder", to=str(tmp_path))
        attempt("less", InvalidArgument, "is not the checkpoint", checkpoint=str(tmp_path))
        running = str(tmp_path / "running")
        noop = spark.readStream.format("rate").load().writeStream.format("noop")
        query = noop.option("checkpointLocation", running).start()
        try:
            attempt("less", InvalidArgument, "is running.*Stop it first", checkpoint=running)
        finally:
            query.stop()
        assert not new.exists()
        assert not list((tmp_path / "state").rglob("manifests/*"))


def test_sources_keep_their_offsets_beside_ticks(spark: SparkSession, tmp_path: Path) -> None:
    left, right = (Feed(spark, tmp_path / side, SCHEMA) for side in ("left", "right"))
    files = {
        "metadata": '{"id":"902df077-7c54-4082-b224-1db1aa740d79"}',
        "offsets/2": 'v1\n{"batchWatermarkMs":1}\n-\n{"logOffset":6}',
        "offsets/3": 'v1\n{"batchWatermarkMs":2}\n{"logOffset":4}\n{"logOffset":7}',
        "offsets/4": 'v1\n{"batchWatermarkMs":3}\n{"logOffset":5}\n{"logOffset":7}',
        "commits/2": 'v1\n{"nextBatchWatermarkMs":2}',
        "commits/3": 'v1\n{"nextBatchWatermarkMs":3}',
        "sources/0/0": "of the left",
        "sources/1/0": "of the right",
    }
    for name, content in files.items():
        path = tmp_path / "old" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
        window = agg.tumbling("ts", "10 seconds")
        results = [
            service.group_by(timed(feed), "k", window=window).aggregate(
                n=agg.count(), name=name, own_stage=True
            )
            for feed, name in ((left, "left"), (right, "right"))
        ]
        old = Checkpoint(spark, str(tmp_path / "old"))
        with pytest.raises(InvalidArgument, match="had 2 sources, the new one has 1"):
            old.copy_for(results[0], Checkpoint(spark, str(tmp_path / "new")))
        old.copy_for(results[0].union(results[1]), Checkpoint(spark, str(tmp_path / "new")))
    new = tmp_path / "new"
    tick = '{"tick": 0}'
    assert (new / "offsets/2").read_text().splitlines()[2:] == ["-", tick, '{"logOffset":6}', tick]
    assert (new / "offsets/4").read_text().splitlines()[1:] == [
        *('{"batchWatermarkMs":3}', '{"logOffset":5}', tick, '{"logOffset":7}', tick)
    ]
    assert (new / "sources/0/0").read_text() == "of the left"
    assert (new / "sources/2/0").read_text() == "of the right"
    assert (new / "commits/3").read_text() == files["commits/3"]
    assert (new / "metadata").read_text() == files["metadata"]


PATHS = (
    *("orders", "more-orders", "checkpoint", "checkpoint-2", "checkpoint-3"),
    *("out", "out-3", "state/orders", "counts.parquet"),
)


def write_orders(folder: Path, name: str, *keys: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(f'{{"k": {key}}}' for key in keys))


def test_the_page_about_it(spark: SparkSession, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
    for path in PATHS:
        page = page.replace(f'"{path}"', repr(str(tmp_path / path)))
    old, over, back, table = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    namespace: dict[str, Any] = {"__name__": "__main__", "spark": spark}
    write_orders(tmp_path / "orders", "0.json", 1, 1, 2)
    exec(old, namespace)
    write_orders(tmp_path / "orders", "1.json", 1, 3)
    try:
        exec(over, namespace)
    finally:
        namespace["service"].stop()
    write_orders(tmp_path / "more-orders", "2.json", 2, 3, 4)
    exec(back, namespace)
    exec(table, namespace)

    def read(name: str) -> list[tuple[int, int]]:
        found = spark.read.schema("k long, c long").json(str(tmp_path / name))
        return sorted((row.k, row.c) for row in found.collect())

    # Nothing is lost, nothing is there twice.
    assert read("out") == [(1, 2), (1, 3), (2, 1), (3, 1)]
    assert read("out-3") == [(2, 2), (3, 2), (4, 1)]
    exported = spark.read.parquet(str(tmp_path / "counts.parquet")).collect()
    assert sorted(tuple(row) for row in exported) == [(1, 3), (2, 1), (3, 1)]
    offsets = anabranch.source_offsets(spark, str(tmp_path / "checkpoint-2"))
    assert offsets == ['{"logOffset":1}']
