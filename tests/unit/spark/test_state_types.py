from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from anabranch.errors import StateMismatch
from anabranch.spark.state_types import arrow_type, spark_struct, spark_type

SPARK = [
    T.BooleanType(), T.ByteType(), T.LongType(), T.DoubleType(), T.StringType(), T.BinaryType(),
    T.DateType(), T.TimestampType(), T.TimestampNTZType(), T.DecimalType(38, 18),
    T.DayTimeIntervalType(), T.DayTimeIntervalType(1, 2), T.TimeType(3),
    T.ArrayType(T.MapType(T.StringType(), T.DecimalType(10, 2))),
    T.StructType([]),
    T.StructType(
        [
            T.StructField("a b", T.ArrayType(T.StructType([T.StructField("x", T.LongType())]))),
            T.StructField("m", T.MapType(T.IntegerType(), T.StringType())),
        ]
    ),
]  # fmt: skip

ARROW = [
    pa.bool_(), pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.binary(512), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us"),
    pa.decimal128(38, 18), pa.time64("ns"), pa.large_string(),
    pa.list_(pa.field("element", pa.map_(pa.string(), pa.decimal128(10, 2)))),
    pa.struct([pa.field("a b", pa.int64(), False), pa.field("l", pa.list_(pa.int32()))]),
]  # fmt: skip


@pytest.mark.parametrize("kind", SPARK, ids=lambda kind: kind.simpleString())
def test_spark_types_come_back(kind: T.DataType) -> None:
    assert spark_type(kind.simpleString()) == kind


@pytest.mark.parametrize("kind", ARROW, ids=str)
def test_arrow_types_come_back(kind: Any) -> None:
    assert arrow_type(str(kind)) == kind


@pytest.mark.parametrize("name", ["udt", "struct<a>", "array<int", "map<int>", "interval year"])
def test_what_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(StateMismatch, match="cannot be read as a DataFrame"):
        spark_type(name)
    with pytest.raises(StateMismatch, match="cannot be read as a DataFrame"):
        arrow_type(name)


def test_a_struct_is_wanted() -> None:
    with pytest.raises(StateMismatch):
        spark_struct("bigint")
