"""Merge expressions on columns behave as Spark's do, where Arrow's do not."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import ProcessorError
from anabranch.processor.columnar.expressions import (
    CallExpression,
    Constant,
    FieldExpression,
    evaluate,
)

LEFT, RIGHT = FieldExpression(True, 0), FieldExpression(False, 0)
NAN = math.nan


def value_of(function: str, kind: pa.DataType, left: Any, right: Any, result: Any = None) -> Any:
    call = CallExpression(function, (LEFT, RIGHT), kind if result is None else result)
    (found,) = evaluate(call, [pa.array([left], kind)], [pa.array([right], kind)]).to_pylist()
    return found


def test_nan_is_the_largest_number() -> None:
    kind = pa.float64()
    assert value_of("greater", kind, NAN, 1e300, pa.bool_()) is True
    assert value_of("greater", kind, NAN, NAN, pa.bool_()) is False
    assert value_of("less", kind, 1.0, NAN, pa.bool_()) is True
    assert value_of("equal", kind, NAN, NAN, pa.bool_()) is True
    assert math.isnan(value_of("greatest", kind, NAN, 3.0))
    assert value_of("least", kind, NAN, 3.0) == 3.0


def test_extremes_leave_out_nulls_and_keep_the_first() -> None:
    assert value_of("greatest", pa.string(), None, "a") == "a"
    assert value_of("least", pa.string(), "b", None) == "b"
    assert value_of("greatest", pa.int64(), None, None) is None
    assert math.copysign(1, value_of("greatest", pa.float64(), -0.0, 0.0)) == -1


def test_a_condition_that_is_null_is_false() -> None:
    when = CallExpression("when", (Constant(None, pa.bool_()), LEFT, RIGHT), pa.int64())
    assert evaluate(when, [pa.array([1])], [pa.array([2])]).to_pylist() == [2]


def test_a_quotient_by_zero_is_null() -> None:
    assert value_of("divide", pa.float64(), 1.0, 0.0) is None
    assert value_of("divide", pa.float64(), 1.0, 4.0) == 0.25


def test_sums_of_longs() -> None:
    most = 2**63 - 1
    with pytest.raises(ProcessorError, match="ARITHMETIC_OVERFLOW"):
        value_of("add_checked", pa.int64(), most, 1)
    assert value_of("add", pa.int64(), most, 1) == -(2**63)
    assert value_of("add_trying", pa.int64(), most, 1) is None
    assert value_of("add_trying", pa.int64(), -most, -2) is None
    assert value_of("add_trying", pa.int64(), most, -1) == most - 1


@pytest.mark.parametrize(("precision", "scale"), [(5, 2), (38, 2), (38, 38), (38, 0)])
def test_a_sum_of_decimals_with_too_many_digits_is_null(precision: int, scale: int) -> None:
    kind = pa.decimal128(precision, scale)
    step = Decimal(1).scaleb(-scale)
    most = Decimal((0, (9,) * precision, -scale))
    assert value_of("add_decimals", kind, step, step) == 2 * step
    assert value_of("add_decimals", kind, most, step) is None
    assert value_of("add_decimals", kind, most.copy_negate(), step.copy_negate()) is None
    assert value_of("add_decimals", kind, most, most.copy_negate()) == 0
    assert value_of("add_decimals", kind, None, step) is None
