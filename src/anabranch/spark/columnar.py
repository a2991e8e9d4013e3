"""Plans for columnar operators: what Spark computes before the shuffle, what workers do."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import GROUP, HASH, OP
from anabranch.processor.columnar.api import ColumnarProcessor
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.sites import PlacedBy
from anabranch.spark.plan import OperatorPlan, check_site, hash_of
from anabranch.state.columnar.layout import nullable

WATERMARK_DELAY = "spark.watermarkDelayMs"
"""Metadata key of an event-time column, as Spark sets it."""

_RESERVED = frozenset({HASH, GROUP, OP})


def plan_columnar(
    df: DataFrame,
    keys: Sequence[Column | str],
    processor: ColumnarProcessor,
    output_schema: StructType | str,
    *,
    event_time: str | None = None,
    placed_by: PlacedBy | None = None,
) -> OperatorPlan:
    """A user's columnar processor on the rows of `df`, grouped by `keys`.

    The processor sees all columns of `df`. With `event_time` (a column with a watermark), rows at
    or before the watermark are dropped as late.
    """
    wanted = df.select(*keys).schema.fields if keys else []
    names = [field.name for field in wanted]
    check_names([*names, *processor.state_schema.names])
    rest = [name for name in df.columns if name not in names]
    rows = df.select(*(as_column(k).alias(n) for k, n in zip(keys, names, strict=True)), *rest)
    schema = _output_type(df, output_schema)
    check_site(placed_by, wanted)
    expires = processor.expiry is not None
    late = None
    if event_time is not None:
        if WATERMARK_DELAY not in rows.schema[event_time].metadata:
            raise InvalidArgument(
                f"Column {event_time} has no watermark. Call withWatermark on it before grouping."
            )
        late = event_time
    definition = ColumnarDefinition(
        processor=processor,
        key_schema=arrow_schema(StructType(rows.schema.fields[: len(names)])),
        input_schema=arrow_schema(rows.schema),
        output_schema=nullable(arrow_schema(schema)),
        late=late,
        placed_by=placed_by,
    )
    return OperatorPlan(
        input=with_hash(rows, names, placed_by),
        definition=definition,
        output_schema=schema,
        time_mode="eventtime" if expires else "none",
    )


def as_column(key: Column | str) -> Column:
    """A column given by name or as an expression."""
    return F.col(key) if isinstance(key, str) else key


def check_names(names: Sequence[str]) -> None:
    """Raise if a name is used twice or is one of ours."""
    seen: set[str] = set()
    for name in names:
        if name in _RESERVED:
            raise InvalidArgument(f"Column name {name} is reserved. Rename the column.")
        if name in seen:
            raise InvalidArgument(f"Column name {name} is used twice. Rename one of the columns.")
        seen.add(name)


def with_hash(rows: DataFrame, keys: Sequence[str], placed_by: PlacedBy | None = None) -> DataFrame:
    """The rows with HASH first; maps in keys are sorted, so that equal ones match."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    for name in keys:
        check_key(name, types[name])
    columns = {name: quoted(name) for name in rows.columns}
    for name in keys:
        if _has_map(types[name]):
            columns[name] = _sorted_maps(columns[name], types[name])
    hashed = [_hashable(columns[name], types[name]) for name in keys]
    site = None if placed_by is None else columns[placed_by.column]
    placed = hash_of(hashed, placed_by, site)
    return rows.select(placed.alias(HASH), *(c.alias(n) for n, c in columns.items()))


def quoted(name: str) -> Column:
    """A top-level column, whatever characters its name has."""
    return F.col("`" + name.replace("`", "``") + "`")


def check_key(name: str, kind: DataType) -> None:
    """Raise if columns of the type cannot be compared by their bytes."""
    for part in _parts(kind):
        if isinstance(part, StringType) and part.collation not in ("UTF8_BINARY", None):
            raise InvalidArgument(
                f"Key column {name} has the collation {part.collation}, in which different "
                "texts are equal. Group by lower(...) or cast it to a UTF8_BINARY string."
            )


def _parts(kind: DataType) -> list[DataType]:
    if isinstance(kind, ArrayType):
        return [kind, *_parts(kind.elementType)]
    if isinstance(kind, MapType):
        return [kind, *_parts(kind.keyType), *_parts(kind.valueType)]
    if isinstance(kind, StructType):
        return [kind, *(p for f in kind.fields for p in _parts(f.dataType))]
    return [kind]


def _has_map(kind: DataType) -> bool:
    return any(isinstance(part, MapType) for part in _parts(kind))


def _entries(column: Column, kind: MapType) -> Column:
    """A map's entries in the order of their keys (Spark compares maps in this form)."""
    entries = F.map_entries(column)
    if _has_map(kind.valueType):
        entries = F.transform(
            entries,
            lambda e: F.struct(e["key"], _sorted_maps(e["value"], kind.valueType).alias("value")),
        )
    return F.array_sort(
        entries,
        lambda a, b: F.when(a["key"] < b["key"], -1).when(a["key"] > b["key"], 1).otherwise(0),
    )


def _sorted_maps(column: Column, kind: DataType) -> Column:
    """The value with every map in it in the order of its keys."""
    if not _has_map(kind):
        return column
    if isinstance(kind, MapType):
        return F.map_from_entries(_entries(column, kind))
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda element: _sorted_maps(element, kind.elementType))
    assert isinstance(kind, StructType)
    fields = [_sorted_maps(column[f.name], f.dataType).alias(f.name) for f in kind.fields]
    return F.when(column.isNotNull(), F.struct(*fields))


def _hashable(column: Column, kind: DataType) -> Column:
    """The value with its (sorted) maps as arrays of entries, which Spark can hash."""
    if not _has_map(kind):
        return column
    if isinstance(kind, MapType):
        return F.transform(
            F.map_entries(column),
            lambda e: F.struct(e["key"], _hashable(e["value"], kind.valueType).alias("value")),
        )
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda element: _hashable(element, kind.elementType))
    assert isinstance(kind, StructType)
    return F.struct(*(_hashable(column[f.name], f.dataType).alias(f.name) for f in kind.fields))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Arrow columns for Spark columns, with timestamps in UTC."""
    options: dict[str, Any] = {}
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        options["timezone"] = "UTC"
    made = to_arrow_schema(StructType([_plain(f) for f in schema.fields]), **options)
    return pa.schema([pa.field(f.name, f.type, f.nullable) for f in made])


def _plain(field: StructField) -> StructField:
    return StructField(field.name, field.dataType, field.nullable)


def _output_type(df: DataFrame, schema: StructType | str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    parsed = df.sparkSession.createDataFrame([], schema).schema
    return parsed
