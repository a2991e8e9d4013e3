"""Spark's merge expressions on columns: a small tree of the expressions that merging needs.

The driver translates Catalyst's trees into these (`spark/plans/merge_expressions.py`). They follow
Spark where Arrow does otherwise: NaN is the largest number and equals itself, a condition that is
null is false, a quotient by zero is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import ProcessorError

Columns = Sequence[Any]
"""Arrow arrays of one length."""

OVERFLOW = (
    "[ARITHMETIC_OVERFLOW] {what} overflow. Cast the column to a wider type, or set "
    '"spark.sql.ansi.enabled" to "false" before the query starts, to bypass this error.'
)


@dataclass(frozen=True, slots=True)
class FieldExpression:
    """A state column of the left or of the right side."""

    is_left: bool
    at: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: Any
    kind: pa.DataType


@dataclass(frozen=True, slots=True)
class CallExpression:
    """A function of other expressions; `kind` is its type."""

    function: str
    inputs: tuple[Expression, ...]
    kind: pa.DataType


Expression = FieldExpression | Constant | CallExpression


def evaluate(expression: Expression, left: Columns, right: Columns) -> Any:
    """The value for each row of both sides."""
    match expression:
        case FieldExpression(is_left, at):
            return (left if is_left else right)[at]
        case Constant(value, kind):
            return pa.repeat(pa.scalar(value, kind), len(left[0]))
        case CallExpression(function, inputs, kind):
            return FUNCTIONS[function](kind, *(evaluate(each, left, right) for each in inputs))


def _when(kind: pa.DataType, condition: Any, then: Any, otherwise: Any) -> Any:
    return pc.if_else(condition.fill_null(False), then, otherwise)


def _add_checked(kind: pa.DataType, left: Any, right: Any) -> Any:
    try:
        return pc.add_checked(left, right)
    except pa.ArrowInvalid as error:
        raise ProcessorError(OVERFLOW.format(what="long")) from error


def _add_trying(kind: pa.DataType, left: Any, right: Any) -> Any:
    """Null where the sum of two longs is none."""
    total = pc.add(left, right)
    signs = pc.bit_wise_and(pc.bit_wise_xor(left, total), pc.bit_wise_xor(right, total))
    return pc.if_else(pc.less(signs, 0).fill_null(False), pa.scalar(None, kind), total)


def _add_decimals(kind: pa.DataType, left: Any, right: Any) -> Any:
    """Null where the sum has too many digits, as in Spark's buffers."""
    wide = pa.decimal256(kind.precision + 1, kind.scale)
    total = pc.add(left.cast(wide), right.cast(wide)).cast(wide)
    limit = pa.scalar(Decimal(10 ** (kind.precision - kind.scale)), wide)
    fits = pc.less(pc.abs(total), limit).fill_null(False)
    return pc.if_else(fits, total, pa.scalar(None, wide)).cast(kind)


def _divide(kind: pa.DataType, left: Any, right: Any) -> Any:
    is_zero = pc.equal(right, pa.scalar(0, right.type)).fill_null(False)
    return pc.if_else(is_zero, pa.scalar(None, kind), pc.divide(left, right))


def _equal(kind: pa.DataType, left: Any, right: Any) -> Any:
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_kleene(same, pc.and_kleene(pc.is_nan(left), pc.is_nan(right)))
    return same


def _greater(kind: pa.DataType, left: Any, right: Any) -> Any:
    found = pc.greater(left, right)
    if pa.types.is_floating(left.type):
        only_left = pc.and_kleene(pc.is_nan(left), pc.invert(pc.is_nan(right)))
        found = pc.or_kleene(found, only_left)
    return found


def _less(kind: pa.DataType, left: Any, right: Any) -> Any:
    return _greater(kind, right, left)


def _extreme(kind: pa.DataType, is_better: Callable[..., Any], values: Columns) -> Any:
    """The best value that is not null; of equal ones, the first."""
    best = values[0]
    for value in values[1:]:
        better = is_better(kind, value, best).fill_null(False)
        takes = pc.or_(better, pc.and_(pc.is_null(best), pc.is_valid(value)))
        best = pc.if_else(takes, value, best)
    return best


def _bits(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda kind, left, right: function(left, right)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "add": lambda kind, left, right: pc.add(left, right),
    "add_checked": _add_checked,
    "add_decimals": _add_decimals,
    "add_trying": _add_trying,
    "subtract": lambda kind, left, right: pc.subtract(left, right),
    "multiply": lambda kind, left, right: pc.multiply(left, right),
    "divide": _divide,
    "equal": _equal,
    "greater": _greater,
    "less": _less,
    "greatest": lambda kind, *values: _extreme(kind, _greater, values),
    "least": lambda kind, *values: _extreme(kind, _less, values),
    "and": _bits(pc.and_kleene),
    "or": _bits(pc.or_kleene),
    "not": lambda kind, value: pc.invert(value),
    "is_null": lambda kind, value: pc.is_null(value),
    "coalesce": lambda kind, *values: pc.coalesce(*values),
    "when": _when,
    "bit_and": _bits(pc.bit_wise_and),
    "bit_or": _bits(pc.bit_wise_or),
    "bit_xor": _bits(pc.bit_wise_xor),
}
"""By name; the first argument is the type of the result."""


def rows_of(column: Any, at: Any) -> Any:
    """Rows of a column by number."""
    return column.take(pa.array(np.asarray(at)))
