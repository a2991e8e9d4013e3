"""Types of stored state from their names: an operator's description has Spark's and Arrow's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from anabranch.errors import StateMismatch

_SPARK_ATOMS: dict[str, T.DataType] = {
    kind.simpleString(): kind
    for kind in (
        T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.FloatType(),
        T.DoubleType(), T.StringType(), T.BinaryType(), T.DateType(), T.TimestampType(),
        T.TimestampNTZType(), T.DayTimeIntervalType(), T.NullType(), T.VariantType(),
    )
}  # fmt: skip

_ARROW_ATOMS: dict[str, Any] = {
    str(kind): kind
    for kind in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(),
        pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(), pa.string(),
        pa.large_string(), pa.binary(), pa.large_binary(), pa.date32(), pa.date64(), pa.null(),
        *(make(unit) for make in (pa.timestamp, pa.duration) for unit in ("s", "ms", "us", "ns")),
        pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    )
}  # fmt: skip


def spark_type(name: str) -> T.DataType:
    """The Spark type of a `simpleString`."""
    if name in _SPARK_ATOMS:
        return _SPARK_ATOMS[name]
    if match := re.fullmatch(r"decimal\((\d+),(-?\d+)\)", name):
        return T.DecimalType(int(match[1]), int(match[2]))
    if match := re.fullmatch(r"time\((\d+)\)", name):
        return T.TimeType(int(match[1]))
    if match := re.fullmatch(r"interval (\w+)(?: to (\w+))?", name):
        return _interval(name, match[1], match[2] or match[1])
    outer, inner = _taken_apart(name)
    if outer == "array" and len(inner) == 1:
        return T.ArrayType(spark_type(inner[0]))
    if outer == "map" and len(inner) == 2:
        return T.MapType(spark_type(inner[0]), spark_type(inner[1]))
    if outer == "struct":
        return T.StructType([T.StructField(n, t) for n, t in _fields(inner, ":", spark_type)])
    raise _unknown(name)


def spark_struct(name: str) -> T.StructType:
    """The same for what must be a struct."""
    found = spark_type(name)
    if not isinstance(found, T.StructType):
        raise _unknown(name)
    return found


def arrow_type(name: str) -> Any:
    """The Arrow type that has this text."""
    if name in _ARROW_ATOMS:
        return _ARROW_ATOMS[name]
    if match := re.fullmatch(r"timestamp\[(s|ms|us|ns), tz=(.+)\]", name):
        return pa.timestamp(match[1], match[2])
    if match := re.fullmatch(r"decimal(128|256)\((\d+), (-?\d+)\)", name):
        make = pa.decimal128 if match[1] == "128" else pa.decimal256
        return make(int(match[2]), int(match[3]))
    if match := re.fullmatch(r"fixed_size_binary\[(\d+)\]", name):
        return pa.binary(int(match[1]))
    outer, inner = _taken_apart(name)
    if outer == "map" and len(inner) == 2:
        return pa.map_(arrow_type(inner[0]), arrow_type(inner[1]))
    if outer in ("list", "large_list", "struct"):
        fields = [_arrow_field(n, t) for n, t in _fields(inner, ": ", str)]
        if outer == "struct":
            return pa.struct(fields)
        if len(fields) == 1:
            return pa.list_(fields[0]) if outer == "list" else pa.large_list(fields[0])
    raise _unknown(name)


def _arrow_field(name: str, kind: str) -> Any:
    bare = kind.removesuffix(" not null")
    return pa.field(name, arrow_type(bare), nullable=bare == kind)


def _interval(name: str, first: str, last: str) -> T.DataType:
    units = {"day": 0, "hour": 1, "minute": 2, "second": 3}
    if first not in units or last not in units:
        raise _unknown(name)
    return T.DayTimeIntervalType(units[first], units[last])


def _taken_apart(name: str) -> tuple[str, list[str]]:
    """A nested type's own name, and what is between its brackets, cut at outer commas."""
    outer, bracket, rest = name.partition("<")
    if not bracket or not rest.endswith(">"):
        raise _unknown(name)
    parts, depth, start = [], 0, 0
    inside = rest[:-1]
    for at, letter in enumerate(inside):
        if letter in "<([":
            depth += 1
        elif letter in ">)]":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(inside[start:at].strip())
            start = at + 1
    if inside:
        parts.append(inside[start:].strip())
    return outer, parts


def _fields(parts: list[str], mark: str, parse: Callable[[str], Any]) -> list[tuple[str, Any]]:
    found = []
    for part in parts:
        name, is_there, kind = part.partition(mark)
        if not is_there:
            raise _unknown(part)
        found.append((name, parse(kind)))
    return found


def _unknown(name: str) -> StateMismatch:
    return StateMismatch(
        f"The stored state has a column of type {name!r}, which cannot be read as a DataFrame. "
        "Read another state variable (option stateVarName)."
    )
