"""Every Spark SQL type as key, row, state and output, on the service as on Spark."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.differential import Feed, Watched, both, check_sides, play

from anabranch import StateService

ODD = "case (id + 1) % 3 when 0 then 'NaN' when 2 then '-0.0' else id / 7 end"
KINDS = {
    "byte": ("byte", "cast(id % 100 - 50 as byte)"),
    "short": ("short", "cast(id - 30000 as short)"),
    "int": ("int", "cast(id * 7919 - 2000000000 as int)"),
    "long": ("long", "id * 1000003 - 9223372036854775807"),
    "float": ("float", f"cast({ODD} as float)"),
    "double": ("double", f"cast({ODD} as double)"),
    "decimal": ("decimal(10,3)", "cast(id * 31 / 7 as decimal(10, 3))"),
    "wide": ("decimal(38,18)", "cast(id * -31 / 7 as decimal(38, 18))"),
    "text": ("string", "concat('\u00e4\U0001f600', id, '')"),
    "bytes": ("binary", "unhex(concat('00FF', hex(id)))"),
    "flag": ("boolean", "id % 2 = 0"),
    "day": ("date", "date_add(date'1500-01-01', cast(id * 1000 as int))"),
    "moment": ("timestamp", "timestamp'1969-12-31 23:59:59.999999' + make_dt_interval(0, 0, id)"),
    "local": ("timestamp_ntz", "timestamp_ntz'2024-03-31 02:30:00.000001' + make_dt_interval(id)"),
    "items": ("array<int>", "array(cast(id as int), null, 3)"),
    "pair": ("struct<a: int, b: string>", "named_struct('a', cast(id as int), 'b', 'x')"),
    "deep": (
        "array<struct<a: array<double>, b: timestamp>>",
        "array(named_struct('a', array(id / 7, double('NaN')), 'b', timestamp_seconds(id)))",
    ),
}  # fmt: skip
VALUES = {
    **KINDS,
    "lookup": ("map<string, int>", "map(concat('k', id), cast(id as int), 'n', null)"),
    "nested": (
        "map<string, array<map<string, date>>>",
        "map('m', array(map('d', date_add(date'2024-01-01', cast(id as int)))))",
    ),
}
OTHERS = {
    "span": ("interval day to second", "make_dt_interval(id, 1, 2, -3.000004)"),
    "numbered": ("map<int, struct<a: binary>>", "map(1, named_struct('a', binary('x')))"),
}
"""Not in keys and state: Spark cannot keep such values."""
STATE = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())
KEY_KINDS = {name: KINDS[name] for name in KINDS if name not in ("items", "deep")}
"""Spark fails with arrays in keys."""
KEYS = tuple(f"k_{name}" for name in KEY_KINDS)
OUTPUT = ", ".join(
    [
        *(f"k_{name} {kind}" for name, (kind, _) in KEY_KINDS.items()),
        *(f"{name} {kind}" for name, (kind, _) in VALUES.items()),
        *(f"{name} {kind}" for name, (kind, _) in OTHERS.items()),
        "seen string",
    ]
)
NAMES = (*KEYS, *VALUES, *OTHERS, "seen")


def shape(value: Any) -> Any:
    """Types and values, all the way down."""
    name = type(value).__name__
    if isinstance(value, dict):
        return name, sorted((shape(k), shape(v)) for k, v in value.items())
    if isinstance(value, Row):
        return "Row", list(value.__fields__), [shape(v) for v in value]
    if hasattr(value, "tolist"):
        return name, shape(value.tolist())
    if isinstance(value, (list, tuple)):
        return name, [shape(each) for each in value]
    return name, repr(value)


def clean(name: str, value: Any) -> Any:
    """A value fit for state: rows have maps as pairs, pandas has NaN and arrays of NumPy."""
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, float) and name not in ("float", "double"):
        return int(value) if value == value else None
    if name == "lookup":
        return dict(value)
    if name == "nested":
        return {key: [dict(each) for each in many] for key, many in dict(value).items()}
    return pythonic(value)


def pythonic(value: Any) -> Any:
    """Without NumPy and pandas, which Spark's state does not take inside of nested values."""
    if hasattr(value, "tolist"):
        return pythonic(value.tolist())
    if isinstance(value, pd.Timestamp):
        return value.to_pydatetime()
    if isinstance(value, list):
        return [pythonic(each) for each in value]
    return {k: pythonic(v) for k, v in value.items()} if isinstance(value, dict) else value


class Typed(StatefulProcessor):
    """Keeps rows in all kinds of state, gives back what it kept in the batch before."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._value = handle.getValueState("value", STATE)
        self._list = handle.getListState("list", STATE)
        self._map = handle.getMapState(
            "map", ", ".join(f"{name} {kind}" for name, (kind, _) in KEY_KINDS.items()), STATE
        )

    def close(self) -> None:
        pass

    def step(self, key: Any, row: Any) -> tuple[Any, ...]:
        former = self._value.get()
        seen = [shape(key), shape(row), shape(former), shape(list(self._list.get()))]
        seen.append(shape(self._map.getValue(key)))
        seen.append(shape(list(self._map.iterator())))
        values = tuple(clean(name, value) for name, value in zip(VALUES, row, strict=False))
        rest = tuple(row)[len(VALUES) :]
        others = tuple(clean(name, value) for name, value in zip(OTHERS, rest, strict=False))
        self._value.update(values)
        self._list.appendValue(values)
        self._map.updateValue(key, values)
        return (*key, *(former or [None] * len(VALUES)), *others, repr(seen))


class TypedRows(Typed):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            yield Row(**dict(zip(NAMES, self.step(key, row), strict=True)))


class TypedFrames(Typed):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for frame in rows:
            # One row a key and batch.
            values = [frame[name].iloc[0] for name in frame.columns]
            yield pd.DataFrame([self.step(key, values)], columns=list(NAMES))


@pytest.fixture(scope="module")
def service(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateService]:
    location = tmp_path_factory.mktemp("state")
    with StateService(spark, str(location), workers=2, fsync=False) as service:
        yield service


WITHOUT_NULLS = ("byte", "short", "int", "long", "flag")
"""In pandas: a null makes such a column another type, for all rows that happen to be with it."""


def typed(stream: DataFrame, api: str) -> DataFrame:
    """Rows whose keys differ in one component; that is null from key len(KEY_KINDS) on."""
    values = [
        F.expr(
            made if api == "pandas" and name in WITHOUT_NULLS else f"if(id % 5 = 4, null, {made})"
        ).alias(name)
        for name, (_, made) in {**VALUES, **OTHERS}.items()
    ]
    keys = []
    for at, (name, (kind, made)) in enumerate(KEY_KINDS.items()):
        # One key has NaN. None has -0.0: to Spark it is the same as 0.0, but not always.
        other = made.replace("id", "(key + 4)")
        usual = f"if(key = {at + len(KEY_KINDS)}, null, {made.replace('id', '3')})"
        own = f"cast(if(key = {at}, {other}, {usual}) as {kind})"
        keys.append(F.expr(own).alias(f"k_{name}"))
    return stream.select(*values, *keys)


@pytest.mark.soak
@pytest.mark.parametrize("api", ["rows", "pandas"])
def test_every_type(spark: SparkSession, service: StateService, tmp_path: Path, api: str) -> None:
    feed = Feed(spark, tmp_path, "id long, key long")
    df = typed(feed.stream(), api)
    method = "transformWithState" if api == "rows" else "transformWithStateInPandas"
    processor = TypedRows() if api == "rows" else TypedFrames()
    arguments = (processor, OUTPUT, "Update", "None")
    native = getattr(df.groupBy(*KEYS), method)(*arguments)
    grouped = service.group_by(df, *KEYS)
    ours = getattr(grouped, method)(*arguments, name=f"typed-{api}", own_stage=True)
    # pandas has no null in integer columns, and Spark takes what it has instead for keys.
    keys = len(KEY_KINDS) * (2 if api == "rows" else 1)
    batches = [[{"id": batch * 50 + k, "key": k} for k in range(keys)] for batch in range(3)]
    with Watched(both(native, ours), tmp_path / "check") as watched:
        play(feed, batches, watched)
    shown = check_sides(watched)
    assert [len(rows) for rows in shown.values()] == [keys] * 3


class Keeping(StatefulProcessor):
    """Gives back what it got in the batch before."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("s", "span interval day to second, m map<int, string>")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        (row,) = rows
        span, m = self._state.get() or (None, None)
        self._state.update((row.span, dict(row.m)))
        yield Row(items=key[0], k_span=key[1], deep=key[2], span=span, m=m, id=row.id)


def test_what_only_the_service_keeps(
    spark: SparkSession, service: StateService, tmp_path: Path
) -> None:
    """Arrays and intervals in keys, intervals and maps with other keys than texts in state."""
    feed = Feed(spark, tmp_path, "id long, k int")
    df = feed.stream().select(
        "id",
        F.expr("if(k = 0, null, array(k, null, 3))").alias("items"),
        F.expr("make_dt_interval(k, 1)").alias("k_span"),
        F.expr("array(named_struct('a', array(k / 7, double('NaN')), 'b', 'x'))").alias("deep"),
        F.expr("make_dt_interval(0, 0, 0, id)").alias("span"),
        F.expr("map(cast(id as int), 'x', 0, null)").alias("m"),
    )
    output = (
        "items array<int>, k_span interval day to second, "
        "deep array<struct<a: array<double>, b: string>>, "
        "span interval day to second, m map<int, string>, id long"
    )
    result = service.group_by(df, "items", "k_span", "deep").transformWithState(
        Keeping(), output, "Update", "None", name="keeping"
    )
    with Watched(result, tmp_path / "check") as watched:
        play(feed, [[{"id": 10 * b + k, "k": k} for k in range(3)] for b in (1, 2)], watched)
    rows = {row.id: row for row in watched.rows[1]}
    assert sorted(rows) == [20, 21, 22]
    assert rows[20].items is None
    assert rows[22].items == [2, None, 3]
    assert rows[22].k_span == datetime.timedelta(days=2, hours=1)
    assert str(rows[22].deep) == "[Row(a=[0.2857142857142857, nan], b='x')]"
    for at in range(3):
        assert rows[20 + at].span == datetime.timedelta(seconds=10 + at)
        assert rows[20 + at].m == {10 + at: "x", 0: None}
