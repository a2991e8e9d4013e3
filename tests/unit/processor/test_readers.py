"""A key in the wrong form: the error says the right one, with an example."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from anabranch.errors import InvalidArgument
from anabranch.processor.columnar.aggregates import WINDOW_END, WINDOW_START
from anabranch.processor.readers import Keys

WINDOW = {WINDOW_START: TimestampType(), WINDOW_END: TimestampType()}
K = {"k": LongType()}
PAIR: dict[str, DataType] = {"k": StringType(), "v": IntegerType()}


def keys_of(columns: Mapping[str, DataType]) -> Keys:
    return Keys("totals", StructType([StructField(n, kind) for n, kind in columns.items()]), "")


@pytest.mark.parametrize(
    ("columns", "key", "said"),
    [
        (K, ("a", "b"), "(k bigint); got ('a', 'b'), 2 of 1 values. Write it as get(42)"),
        (K, "5", "Write it as get(42), with values of these types."),
        (PAIR, "a", "got 'a', 1 of 2 values. Write it as get(('a', 42))"),
        (PAIR, {"k": "a"}, "a dict with the names 'k'. Write it as get(('a', 42))"),
        (PAIR, (1, "a"), "Write it as get(('a', 42))"),
        ({"k": DateType(), **WINDOW}, ("x",), "Write it as get((date(2026, 1, 31), (start, end)))"),
        (
            WINDOW,
            5,
            "(window (start timestamp, end timestamp)); got 5. Write it as get((start, end",
        ),
        (
            {"k": StructType([StructField("a", IntegerType())]), "d": DoubleType()},
            3,
            "Write it as get(((42,), 1.5))",
        ),
        ({"k": DecimalType(9, 2), "b": BinaryType()}, 3, "Write it as get((Decimal('1.5'), b'a'))"),
        (
            {"k": ArrayType(IntegerType()), "t": TimestampType()},
            3,
            "Write it as get((..., datetime(2026, 1, 31, 12, 0)))",
        ),
        ({"k": BooleanType(), "f": FloatType()}, 3, "Write it as get((True, 1.5))"),
        ({}, 3, "It has no key column: say get()."),
    ],
)
def test_the_right_form(columns: Mapping[str, DataType], key: Any, said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        keys_of(columns).table([key])
    assert "A key of operator 'totals' is (" in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("key", [42, (42,), {"k": 42}])
def test_right_forms(key: Any) -> None:
    assert keys_of(K).table([key])[0] == keys_of(K).table([42])[0]
