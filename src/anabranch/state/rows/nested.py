"""Codecs of structs, arrays, maps and user-defined types, and the choice of a codec for a type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import types as T
from pyspark.sql.types import Row

from anabranch.state.rows import codec as scalar
from anabranch.state.rows.codec import Codec, length_mismatch, mismatch, nullable

Floats = type[scalar.FloatCodec]


def make_row(names: list[str], values: Sequence[Any]) -> Row:
    """A Row with field names, without Row's keyword handling."""
    row: Row = tuple.__new__(Row, values)
    row.__fields__ = names
    return row


class StructCodec(Codec):
    """Structs: Rows for the user, tuples as key."""

    plain = False

    def __init__(self, spark_type: T.StructType, floats: Floats) -> None:
        super().__init__(spark_type)
        self._names = list(spark_type.names)
        self._fields = [codec_of(field.dataType, floats) for field in spark_type.fields]

    def normalise(self, value: Any) -> Any:
        if isinstance(value, dict):
            values: Sequence[Any] = [value.get(name) for name in self._names]
        elif isinstance(value, (tuple, list)):
            values = value
        elif hasattr(value, "__dict__"):
            values = [value.__dict__.get(name) for name in self._names]
        else:
            raise mismatch(value, self.spark_type)
        if len(values) != len(self._fields):
            raise length_mismatch(len(self._fields), len(values))
        return make_row(
            self._names,
            [
                None if item is None else field.normalise(item)
                for field, item in zip(self._fields, values, strict=True)
            ],
        )

    def canonical(self, value: Any) -> Any:
        return tuple(
            None if item is None else field.canonical(item)
            for field, item in zip(self._fields, value, strict=True)
        )

    def external(self, canonical: Any) -> Any:
        return make_row(
            self._names,
            [
                None if item is None else field.external(item)
                for field, item in zip(self._fields, canonical, strict=True)
            ],
        )

    def raw(self, value: Any) -> Any:
        return tuple(
            None if item is None else field.raw(item)
            for field, item in zip(self._fields, value, strict=True)
        )

    def read(self, column: Any) -> list[Any]:
        children = [
            field.read(child) for field, child in zip(self._fields, column.flatten(), strict=True)
        ]
        valid = column.is_valid().to_pylist()
        if not children:
            return [make_row([], ()) if ok else None for ok in valid]
        return [
            make_row(self._names, values) if ok else None
            for ok, values in zip(valid, zip(*children, strict=True), strict=True)
        ]


class ArrayCodec(Codec):
    """Arrays: lists for the user, tuples as key."""

    plain = False

    def __init__(self, spark_type: T.ArrayType, floats: Floats) -> None:
        super().__init__(spark_type)
        self._element = codec_of(spark_type.elementType, floats)

    def normalise(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return nullable(self._element.normalise, value)
        raise mismatch(value, self.spark_type)

    def canonical(self, value: Any) -> Any:
        return tuple(nullable(self._element.canonical, value))

    def external(self, canonical: Any) -> Any:
        return nullable(self._element.external, canonical)

    def raw(self, value: Any) -> Any:
        return nullable(self._element.raw, value)

    def read(self, column: Any) -> list[Any]:
        items = iter(self._element.read(column.flatten()))
        lengths = column.value_lengths().to_pylist()
        return [None if n is None else [next(items) for _ in range(n)] for n in lengths]


class MapCodec(Codec):
    """Maps: dicts for the user; Spark does not allow them in keys."""

    plain = False

    def __init__(self, spark_type: T.MapType) -> None:
        super().__init__(spark_type)
        self._key = codec_of(spark_type.keyType)
        self._value = codec_of(spark_type.valueType)

    def normalise(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise mismatch(value, self.spark_type)
        keys = [self._key.normalise(key) for key in value]
        return dict(zip(keys, nullable(self._value.normalise, value.values()), strict=True))

    def canonical(self, value: Any) -> Any:
        raise mismatch(value, self.spark_type)

    def raw(self, value: Any) -> Any:
        keys = map(self._key.raw, value)
        return list(zip(keys, nullable(self._value.raw, value.values()), strict=True))

    def read(self, column: Any) -> list[Any]:
        keys: Any = self._key.read(column.keys)
        pairs = iter(zip(keys, self._value.read(column.items), strict=True))
        starts = column.offsets.to_pylist()
        found: list[Any] = []
        skipped = starts[0]
        for _ in range(skipped):
            next(pairs)
        for ok, start, end in zip(column.is_valid().to_pylist(), starts, starts[1:], strict=False):
            entries = dict(next(pairs) for _ in range(end - start))
            found.append(entries if ok else None)
        return found


class UserTypeCodec(Codec):
    """User-defined types: stored as their SQL type, converted by their own methods."""

    plain = False

    def __init__(self, spark_type: T.UserDefinedType, floats: Floats) -> None:
        super().__init__(spark_type)
        self._type = spark_type
        self._stored = codec_of(spark_type.sqlType(), floats)

    def normalise(self, value: Any) -> Any:
        return self._type.deserialize(self._stored.normalise(self._type.serialize(value)))

    def canonical(self, value: Any) -> Any:
        return self._stored.canonical(self._stored.normalise(self._type.serialize(value)))

    def external(self, canonical: Any) -> Any:
        return self._type.deserialize(self._stored.external(canonical))

    def raw(self, value: Any) -> Any:
        return self._stored.raw(self._stored.normalise(self._type.serialize(value)))

    def read(self, column: Any) -> list[Any]:
        return nullable(self._type.deserialize, self._stored.read(column))


class VariantCodec(Codec):
    """Variants: VariantVal for the user, its two byte strings elsewhere."""

    plain = False

    def normalise(self, value: Any) -> Any:
        if isinstance(value, T.VariantVal):
            return value
        raise mismatch(value, self.spark_type)

    def canonical(self, value: Any) -> Any:
        return bytes(value.value), bytes(value.metadata)

    raw = canonical

    def external(self, canonical: Any) -> Any:
        return T.VariantVal(*canonical)

    def read(self, column: Any) -> list[Any]:
        return nullable(
            lambda item: T.VariantVal(item["value"], item["metadata"]), column.to_pylist()
        )


class NullCodec(Codec):
    """The void type: only nulls."""


_SCALARS: tuple[tuple[Any, type[Codec]], ...] = (
    (T.BooleanType, scalar.BooleanCodec),
    ((T.ByteType, T.ShortType, T.IntegerType, T.LongType), scalar.IntegralCodec),
    (T.StringType, scalar.StringCodec),
    ((T.CharType, T.VarcharType), scalar.StringCodec),
    (T.BinaryType, scalar.BinaryCodec),
    (T.DateType, scalar.DateCodec),
    (T.TimestampType, scalar.TimestampCodec),
    (T.TimestampNTZType, scalar.NaiveTimestampCodec),
    (T.DayTimeIntervalType, scalar.IntervalCodec),
    (T.VariantType, VariantCodec),
    (T.NullType, NullCodec),
)


def codec_of(spark_type: T.DataType, floats: Floats = scalar.FloatCodec) -> Codec:
    """The codec of a Spark type; raises PySpark's error for a type that Arrow cannot carry.

    `floats` is the codec of float and double, also inside of other types.
    """
    if isinstance(spark_type, T.UserDefinedType):
        return UserTypeCodec(spark_type, floats)
    if isinstance(spark_type, T.StructType):
        return StructCodec(spark_type, floats)
    if isinstance(spark_type, T.ArrayType):
        return ArrayCodec(spark_type, floats)
    if isinstance(spark_type, T.MapType):
        return MapCodec(spark_type)
    if isinstance(spark_type, T.DecimalType):
        return scalar.DecimalCodec(spark_type)
    if isinstance(spark_type, (T.FloatType, T.DoubleType)):
        return floats(spark_type)
    time_type = getattr(T, "TimeType", None)
    if time_type is not None and isinstance(spark_type, time_type):
        return scalar.TimeCodec(spark_type)
    for types, codec in _SCALARS:
        if isinstance(spark_type, types):
            return codec(spark_type)
    return Codec(spark_type)
