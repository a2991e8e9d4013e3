"""State variables as tables: which columns they have, and how stored sections become them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from anabranch.errors import StateMismatch
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.columnar.aggregates import WINDOW_END, WINDOW_START
from anabranch.spark import state_types
from anabranch.state.arrow_types import arrow_type
from anabranch.state.columnar.compare import equal, list_parts
from anabranch.state.columnar.layout import SECTION, ColumnarLayout
from anabranch.state.columnar.table import GroupTable
from anabranch.state.columnar.values import flat
from anabranch.state.contract import GroupState
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import EXPIRY, POSITION, TIMERS, Kind, RowLayout, VariableSpec

KEY, WINDOW, KEY_GROUP = "key", "window", "key_group"
TIMER_COLUMN = "expiration_timestamp_ms"
TTL_COLUMN = "ttlExpirationMs"

Columns = list[Any]
Read = Callable[[pa.Table], tuple[Columns, Columns]]
"""Key columns and payload columns of a section."""


@dataclass(frozen=True)
class Shape:
    """One state variable as a table; columns are those of Spark's `statestore` source."""

    variable: str
    kind: str
    """"value", "list", "map", "timers", "aggregate", "sessions" or "columnar"."""
    section: str
    key_schema: T.StructType
    payload: T.StructType
    """The columns after the key."""
    create: Callable[[], GroupState]
    """Empty state that reads no other variable."""
    columns: Read
    ttl: bool = False

    @property
    def schema(self) -> T.StructType:
        """The columns of the DataFrame."""
        key = [T.StructField(KEY, self.key_schema)] if self.key_schema.fields else []
        group = T.StructField(KEY_GROUP, T.IntegerType())
        return T.StructType([*key, *self.payload.fields, group])

    def table(self, state: GroupState, group: int) -> pa.Table:
        """A key group's entries, in Arrow types that Spark takes for the schema."""
        entries = state.export()[self.section]
        keys, columns = self.columns(entries)
        size = len(columns[0])
        if keys:
            columns = [_struct(keys, self.key_schema), *columns]
        columns.append(pa.repeat(pa.scalar(group, pa.int32()), size))
        kinds = arrow_type(self.schema)
        arrays = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, kinds, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=pa.schema(list(kinds)))


def shapes_of(
    description: Mapping[str, Any], keyspace: KeySpace, flatten: bool = True
) -> dict[str, Shape]:
    """The state variables of an operator by name, timers included; the first is the default."""
    match description.get("kind"):
        case "transform_with_state":
            return _row_shapes(description, keyspace, flatten)
        case "columnar":
            shape = _columnar_shape(description, keyspace)
            return {shape.variable: shape}
        case unknown:
            raise StateMismatch(
                f"The location has an operator of kind {unknown!r}, which this release cannot "
                "read. Use the release of Anabranch that wrote it, or a newer one."
            )


# -- rows --


def _row_shapes(
    description: Mapping[str, Any], keyspace: KeySpace, flatten: bool
) -> dict[str, Shape]:
    key_schema = T.StructType(
        [T.StructField(k["name"], state_types.spark_type(k["type"])) for k in description["key"]]
    )
    variables: Mapping[str, Any] = description["variables"]
    names = frozenset((*variables, *description["deleted"], TIMERS))
    width = len(key_schema.fields)

    def layout(spec: VariableSpec | None) -> RowLayout:
        # What `deleted` names is passed over when files are read.
        read = TIMERS if spec is None else spec.name
        specs = [] if spec is None else [spec]
        return RowLayout(key_schema, specs, keyspace, names - {read})

    def timers(entries: pa.Table) -> tuple[Columns, Columns]:
        keys = _flat(entries.columns[1 : 1 + width])
        return keys, [flat(entries.column(EXPIRY))]

    found = {}
    for name, known in variables.items():
        spec = VariableSpec(
            name,
            known["kind"],
            state_types.spark_struct(known["value"]),
            known["user_key"] and state_types.spark_struct(known["user_key"]),
            1 if known["ttl"] else None,
            tuple(description.get("removed", {}).get(name, {}).items()),
        )
        found[name] = _row_shape(spec, key_schema, layout(spec), flatten)
    payload = T.StructType([T.StructField(TIMER_COLUMN, T.LongType())])
    empty = layout(None)
    found[TIMERS] = Shape(
        TIMERS, "timers", TIMERS, key_schema, payload, lambda: RowGroupState(empty), timers
    )
    return found


def _row_shape(
    spec: VariableSpec, key_schema: T.StructType, layout: RowLayout, flatten: bool
) -> Shape:
    value: T.DataType = spec.value_schema
    if spec.ttl_ms is not None:
        value = T.StructType(
            [T.StructField("value", value), T.StructField(TTL_COLUMN, T.LongType())]
        )
    payload = _payload(spec.kind, spec.user_key_schema, value, flatten)
    width = len(key_schema.fields)
    user_width = len(spec.user_key_schema.fields) if spec.user_key_schema else 0

    def columns(entries: pa.Table) -> tuple[Columns, Columns]:
        parts = _flat(entries.columns[1:])
        keys, rest = parts[:width], parts[width:]
        user_key = rest[:user_width]
        at = user_width + (POSITION in entries.column_names)
        values = _struct(rest[at : at + len(spec.value_schema.fields)], spec.value_schema)
        if spec.ttl_ms is not None:
            assert isinstance(value, T.StructType)
            values = _struct([values, rest[-1]], value)
        made = [_struct(user_key, spec.user_key_schema)] if spec.user_key_schema else []
        made.append(values)
        if flatten or spec.kind == "value":
            return keys, made
        starts = _starts(flat(entries.column(HASH)), keys)
        offsets = pa.array(np.append(starts, entries.num_rows).astype(np.int32))
        kind = arrow_type(payload.fields[0].dataType)
        nested: Any = pa.ListArray if spec.kind == "list" else pa.MapArray
        collected = nested.from_arrays(offsets, *made).cast(kind)
        return [key.take(starts) for key in keys], [collected]

    def create() -> GroupState:
        return RowGroupState(layout)

    ttl = spec.ttl_ms is not None
    return Shape(spec.name, spec.kind, spec.name, key_schema, payload, create, columns, ttl)


def _payload(
    kind: Kind, user_key: T.StructType | None, value: T.DataType, flatten: bool
) -> T.StructType:
    named: list[tuple[str, T.DataType]]
    if kind == "value":
        named = [("value", value)]
    elif kind == "list":
        named = [("list_element", value) if flatten else ("list_value", T.ArrayType(value))]
    else:
        assert user_key is not None
        if flatten:
            named = [("user_map_key", user_key), ("user_map_value", value)]
        else:
            named = [("map_value", T.MapType(user_key, value))]
    return T.StructType([T.StructField(name, kind) for name, kind in named])


def _starts(hashes: Any, keys: Sequence[Any]) -> Any:
    """Where another key begins; the entries of a key are side by side."""
    size = len(hashes)
    is_first = np.ones(size, bool)
    if size > 1:
        values = hashes.to_numpy()
        is_first[1:] = values[1:] != values[:-1]
        for key in keys:
            is_first[1:] |= ~equal(key.slice(1), key.slice(0, size - 1))
    return np.flatnonzero(is_first)


# -- columns --


def _columnar_shape(description: Mapping[str, Any], keyspace: KeySpace) -> Shape:
    keys = pa.schema([pa.field(n, state_types.arrow_type(t)) for n, t in description["keys"]])
    state = pa.schema([pa.field(n, state_types.arrow_type(t)) for n, t in description["state"]])
    layout = ColumnarLayout(keys, state)
    operation = description.get("operation")
    width = len(keys)

    def create() -> GroupState:
        return GroupTable(layout, keyspace)

    def plain(entries: pa.Table) -> tuple[Columns, Columns]:
        parts = _flat(entries.columns[1:])
        return parts[:width], parts[width:]

    named = [(field.name, field.type) for field in state]
    read: Read = plain
    if operation == "sessions":
        read, named = _by_session(plain), _session_fields(state)
    key_fields = [(field.name, field.type) for field in keys]
    windowed = WINDOW_START in keys.names
    if windowed or operation == "sessions":
        if windowed:
            moment = keys.field(WINDOW_START).type
            key_fields = [f for f in key_fields if f[0] not in (WINDOW_START, WINDOW_END)]
        else:
            moment = state.field(0).type.value_type.field("start").type
        key_fields.append((WINDOW, pa.struct([("start", moment), ("end", moment)])))
    key_schema = _spark_struct(key_fields)
    value, nest = _values(named, operation in ("aggregate", "sessions"))
    payload = T.StructType([T.StructField("value", value)])

    def columns(entries: pa.Table) -> tuple[Columns, Columns]:
        found, values = read(entries)
        if windowed or operation == "sessions":
            bounds = pa.StructArray.from_arrays(found[-2:], names=["start", "end"])
            found = [*found[:-2], bounds]
        return found, [nest(values)]

    kind = operation if operation in ("aggregate", "sessions") else "columnar"
    return Shape(SECTION, kind, SECTION, key_schema, payload, create, columns)


def _session_fields(state: pa.Schema) -> list[tuple[str, Any]]:
    session = state.field(0).type.value_type
    fields = [session.field(i) for i in range(session.num_fields)]
    return [(field.name, field.type) for field in fields[2:]]


def _by_session(plain: Read) -> Read:
    """A row for each open session of a key, start and end after the key columns."""

    def read(entries: pa.Table) -> tuple[Columns, Columns]:
        keys, state = plain(entries)
        offsets, values = list_parts(state[0])
        of_session = np.repeat(np.arange(len(state[0])), np.diff(offsets))
        start, end, *rest = values.flatten()
        return [*(key.take(of_session) for key in keys), start, end], rest

    return read


def _values(
    named: Sequence[tuple[str, Any]], nested: bool
) -> tuple[T.StructType, Callable[[Columns], Any]]:
    """The struct of all state columns; those of an aggregate are a struct of its name."""
    if not nested:
        kind = _spark_struct(named)
        return kind, lambda columns: _struct(columns, kind)
    measures: dict[str, list[tuple[str, Any]]] = {}
    for name, type_ in named:
        measure, _, part = name.rpartition(".")
        measures.setdefault(measure, []).append((part, type_))
    inner = {measure: _spark_struct(parts) for measure, parts in measures.items()}
    outer = T.StructType([T.StructField(name, kind) for name, kind in inner.items()])

    def nest(columns: Columns) -> Any:
        rest = iter(columns)
        structs = [_struct([next(rest) for _ in kind.fields], kind) for kind in inner.values()]
        return _struct(structs, outer)

    return outer, nest


def _spark_struct(named: Sequence[tuple[str, Any]]) -> T.StructType:
    return T.StructType(
        [T.StructField(name, from_arrow_type(t, prefer_timestamp_ntz=True)) for name, t in named]
    )


def _struct(columns: Sequence[Any], kind: T.StructType) -> Any:
    """Columns as one column, in the types that Spark takes."""
    fields = list(arrow_type(kind))
    arrays = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    return pa.StructArray.from_arrays(arrays, fields=fields)


def _flat(columns: Sequence[Any]) -> Columns:
    return [flat(column) for column in columns]
