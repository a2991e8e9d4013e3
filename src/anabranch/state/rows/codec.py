"""One codec per Spark type: between user values, hashable canonical keys and Arrow columns.

external   what user code gets from state: Spark's `fromInternal` form (naive datetimes, Rows)
canonical  a hashable stand-in with Spark's equality of keys: NaN equals NaN, -0.0 equals 0.0 (but
           not in the user keys of map states)
raw        what `pa.array` takes without guessing (timestamps as microseconds)
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkRuntimeError, PySparkTypeError
from pyspark.sql import types as T

from anabranch.state.arrow_types import arrow_type
from anabranch.state.large_values import view_of

MICROS = 1_000_000
_WIDE = Context(prec=76)
_NAN = "NaN"
_NEGATIVE_ZERO = "-0.0"


def length_mismatch(required: int, provided: int) -> PySparkRuntimeError:
    """Spark's error for a tuple that is too short or too long for its schema."""
    error = PySparkRuntimeError(
        "Input row doesn't have expected number of values required by the schema. "
        f"{required} fields are required while {provided} values are provided."
    )
    error._errorClass = "STRUCT_ARRAY_LENGTH_MISMATCH"
    return error


def mismatch(value: Any, spark_type: T.DataType) -> PySparkTypeError:
    """The error for a value that its column cannot hold (Spark would store null without a word)."""
    return PySparkTypeError(
        errorClass="FIELD_DATA_TYPE_UNACCEPTABLE",
        messageParameters={
            "data_type": spark_type.simpleString(),
            "obj": repr(value),
            "obj_type": type(value).__name__,
        },
    )


class Codec:
    """Base: a type whose external, canonical and raw forms are all what Arrow gives."""

    plain = True
    identity: tuple[type, ...] = ()
    """Python types that need no conversion when state is updated."""

    def __init__(self, spark_type: T.DataType) -> None:
        self.spark_type = spark_type
        self.arrow_type: Any = arrow_type(spark_type)

    def normalise(self, value: Any) -> Any:
        """What a later `get` returns after this value was stored; never called with None."""
        if type(value) in self.identity:
            return value
        raise mismatch(value, self.spark_type)

    def canonical(self, value: Any) -> Any:
        return value

    def external(self, canonical: Any) -> Any:
        return canonical

    def raw(self, value: Any) -> Any:
        return value

    def read(self, column: Any) -> list[Any]:
        """External values of an Arrow array."""
        values: list[Any] = column.to_pylist()
        return values

    def write(self, values: Sequence[Any]) -> Any:
        """Arrow array of external values."""
        if self.plain:
            return pa.array(values, self.arrow_type)
        return pa.array(nullable(self.raw, values), self.arrow_type)

    def read_canonical(self, column: Any) -> list[Any]:
        """Canonical values of an Arrow array, which may have another unit or time zone."""
        values = self.read(column)
        return values if self.plain else nullable(self.canonical, values)

    def write_canonical(self, values: Sequence[Any]) -> Any:
        return self.write(values if self.plain else nullable(self.external, values))


def nullable(function: Callable[[Any], Any], values: Iterable[Any]) -> list[Any]:
    """`function` over the values that are not None."""
    return [None if value is None else function(value) for value in values]


class BooleanCodec(Codec):
    """Booleans; an int is not one."""

    identity = (bool,)


class IntegralCodec(Codec):
    """byte, short, int and long; a value that does not fit is an error, not a wrapped number."""

    identity = (int,)


class BulkyCodec(Codec):
    """Text and bytes: a single large value becomes an array without a copy."""

    def write(self, values: Sequence[Any]) -> Any:
        view = view_of(values, self.arrow_type)
        return super().write(values) if view is None else view


class StringCodec(BulkyCodec):
    """Strings; like Spark's JVM side, numbers and booleans become their text."""

    identity = (str,)

    def normalise(self, value: Any) -> Any:
        if isinstance(value, str):
            return str(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return str(value)
        raise mismatch(value, self.spark_type)


class BinaryCodec(BulkyCodec):
    """Bytes; a string is taken as UTF-8."""

    identity = (bytes,)

    def normalise(self, value: Any) -> Any:
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
        if isinstance(value, str):
            return value.encode()
        raise mismatch(value, self.spark_type)


class DateCodec(Codec):
    """Days; a datetime counts as its day."""

    identity = (datetime.date,)

    def normalise(self, value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.date()
        if isinstance(value, datetime.date):
            return value
        raise mismatch(value, self.spark_type)


class NaiveTimestampCodec(Codec):
    """timestamp_ntz: naive datetimes."""

    def normalise(self, value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return self.spark_type.fromInternal(self.spark_type.toInternal(value))
        raise mismatch(value, self.spark_type)


class IntervalCodec(Codec):
    """Day-time intervals as timedelta, and times of day."""

    identity = (datetime.timedelta,)


class TimeCodec(Codec):
    """Times of day."""

    identity = (datetime.time,)


class DecimalCodec(Codec):
    """Decimals, always with the declared scale, so that equal keys are equal values."""

    def __init__(self, spark_type: T.DecimalType) -> None:
        super().__init__(spark_type)
        self._unit = Decimal(1).scaleb(-spark_type.scale)
        self._digits = spark_type.precision

    def normalise(self, value: Any) -> Any:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise mismatch(value, self.spark_type)
        try:
            fitted = value.quantize(self._unit, rounding=ROUND_HALF_UP, context=_WIDE)
        except InvalidOperation:
            raise mismatch(value, self.spark_type) from None
        if len(fitted.as_tuple().digits) > self._digits:
            raise mismatch(value, self.spark_type)
        return fitted


class FloatCodec(Codec):
    """float and double; as key, all NaN are one, and so are -0.0 and 0.0, as in Spark."""

    plain = False

    def __init__(self, spark_type: T.DataType) -> None:
        super().__init__(spark_type)
        self._single = isinstance(spark_type, T.FloatType)
        if not self._single:
            self.identity = (float,)

    def normalise(self, value: Any) -> Any:
        if not isinstance(value, float):
            raise mismatch(value, self.spark_type)
        return float(np.float32(value)) if self._single else float(value)

    def canonical(self, value: Any) -> Any:
        # NaN equals nothing, not even itself; and `+ 0.0` turns -0.0 into 0.0.
        return _NAN if value != value else value + 0.0

    def external(self, canonical: Any) -> Any:
        return math.nan if canonical == _NAN else canonical

    def write(self, values: Sequence[Any]) -> Any:
        return pa.array(values, self.arrow_type, from_pandas=False)


class SignedFloatCodec(FloatCodec):
    """In a map state's key, which Spark compares by its bytes: -0.0 is not 0.0."""

    def canonical(self, value: Any) -> Any:
        if value == 0.0 and math.copysign(1.0, value) < 0:
            return _NEGATIVE_ZERO
        return super().canonical(value)

    def external(self, canonical: Any) -> Any:
        return -0.0 if canonical == _NEGATIVE_ZERO else super().external(canonical)


class TimestampCodec(Codec):
    """Instants: naive local datetimes for the user, as in Spark, but microseconds as key."""

    plain = False

    def normalise(self, value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return self.spark_type.fromInternal(self.spark_type.toInternal(value))
        raise mismatch(value, self.spark_type)

    def canonical(self, value: Any) -> Any:
        # `timestamp()` heeds `fold`; PySpark's toInternal merges two equal local hours.
        return int(value.replace(microsecond=0).timestamp()) * MICROS + value.microsecond

    raw = canonical

    def external(self, canonical: Any) -> Any:
        return self.spark_type.fromInternal(canonical)

    def read(self, column: Any) -> list[Any]:
        return nullable(self.external, self.read_canonical(column))

    def read_canonical(self, column: Any) -> list[Any]:
        values: list[Any] = column.cast(self.arrow_type).cast(pa.int64()).to_pylist()
        return values

    def write_canonical(self, values: Sequence[Any]) -> Any:
        return pa.array(values, pa.int64()).cast(self.arrow_type)
