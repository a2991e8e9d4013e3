"""All Spark types as key, state value and output: in, stored, exported, restored, out."""

from __future__ import annotations

import datetime
import math
import os
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import types as T
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, TimerValues
from tests.unit.processor.rows.support import Service, define

from anabranch.state.arrow_types import arrow_type
from anabranch.state.rows.layout import KeyCodec, TupleCodec, Variable, VariableSpec

NOON = datetime.datetime(2020, 6, 1, 12, 0, 0, 123456)  # noqa: DTZ001 (naive, as in PySpark)
PAIR = T.StructType([T.StructField("p", T.IntegerType()), T.StructField("q", T.TimestampType())])
SAMPLES: list[tuple[T.DataType, Any]] = [
    (T.BooleanType(), True),
    (T.ByteType(), -3),
    (T.ShortType(), 300),
    (T.IntegerType(), 70_000),
    (T.LongType(), 2**62),
    (T.FloatType(), 0.5),
    (T.DoubleType(), 1e300),
    (T.StringType(), "zwölf"),
    (T.BinaryType(), b"\x00\xff"),
    (T.DateType(), datetime.date(1582, 1, 1)),
    (T.TimestampType(), NOON),
    (T.TimestampNTZType(), NOON),
    (T.DayTimeIntervalType(), datetime.timedelta(days=-1, microseconds=5)),
    (T.DecimalType(20, 4), Decimal("-12.3400")),
    (PAIR, Row(p=1, q=NOON)),
    (T.ArrayType(T.DoubleType()), [1.5, None]),
    (T.ArrayType(PAIR), [Row(p=None, q=NOON), None]),
    (T.MapType(T.StringType(), T.TimestampType()), {"a": NOON, "b": None}),
]


def schema_of(data_type: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("x", data_type)])


@pytest.mark.parametrize(("data_type", "value"), SAMPLES)
def test_state_values_survive_arrow(data_type: T.DataType, value: Any) -> None:
    codec = TupleCodec(schema_of(data_type), "")
    values = [codec.accept((value,)), codec.accept((None,)), codec.accept([value])]
    assert values == [(value,), (None,), (value,)]
    columns = codec.write(values)
    assert codec.read(columns, 3) == values
    assert codec.read([column.slice(1, 2) for column in columns], 2) == values[1:]
    table = pa.table(columns, names=["x"])
    assert table.schema.field(0).type == codec.fields[0].type


@pytest.mark.parametrize(("data_type", "value"), SAMPLES)
def test_wrong_values_are_refused(data_type: T.DataType, value: Any) -> None:
    codec = TupleCodec(schema_of(data_type), "")
    with pytest.raises((PySparkException, AttributeError)):
        codec.accept((object(),))
    for wrong in ((), (value, value)):
        with pytest.raises(PySparkException, match="1 fields are required"):
            codec.accept(wrong)


@pytest.mark.parametrize(
    ("data_type", "value", "want"),
    [
        (T.LongType(), np.int64(5), 5),
        (T.DoubleType(), np.float32(0.5), 0.5),
        (T.FloatType(), 0.1, float(np.float32(0.1))),
        (T.StringType(), 5, "5"),
        (T.StringType(), True, "true"),
        (T.BinaryType(), "abc", b"abc"),
        (T.BinaryType(), bytearray(b"abc"), b"abc"),
        (T.DateType(), NOON, NOON.date()),
        (T.TimestampType(), pd.Timestamp(NOON), NOON),
        (T.DayTimeIntervalType(), pd.Timedelta(days=2), datetime.timedelta(days=2)),
        (T.DecimalType(10, 2), Decimal("1.235"), Decimal("1.24")),
        (T.ArrayType(T.LongType()), np.array([1, 2]), [1, 2]),
        (T.ArrayType(T.LongType()), (1, 2), [1, 2]),
        (PAIR, {"p": 4}, Row(p=4, q=None)),
        (PAIR, (4, NOON), Row(p=4, q=NOON)),
    ],
)
def test_conversions_as_in_spark(data_type: T.DataType, value: Any, want: Any) -> None:
    (found,) = TupleCodec(schema_of(data_type), "").accept((value,))
    assert found == want
    assert type(found) is type(want)


@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (T.LongType(), 1.5),
        (T.LongType(), True),
        (T.DoubleType(), 1),
        (T.BooleanType(), 1),
        (T.DecimalType(10, 2), 5),
        (T.DecimalType(4, 2), Decimal("123.45")),
        (T.TimestampType(), datetime.date(2020, 1, 1)),
        (T.ArrayType(T.IntegerType()), [1.5]),
    ],
)
def test_what_spark_would_turn_into_null_is_an_error(data_type: T.DataType, value: Any) -> None:
    with pytest.raises(PySparkException):
        TupleCodec(schema_of(data_type), "").accept((value,))


@pytest.fixture
def _new_york() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "America/New_York"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("_new_york")
def test_the_hour_that_comes_twice() -> None:
    # 01:30 twice, on 1 November 2020
    instants = [1604208600_000000, 1604212200_000000]
    codec = KeyCodec(schema_of(T.TimestampType()), "")
    column = pa.array(instants, pa.timestamp("us", "America/New_York"))
    assert codec.read([column], 2) == instants
    shown = [codec.external(key)[0] for key in instants]
    assert [value.hour for value in shown] == [1, 1]
    assert codec.write(instants)[0].cast(pa.int64()).to_pylist() == instants
    values = TupleCodec(schema_of(T.TimestampType()), "")
    (stored,) = values.write([(value,) for value in shown])
    assert stored.cast(pa.int64()).to_pylist() == instants


FLOATS = st.lists(st.floats(allow_nan=True) | st.none() | st.just(-0.0), max_size=20)


@given(FLOATS)
def test_floats_as_keys(values: list[float | None]) -> None:
    worker = Service(define(Echo(), schema_of(T.DoubleType()), ["x"], "n long"))
    worker.types = [pa.float64()]
    worker.hash = lambda keys: np.array([0 if k[0] == 0 else len(repr(k)) for k in keys], np.int64)
    distinct = {"nan" if v is not None and math.isnan(v) else v for v in values}
    first = worker.batch([(v,) for v in values])
    assert len(first) == len(distinct)
    assert sum(row["n"] for row in first) == len(values)
    second = worker.batch([(v,) for v in values])
    assert sorted(row["n"] for row in second) == sorted(2 * row["n"] for row in first)


class Echo(StatefulProcessor):
    """Counts, and keeps the key itself as state."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
        stored = self.count.get()
        total = (stored[0] if stored else 0) + len(list(rows))
        self.count.update((total,))
        return [Row(n=total)]


class Keeper(StatefulProcessor):
    """Keeps the values of a column in all kinds of state and gives them back."""

    def __init__(self, data_type: T.DataType, with_map: bool) -> None:
        self.data_type = data_type
        self.with_map = with_map

    def init(self, handle: Any) -> None:
        schema = schema_of(self.data_type)
        self.handle = handle
        self.value = handle.getValueState("value", schema)
        self.items = handle.getListState("items", schema)
        if self.with_map:
            self.map = handle.getMapState("map", schema, schema)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Any:
        held = self.value.get()
        if held is None:
            held = as_state(key, self.data_type)
        self.value.update(held)
        self.items.appendList([held, (None,)])
        if self.with_map:
            self.map.updateValue(held, held)
            assert self.map.getValue(held) == self.value.get()
        self.handle.registerTimer(0)
        return [Row(x=next(rows).x)]

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        assert tuple(key) == self.value.get()
        if self.with_map:
            assert list(self.map.keys()) == [self.value.get()]
        return [Row(x=self.value.get()[0])]


def as_state(key: tuple[Any], data_type: T.DataType) -> tuple[Any]:
    """What input rows give is not quite what state takes (structs as dicts, maps as pairs)."""
    return tuple(TupleCodec(schema_of(data_type), "").accept(key))


KEYS = [sample for sample in SAMPLES if not isinstance(sample[0], T.MapType)]


@pytest.mark.parametrize(("data_type", "value"), KEYS)
def test_as_key_state_and_output(data_type: T.DataType, value: Any) -> None:
    schema = schema_of(data_type)
    processor = Keeper(data_type, with_map=True)
    definition = define(processor, schema, ["x"], schema, "processingtime")
    arrow = arrow_type(data_type)
    column = TupleCodec(schema, "").write([(value,), (None,), (value,)])[0]
    assert column.type == arrow
    worker = Service(definition)
    table = pa.table([column], names=["x"])
    for _ in range(2):
        found = worker.batch(table)
        # One output for the rows of each key, one for its timer
        assert len(found) == 4
        assert sorted(map(repr, (row["x"] for row in found))) == sorted(
            map(repr, column.to_pylist()[:2] * 2)
        )
    restored = Service(definition)
    for group, sections in worker.snapshot().items():
        restored.states[group].install(sections)
    assert restored.content() == worker.content()
    assert restored.batch(table) == worker.batch(table)


def test_zeros_with_a_sign_are_one_grouping_key_but_two_keys_of_a_map() -> None:
    nested = T.StructType().add("d", T.DoubleType()).add("many", T.ArrayType(T.FloatType()))
    schema = T.StructType().add("d", T.DoubleType()).add("nested", nested)
    zero, negative = (0.0, Row(d=0.0, many=[0.0])), (-0.0, Row(d=-0.0, many=[-0.0]))
    grouping = KeyCodec(schema, "")
    assert grouping.canonical(zero) == grouping.canonical(negative)
    spec = VariableSpec("m", "map", schema, schema)
    user_key = Variable(spec, 0).user_key
    assert user_key is not None
    keys = [user_key.canonical(key) for key in (zero, negative, zero)]
    assert len(set(keys)) == 2
    stored = user_key.read(user_key.write(keys), len(keys))
    assert stored == keys
    assert [repr(tuple(user_key.items(key))) for key in stored] == list(
        map(repr, (zero, negative, zero))
    )
