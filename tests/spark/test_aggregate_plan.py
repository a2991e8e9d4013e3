"""Aggregation through the planner and the engine against Spark's own, on the same rows."""

from __future__ import annotations

import datetime
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from tests.unit.processor.columnar.support import MemoryWorker

from anabranch import agg
from anabranch.agg import Aggregate, Window
from anabranch.errors import InvalidArgument, ProcessorError
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.spark.aggregate import plan_aggregate
from anabranch.spark.plan import OperatorPlan

Row = tuple[Any, ...]


def plain(value: Any) -> Any:
    """A value that can be compared and sorted: doubles to 12 digits, the rest as text."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value + 0.0:.12g}"
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return repr(value.astimezone(datetime.timezone.utc).replace(tzinfo=None))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return repr(value)


def worker_of(plan: OperatorPlan) -> MemoryWorker:
    assert isinstance(plan.definition, ColumnarDefinition)
    return MemoryWorker(plan.definition)


def rows_of(table: Any) -> list[str]:
    return sorted(repr([plain(v) for v in row.values()]) for row in table.to_pylist())


def latest(outputs: Sequence[Any], keys: int) -> list[str]:
    """The last row of each key over several batches of updates."""
    found: dict[str, str] = {}
    for output in outputs:
        for row in output.to_pylist():
            values = [plain(v) for v in row.values()]
            found[repr(values[:keys])] = repr(values)
    return sorted(found.values())


def check(
    df: DataFrame,
    keys: Sequence[Column | str],
    aggregates: Mapping[str, Aggregate],
    window: Window | None = None,
    batches: int = 3,
    exact: Mapping[str, Column] | None = None,
) -> MemoryWorker:
    """Rows in several batches: the last updates are Spark's result; replay gives the same state."""
    df = df.coalesce(1).cache()
    plan = plan_aggregate(df, keys, window, aggregates, "update")
    windows = [] if window is None else [window.spark()]
    reference = df.groupBy(*keys, *windows).agg(
        *((exact or {}).get(n, a.spark()).alias(n) for n, a in aggregates.items())
    )
    types = [(f.dataType, f.nullable) for f in reference.schema.fields]
    assert [(f.dataType, f.nullable) for f in plan.output_schema.fields] == types
    rows = plan.input.toArrow()
    worker = worker_of(plan)
    size = math.ceil(rows.num_rows / batches)
    outputs = [worker.run(rows.slice(i * size, size)) for i in range(batches)]
    for output in outputs:
        assert output.schema.equals(plan.definition.output_schema)
    expected = reference.toArrow()
    assert latest(outputs, len(keys) + len(windows)) == rows_of(expected)
    restored = worker_of(plan)
    for log in worker.logs:
        for group, sections in log.items():
            restored.tables[group].replay(sections)
    assert restored.dump() == worker.dump()
    df.unpersist()
    return worker


VALUES = {
    "byte": "cast(id % 100 as byte)",
    "int": "cast(id * 7919 % 100003 - 50000 as int)",
    "long": "id * 1000003 - 5000",
    "float": "cast(case id % 11 when 0 then 'NaN' when 1 then '-0.0' else id / 7 end as float)",
    "double": "cast(case id % 13 when 0 then 'NaN' when 1 then '-0.0' else id / 7 end as double)",
    "decimal": "cast(id * 31 % 1000 / 7 as decimal(10, 3))",
    "decimal38": "cast(id * 31 % 1000 / 7 as decimal(38, 6))",
}
OTHERS = {
    "string": "concat('s', id * 31 % 97)",
    "binary": "cast(concat('b', id * 31 % 97) as binary)",
    "boolean": "id % 3 = 0",
    "date": "date_add(date'2020-01-01', cast(id % 50 as int))",
    "timestamp": "timestamp'2020-01-01 00:00:00' + make_dt_interval(0, 0, 0, id * 31 % 997)",
    "ntz": "timestamp_ntz'2020-01-01 00:00:00' + make_dt_interval(0, 0, 0, id * 31 % 997)",
    "interval": "make_dt_interval(0, 0, 0, id * 31 % 997)",
    "array": "array(cast(id % 5 as int), cast(id % 7 as int))",
    "struct": "named_struct('a', cast(id % 5 as int), 'b', concat('x', id % 3))",
}


def table(spark: SparkSession, expression: str, rows: int = 300) -> DataFrame:
    """Columns k (some null) and v (some null, and only nulls for one k)."""
    return spark.range(rows, numPartitions=1).select(
        "id",
        F.expr("if(id % 17 = 0, null, id % 13)").alias("k"),
        F.expr(f"if(id % 10 = 3 or id % 13 = 5, null, {expression})").alias("v"),
    )


@pytest.mark.parametrize("kind", VALUES)
def test_numbers(spark: SparkSession, kind: str) -> None:
    aggregates = {
        "n": agg.count(),
        "valid": agg.count("v"),
        "total": agg.sum("v"),
        "mean": agg.avg(F.col("v")),
        "low": agg.min("v"),
        "high": agg.max("v"),
        "head": agg.first("v"),
        "tail": agg.last("v", ignore_nulls=True),
        "distinct": agg.approx_count_distinct("v"),
    }
    check(table(spark, VALUES[kind]), ["k"], aggregates)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_types(spark: SparkSession, kind: str) -> None:
    aggregates = {
        "valid": agg.count("v"),
        "low": agg.min("v"),
        "high": agg.max("v"),
        "head": agg.first("v", ignore_nulls=True),
        "tail": agg.last("v"),
        "distinct": agg.approx_count_distinct("v", 0.1),
    }
    if kind == "interval":
        aggregates |= {"total": agg.sum("v"), "mean": agg.avg("v")}
    # With such types Spark sorts, so that its first() is any row: say which one is meant.
    exact = {
        "head": F.expr("min_by(v, id) filter (where v is not null)"),
        "tail": F.max_by("v", "id"),
    }
    check(table(spark, OTHERS[kind]), ["k"], aggregates, exact=exact)


KEYS = {
    **VALUES,
    **OTHERS,
    "map": "map('a', id % 3, concat('b', id % 2), 1)",
    "floats": "array(cast(case id % 3 when 0 then '-0' when 1 then 'NaN' else '0' end as double))",
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type(spark: SparkSession, kind: str) -> None:
    rows = spark.range(400, numPartitions=1).select(
        F.expr(f"if(id % 10 = 3, null, {KEYS[kind]})").alias("k"), F.col("id").alias("v")
    )
    check(rows, ["k"], {"n": agg.count(), "total": agg.sum("v")})


def test_several_keys_and_none(spark: SparkSession) -> None:
    rows = spark.range(500, numPartitions=1).select(
        F.expr("if(id % 9 = 0, null, id % 4)").alias("a b"),
        F.expr("if(id % 7 = 0, null, concat('x', id % 5))").alias("b"),
        F.expr("struct(id % 2 as c, array(id % 3) as d)").alias("s"),
        "id",
    )
    check(rows, ["`a b`", "b", "s"], {"n": agg.count(), "total": agg.sum("id")})
    check(rows, [F.col("s.c"), (F.col("id") % 5).alias("m")], {"n": agg.count()})
    check(rows, [], {"n": agg.count(), "total": agg.sum("id"), "top": agg.max("b")})


@pytest.mark.parametrize("rsd", [0.3, 0.05, 0.02])
def test_distinct_counts_are_sparks(spark: SparkSession, rsd: float) -> None:
    # Key k has about 2^k distinct values: small, corrected and large estimates.
    rows = spark.range(60_000, numPartitions=1).select(
        F.expr("cast(log2(id + 1) as int)").alias("k"), "id"
    )
    check(rows, ["k"], {"d": agg.approx_count_distinct("id", rsd)}, batches=4)


def test_ansi_overflow(spark: SparkSession) -> None:
    rows = spark.sql("select 1 as k, 9223372036854775807 as v from range(2)")
    plan = plan_aggregate(rows, ["k"], None, {"s": agg.sum("v")})
    with pytest.raises(ProcessorError, match="ARITHMETIC_OVERFLOW"):
        worker_of(plan).run(plan.input.toArrow())


def test_without_ansi(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        longs = spark.sql("select 1 as k, 9223372036854775807 as v from range(3)")
        check(longs, ["k"], {"s": agg.sum("v")})
        decimals = spark.sql("select id % 2 as k, cast('9e37' as decimal(38,0)) as v from range(5)")
        check(decimals, ["k"], {"s": agg.sum("v"), "m": agg.avg("v")})
        texts = spark.sql("select 1 as k, cast(id as string) as v from range(5)")
        check(texts, ["k"], {"s": agg.sum("v"), "m": agg.avg("v")})
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def events(spark: SparkSession, rows: int = 400) -> DataFrame:
    return spark.range(rows, numPartitions=1).select(
        F.expr("if(id % 5 = 0, null, id % 3)").alias("k"),
        F.expr(
            "if(id % 19 = 0, null, timestamp'2020-01-01 00:00:00' "
            "+ make_dt_interval(0, 0, 0, id * 37 % 1009 / 2))"
        ).alias("ts"),
        F.col("id").alias("v"),
    )


WINDOWS = {
    "tumbling": agg.tumbling("ts", "10 seconds"),
    "shifted": agg.tumbling("ts", "1 minute", "7 seconds"),
    "sliding": agg.sliding("ts", "10 seconds", "4 seconds"),
    "session": agg.session("ts", "2 seconds"),
}


@pytest.mark.parametrize("name", ["tumbling", "shifted", "sliding"])
def test_windows(spark: SparkSession, name: str) -> None:
    aggregates = {"n": agg.count(), "total": agg.sum("v"), "mean": agg.avg("v")}
    check(events(spark), ["k"], aggregates, WINDOWS[name])
    check(events(spark), [], aggregates, WINDOWS[name])


@pytest.mark.parametrize("name", ["session", "session-column"])
def test_sessions(spark: SparkSession, name: str) -> None:
    window = WINDOWS["session"]
    if name == "session-column":
        gap = F.when(F.col("v") % 2 == 0, "1 seconds").otherwise("3 seconds")
        window = agg.session(F.col("ts"), gap)
    aggregates = {
        "n": agg.count(),
        "total": agg.sum("v"),
        "low": agg.min("v"),
        "distinct": agg.approx_count_distinct("v"),
        "text": agg.max(F.col("v").cast("string")),
    }
    df = events(spark).coalesce(1).cache()
    plan = plan_aggregate(df, ["k"], window, aggregates)
    reference = df.groupBy("k", window.spark()).agg(
        *(aggregate.spark().alias(n) for n, aggregate in aggregates.items())
    )
    assert plan.output_schema.names[:2] == ["k", "window"]
    rows = plan.input.toArrow()
    worker = worker_of(plan)
    for i in range(4):
        worker.run(rows.slice(i * 100, 100))
    # Sessions that were joined have left the state: what is there now is Spark's result.
    worker.definition.processor._append = True  # type: ignore[attr-defined]
    worker.definition.processor.expiry = "next_end"
    closing = MemoryWorker(worker.definition)
    for log in worker.logs:
        for group, sections in log.items():
            closing.tables[group].replay(sections)
    assert rows_of(closing.run(rows.slice(0, 0), 10**14)) == rows_of(reference.toArrow())
    df.unpersist()


# Against running queries


def files(spark: SparkSession, folder: Path, batches: Sequence[Sequence[Row]]) -> DataFrame:
    """A stream with one file a batch."""
    folder.mkdir()
    kind = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
    for i, rows in enumerate(batches):
        moments = [datetime.datetime.fromtimestamp(t, datetime.timezone.utc) for _, t, _ in rows]
        columns = [[r[0] for r in rows], moments, [r[2] for r in rows]]
        data = pa.table([pa.array(c, f.type) for c, f in zip(columns, kind, strict=True)], kind)
        path = folder / f"{i:03}.parquet"
        pq.write_table(data, path)
        os.utime(path, (1_600_000_000 + i, 1_600_000_000 + i))
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


BATCHES: list[list[Row]] = [
    [(1, 1, 1), (1, 4, 2), (2, 12, 3), (1, 13, 4)],
    [(1, 8, 5), (2, 3, 6), (2, 31, 7)],
    [(1, 9, 8), (2, 12, 9), (1, 25, 10), (2, 27, 11), (None, 26, 12)],
    [(1, 2, 13), (1, 52, 14), (3, 40, 15), (2, 24, 19)],
    [(3, 95, 16), (1, 45, 17), (2, 49, 21)],
    [(3, 100, 18), (1, 60, 22), (2, 84, 23)],
]


RUNNING_TOO = (
    *("tumbling-append", "tumbling-update", "sliding-append", "sliding-update"),
    *("key-append", "key-update"),
)
"""For soak. Spark has no sessions in update mode."""


@pytest.mark.parametrize(
    "case",
    ["session-append", *(pytest.param(case, marks=pytest.mark.soak) for case in RUNNING_TOO)],
)
def test_like_a_running_query(spark: SparkSession, tmp_path: Path, case: str) -> None:
    name, mode = case.split("-")
    stream = files(spark, tmp_path / "in", BATCHES).withWatermark("ts", "10 seconds")
    window = WINDOWS.get(name)
    if name == "session":
        window = agg.session("ts", "8 seconds")
    keys: list[Column | str] = ["k"] if window is not None else ["k", "ts"]
    aggregates = {"n": agg.count(), "total": agg.sum("v")}
    plan = plan_aggregate(stream, keys, window, aggregates, mode)
    assert plan.time_mode == "eventtime"
    assert plan.watermark_delay_ms == 10_000
    assert plan.event_time_column == ("ts" if window is None else "window")
    windows = [] if window is None else [window.spark()]
    reference = stream.groupBy(*keys, *windows).agg(
        *(aggregate.spark().alias(n) for n, aggregate in aggregates.items())
    )
    outputs: dict[int, Any] = {}
    query = (
        reference.writeStream.outputMode(mode)
        .foreachBatch(lambda rows, batch: outputs.__setitem__(batch, rows.toArrow()))
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    inputs = [
        plan_aggregate(
            spark.read.schema(stream.schema).parquet(str(path)), keys, window, aggregates
        )
        for path in sorted((tmp_path / "in").iterdir())
    ]
    worker = worker_of(plan)
    late_ms = 0
    seen = 0
    for watermark_ms, has_rows in watermarks(query):
        rows = inputs[seen if has_rows else 0].input.toArrow()
        output = worker.run(rows if has_rows else rows.slice(0, 0), watermark_ms, late_ms)
        assert rows_of(output) == rows_of(outputs[worker.epoch]), worker.epoch
        seen += has_rows
        late_ms = watermark_ms
    assert seen == len(BATCHES)
    assert sum(output.num_rows for output in outputs.values()) > 6


def watermarks(query: StreamingQuery) -> list[tuple[int, bool]]:
    """Watermark (ms) of each batch that ran, and whether it had rows."""
    found: dict[int, tuple[int, bool]] = {}
    for progress in query.recentProgress:
        moment = datetime.datetime.fromisoformat(
            progress["eventTime"]["watermark"].replace("Z", "+00:00")
        )
        has_rows = progress["numInputRows"] > 0
        found.setdefault(progress["batchId"], (int(moment.timestamp() * 1000), has_rows))
    return [found[batch] for batch in sorted(found)]


# Mistakes


def test_append_needs_a_watermark(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="without watermark"):
        plan_aggregate(events(spark), ["k"], WINDOWS["tumbling"], {"n": agg.count()}, "append")
    with pytest.raises(AnalysisException, match="without watermark"):
        plan_aggregate(events(spark), ["k"], None, {"n": agg.count()}, "append")


def test_clear_errors(spark: SparkSession) -> None:
    df = events(spark)
    count = {"n": agg.count()}
    with pytest.raises(AnalysisException, match="nope"):
        plan_aggregate(df, ["nope"], None, count)
    with pytest.raises(AnalysisException, match="nope"):
        plan_aggregate(df, ["k"], None, {"n": agg.sum("nope")})
    with pytest.raises(AnalysisException):
        plan_aggregate(df, ["k"], agg.tumbling("ts", "ten seconds"), count)
    with pytest.raises(AnalysisException):
        plan_aggregate(df, ["k"], None, {"n": agg.sum(F.array("v"))})
    with pytest.raises(InvalidArgument, match="used twice"):
        plan_aggregate(df, ["k"], None, {"k": agg.count()})
    with pytest.raises(InvalidArgument, match="at least one"):
        plan_aggregate(df, ["k"], None, {})
    with pytest.raises(InvalidArgument, match="complete"):
        plan_aggregate(df, ["k"], None, count, "complete")
    with pytest.raises(InvalidArgument, match="not an aggregate"):
        plan_aggregate(df, ["k"], None, {"n": F.count("k")})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument, match="deviation"):
        agg.approx_count_distinct("k", 0.5)
    with pytest.raises(InvalidArgument, match="collation"):
        plan_aggregate(df.select(F.expr("'a' collate utf8_lcase as k")), ["k"], None, count)
