"""Catalyst's merge expressions as those of `processor/columnar/expressions.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.processor.columnar.expressions import (
    CallExpression,
    Constant,
    Expression,
    FieldExpression,
)
from anabranch.spark.columnar import arrow_schema
from anabranch.spark.plans.catalyst import Node, children, class_of, items, type_of
from anabranch.spark.plans.operator import StaysNative

_NAMES: Mapping[str, str] = {
    "And": "and",
    "BitwiseAnd": "bit_and",
    "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
    "Coalesce": "coalesce",
    "DecimalAddNoOverflowCheck": "add_decimals",
    "Divide": "divide",
    "EqualTo": "equal",
    "GreaterThan": "greater",
    "Greatest": "greatest",
    "If": "when",
    "IsNull": "is_null",
    "Least": "least",
    "LessThan": "less",
    "Multiply": "multiply",
    "Not": "not",
    "Or": "or",
    "Subtract": "subtract",
}
_ADDITIONS = {"ANSI": "add_checked", "LEGACY": "add", "TRY": "add_trying"}
"""Of longs, by Spark's evaluation mode."""
_ORDERED = (
    BinaryType, BooleanType, ByteType, DateType, DayTimeIntervalType, DecimalType, DoubleType,
    FloatType, IntegerType, LongType, ShortType, StringType, TimestampNTZType, TimestampType,
)  # fmt: skip
_COMPARING = frozenset({"greater", "less", "greatest", "least", "equal"})
_FLOATING = frozenset({"subtract", "multiply", "divide"})


_MODAL = frozenset({"Average", "Sum"})
"""Their expressions depend on the mode that they were analysed with."""

_known: dict[tuple[str, ...], list[Expression]] = {}
"""Large trees, which take py4j a second, by class and types."""


def merge_expressions(function: Node) -> list[Expression]:
    """Those of a DeclarativeAggregate, one for each column of its buffer."""
    types = (each.dataType().catalogString() for each in items(function.aggBufferAttributes()))
    key = class_of(function), *map(str, types)
    if key[0] in _MODAL:
        return _merges(function)
    if key not in _known:
        _known[key] = _merges(function)
    return _known[key]


def _merges(function: Node) -> list[Expression]:
    sides = {}
    for is_left, attributes in (
        (True, function.aggBufferAttributes()),
        (False, function.inputAggBufferAttributes()),
    ):
        for at, attribute in enumerate(items(attributes)):
            sides[_identity(attribute)] = FieldExpression(is_left, at)
    return [_translated(each, sides) for each in items(function.mergeExpressions())]


def arrow_type(kind: DataType) -> pa.DataType:
    """The type of a column."""
    return arrow_schema(StructType([StructField("c", kind)])).field(0).type


def literal_value(literal: Node) -> Any:
    """A literal as Python has it; intervals are microseconds."""
    value = literal.value()
    if value is None or isinstance(value, bool | int | float | Decimal):
        return value
    if isinstance(type_of(literal), DecimalType):
        return Decimal(str(value.toString()))
    raise StaysNative(f"its state begins with {literal.toString()}")


def _identity(attribute: Node) -> str:
    return str(attribute.exprId().toString())


def _translated(expression: Node, sides: Mapping[str, FieldExpression]) -> Expression:
    name = class_of(expression)
    if name == "AttributeReference":
        found = sides.get(_identity(expression))
        if found is None:
            raise StaysNative("its states are merged with more than states")
        return found
    kind = type_of(expression)
    if name == "Literal":
        return Constant(literal_value(expression), arrow_type(kind))
    inputs = children(expression)
    if name == "KnownNotNull":
        return _translated(inputs[0], sides)
    translated = tuple(_translated(each, sides) for each in inputs)
    if name == "CaseWhen":
        return _cases(translated, arrow_type(kind))
    function = _function(expression, name, kind)
    _check(function, [type_of(each) for each in inputs])
    return CallExpression(function, translated, arrow_type(kind))


def _function(expression: Node, name: str, kind: DataType) -> str:
    if name == "Add":
        if isinstance(kind, DoubleType):
            return "add"
        mode = str(expression.evalMode().toString())
        if isinstance(kind, DayTimeIntervalType) and mode != "TRY":
            return "add_checked"
        if isinstance(kind, LongType) and mode in _ADDITIONS:
            return _ADDITIONS[mode]
        raise StaysNative(f"it adds {kind.simpleString()} in a way that is not known here")
    found = _NAMES.get(name)
    if found is None:
        raise StaysNative(f"it merges states with {name}, which is not known here")
    return found


def _check(function: str, inputs: Sequence[DataType]) -> None:
    if function in _COMPARING:
        for kind in inputs:
            is_plain = not isinstance(kind, StringType) or kind.collation in ("UTF8_BINARY", None)
            if not isinstance(kind, _ORDERED) or not is_plain:
                raise StaysNative(f"it compares values of the type {kind.simpleString()}")
    if function in _FLOATING and not all(isinstance(kind, DoubleType) for kind in inputs):
        raise StaysNative(f"it merges states with {function} of numbers that are not doubles")


def _cases(parts: Sequence[Expression], kind: pa.DataType) -> Expression:
    """Conditions and values in turn, perhaps a last value; the first that is true counts."""
    pairs, rest = len(parts) // 2, parts[len(parts) // 2 * 2 :]
    result: Expression = rest[0] if rest else Constant(None, kind)
    for at in reversed(range(pairs)):
        result = CallExpression("when", (parts[2 * at], parts[2 * at + 1], result), kind)
    return result
