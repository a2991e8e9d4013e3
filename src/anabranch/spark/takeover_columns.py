"""What Spark's own operators keep, in the columns that ours would have; computed in the JVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from anabranch.errors import StateMismatch
from anabranch.model.keyspace import HASH, OP, UPSERT
from anabranch.processor.columnar.aggregates import WINDOW_START, Measure
from anabranch.processor.columnar.decimals import DecimalAverage, DecimalSum
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.hll import DistinctCount
from anabranch.processor.columnar.kernels import Average, Count, Kernel, Sum
from anabranch.processor.columnar.selection import Extreme, Nth
from anabranch.processor.rows.definition import RowOperatorDefinition
from anabranch.spark.columnar import quoted, with_hash
from anabranch.spark.plan import hash_of
from anabranch.spark.state_shapes import TIMER_COLUMN, TTL_COLUMN
from anabranch.state.rows.layout import EXPIRY, POSITION, VariableSpec

Read = Callable[..., DataFrame]
"""Reads one operator of a checkpoint with options of Spark's `statestore` source."""

Named = list[tuple[str, Column]]

_REGISTERS_PER_WORD = 10
_REGISTER_BITS = 6


# -- transformWithState --


def variable_section(
    read: Read, definition: RowOperatorDefinition, spec: VariableSpec
) -> DataFrame:
    """Entries of a state variable: HASH, OP, then columns as in its changelog."""
    options = {"stateVarName": spec.name, "flattenCollectionTypes": "true"}
    if spec.kind == "list":
        options["flattenCollectionTypes"] = "false"
        frame = read(**options)
        frame = frame.select("key", F.posexplode("list_value").alias(POSITION, "value"))
    else:
        frame = read(**options)
    columns: Named = []
    if spec.user_key_schema is not None:
        columns += _fields(frame, "user_map_key", spec.user_key_schema, "user_key.", spec.name)
        frame = frame.withColumnRenamed("user_map_value", "value")
    if spec.kind == "list":
        columns.append((POSITION, F.col(POSITION)))
    expiry: Named = []
    has_ttl = _is_expiring(frame.schema["value"].dataType)
    if has_ttl != (spec.ttl_ms is not None):
        raise StateMismatch(
            f"State variable {spec.name!r} {'has' if has_ttl else 'has no'} TTL in the checkpoint, "
            f"but {'no' if has_ttl else 'a'} TTL in the processor. Define it as it was."
        )
    if has_ttl:
        expiry = [(EXPIRY, F.col(f"value.{TTL_COLUMN}"))]
        frame = frame.select("*", F.col("value.value").alias("bare"))
    value = "bare" if has_ttl else "value"
    columns += _fields(frame, value, spec.value_schema, "value.", spec.name)
    return _keyed(frame, definition, [*columns, *expiry])


def timer_section(read: Read, definition: RowOperatorDefinition) -> DataFrame:
    """Entries of the timers."""
    frame = read(readRegisteredTimers="true")
    return _keyed(frame, definition, [(EXPIRY, F.col(TIMER_COLUMN))])


def _keyed(frame: DataFrame, definition: RowOperatorDefinition, rest: Named) -> DataFrame:
    keys = _fields(frame, "key", definition.key_schema, "key.", "the key")
    site = None
    if definition.placed_by is not None:
        site = keys[definition.key_schema.names.index(definition.placed_by.column)][1]
    hashed = hash_of([column for _, column in keys], definition.placed_by, site)
    return _entries(frame, hashed, [*keys, *rest])


def _entries(frame: DataFrame, hashed: Column, columns: Named) -> DataFrame:
    upsert = F.lit(UPSERT).cast("byte")
    named = [column.alias(name) for name, column in columns]
    return frame.select(hashed.alias(HASH), upsert.alias(OP), *named)


def _is_expiring(kind: T.DataType) -> bool:
    return isinstance(kind, T.StructType) and kind.names == ["value", TTL_COLUMN]


def _fields(frame: DataFrame, struct: str, wanted: T.StructType, prefix: str, what: str) -> Named:
    """The fields of a struct by position, if their types are those that are wanted."""
    kind = frame.schema[struct].dataType
    assert isinstance(kind, T.StructType)
    found = [field.dataType.simpleString() for field in kind.fields]
    expected = [field.dataType.simpleString() for field in wanted.fields]
    if found != expected:
        raise StateMismatch(
            f"The checkpoint has ({', '.join(found)}) for {what}, the query has "
            f"({', '.join(expected)}). Use the types of the old query."
        )
    if kind.names != wanted.names and sorted(kind.names) == sorted(wanted.names):
        raise StateMismatch(
            f"The checkpoint has the columns {', '.join(kind.names)} for {what}, the query has "
            f"{', '.join(wanted.names)}. Use the order of the old query."
        )
    columns = _by_position(F.col(struct), kind)
    return [(prefix + f.name, column) for f, column in zip(wanted.fields, columns, strict=True)]


def _by_position(struct: Column, kind: T.StructType) -> list[Column]:
    """Fields of a struct, whose names may be used twice."""
    numbered = T.StructType([T.StructField(f"c{i}", f.dataType) for i, f in enumerate(kind.fields)])
    cast = struct.cast(numbered)
    return [cast.getField(name) for name in numbered.names]


# -- aggregates --


def aggregate_section(read: Read, definition: ColumnarDefinition) -> DataFrame:
    """Entries of an aggregate; those of sessions are collected by key."""
    frame = read()
    sessions = definition.processor.describe().get("operation") == "sessions"
    measures: Sequence[Measure] = definition.processor.measures  # type: ignore[attr-defined]
    key_kind, value_kind = frame.schema["key"].dataType, frame.schema["value"].dataType
    assert isinstance(key_kind, T.StructType)
    assert isinstance(value_kind, T.StructType)
    keys = _aggregate_keys(key_kind, definition, sessions)
    values = list(zip(value_kind.fields, _by_position(F.col("value"), value_kind), strict=True))
    bounds: Named = []
    if sessions:
        if len(values) < len(keys) + 1 or not _is_window(values[len(keys)][0].dataType):
            raise _unlike(measures, value_kind)
        window = values[len(keys)][1]
        bounds = [("start", window.getField("start")), ("end", window.getField("end"))]
        values = values[len(keys) + 1 :]
    state = _state_columns(measures, values, value_kind)
    if not sessions:
        named = [column.alias(name) for name, column in (*keys, *state)]
        names = [name for name, _ in keys]
        return _with_op(with_hash(frame.select(*named), names, definition.placed_by))
    parts = [column.alias(name) for name, column in (*bounds, *state)]
    rows = frame.select(*(column.alias(n) for n, column in keys), F.struct(*parts).alias("__s"))
    names = [name for name, _ in keys]
    collected = rows.groupBy(*map(quoted, names)).agg(
        F.array_sort(F.collect_list("__s"), _by_start).alias("sessions"),
        F.min("__s.end").alias("next_end"),
    )
    return _with_op(with_hash(collected, names, definition.placed_by))


def _by_start(a: Column, b: Column) -> Column:
    return F.when(a["start"] < b["start"], -1).when(a["start"] > b["start"], 1).otherwise(0)


def _with_op(hashed: DataFrame) -> DataFrame:
    rest = [quoted(name) for name in hashed.columns if name != HASH]
    return hashed.select(F.col(HASH), F.lit(UPSERT).cast("byte").alias(OP), *rest)


def _aggregate_keys(kind: T.StructType, definition: ColumnarDefinition, sessions: bool) -> Named:
    """Our key columns out of Spark's key, in which a window may be at any place."""
    fields = list(zip(kind.fields, _by_position(F.col("key"), kind), strict=True))
    ours = definition.key_schema
    bounds: list[Column] = []
    if sessions:
        fields.pop()  # the session's start: bounds come with the values
    if WINDOW_START in ours.names:
        at = [i for i, (field, _) in enumerate(fields) if _is_window(field.dataType)]
        if not at:
            raise StateMismatch(
                "The query groups by a window, but the checkpoint's key has none: "
                f"{kind.simpleString()}. Define the windows of the old query."
            )
        window = fields.pop(at[0])[1]
        bounds = [window.getField("start"), window.getField("end")]
    plain = ours.names[: len(ours.names) - len(bounds)]
    if sorted(field.name for field, _ in fields) == sorted(plain):  # another order is no harm
        fields.sort(key=lambda item: plain.index(item[0].name))
    types = [_spark(ours.field(name).type) for name in plain]
    found = [field.dataType.simpleString() for field, _ in fields]
    if found != types:
        raise StateMismatch(
            f"The checkpoint's key is {kind.simpleString()}, the query groups by "
            f"({', '.join(types)}). Group by the columns of the old query."
        )
    columns = [*(column for _, column in fields), *bounds]
    return list(zip(ours.names, columns, strict=True))


def _is_window(kind: T.DataType) -> bool:
    return isinstance(kind, T.StructType) and kind.names == ["start", "end"]


Buffers = Sequence[tuple[T.StructField, Column]]


def _state_columns(measures: Sequence[Measure], values: Buffers, kind: T.StructType) -> Named:
    """Our state columns, aggregate by aggregate, as their buffers come in Spark."""
    made: Named = []
    at = 0
    for measure in measures:
        for pattern, convert in _mappings(measure.kernel):
            given = values[at : at + len(pattern)]
            if [(f.name, f.dataType.simpleString()) for f, _ in given] == pattern:
                columns = convert([column for _, column in given])
                made += zip((f.name for f in measure.fields), columns, strict=True)
                at += len(pattern)
                break
        else:
            raise _unlike(measures, kind)
    if at < len(values):
        raise _unlike(measures, kind)
    return made


Mapping = tuple[list[tuple[str, str]], Callable[[list[Column]], list[Column]]]


def _mappings(kernel: Kernel) -> list[Mapping]:
    """The buffers that Spark may keep for an aggregate, and how they become ours."""
    types = [_spark(field.type) for field in kernel.fields]
    match kernel:
        case Count():
            return [([("count", "bigint")], _same)]
        case Sum():
            return [([("sum", types[0])], _same)]
        case Average():
            return [([("sum", types[0]), ("count", "bigint")], _same)]
        case Extreme():
            return [([(kernel.fields[0].name, types[0])], _same)]
        case Nth():
            return [([(kernel.fields[0].name, types[0]), ("valueSet", "boolean")], _same)]
        case DecimalSum():
            return [
                ([("sum", types[0]), ("isEmpty", "boolean")], _decimal_sum),
                ([("sum", "bigint")], lambda c: [_unscaled(c[0], kernel), F.lit(False)]),
            ]
        case DecimalAverage():
            return [
                (
                    [("sum", types[0]), ("count", "bigint")],
                    lambda c: [F.when(c[1] > 0, c[0]), c[0].isNull() & (c[1] > 0), c[1]],
                ),
                (
                    [("sum", "double"), ("count", "bigint")],
                    lambda c: [F.when(c[1] > 0, _unscaled(c[0], kernel)), F.lit(False), c[1]],
                ),
            ]
        case DistinctCount():
            size = kernel.fields[0].type.byte_width
            words = -(-size // _REGISTERS_PER_WORD)
            pattern = [(f"MS[{i}]", "bigint") for i in range(words)]
            return [(pattern, lambda c: [_registers(c, size)])]
    return []


def _same(columns: list[Column]) -> list[Column]:
    return columns


def _decimal_sum(columns: list[Column]) -> list[Column]:
    total, is_empty = columns
    return [F.when(~is_empty, total), total.isNull() & ~is_empty]


def _unscaled(column: Column, kernel: Kernel) -> Column:
    """Spark adds up short decimals without their point."""
    kind = kernel.fields[0].type
    unit = F.lit(Decimal(1).scaleb(-kind.scale)).cast(T.DecimalType(kind.scale + 1, kind.scale))
    return (column.cast(T.DecimalType(20, 0)) * unit).cast(_spark(kind))


def _registers(words: list[Column], size: int) -> Column:
    """HyperLogLog++ registers, six bits each in Spark's words, one byte each here."""
    packed = F.array(*words)

    def register(at: Column) -> Column:
        word = F.element_at(packed, (F.floor(at / _REGISTERS_PER_WORD) + 1).cast("int"))
        shift = (F.pmod(at, F.lit(_REGISTERS_PER_WORD)) * _REGISTER_BITS).cast("int")
        value = F.call_function("shiftright", word, shift).bitwiseAND(F.lit(63).cast("bigint"))
        return F.lpad(F.hex(value), 2, "0")

    digits = F.transform(F.sequence(F.lit(0), F.lit(size - 1)), register)
    return F.unhex(F.array_join(digits, ""))


def _unlike(measures: Sequence[Measure], kind: T.StructType) -> StateMismatch:
    wanted = ", ".join(f"{m.name}: {type(m.kernel).__name__}" for m in measures)
    found = ", ".join(f"{f.name}: {f.dataType.simpleString()}" for f in kind.fields)
    return StateMismatch(
        f"The checkpoint's aggregate keeps ({found}), which is not what the aggregates of the "
        f"query ({wanted}) keep in Spark. Give the same functions in the same order, each once; "
        "functions other than those of anabranch.agg have no counterpart here."
    )


def _spark(kind: Any) -> str:
    return str(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())
