"""How an entry (key columns and state columns) is packed into one record of fixed width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import DELETE, HASH, KEPT, OP, UPSERT, Int64s
from anabranch.state.columnar.values import Bools, Values, flat, storage_dtype, to_arrow, to_numpy

SECTION = "state"
"""The only section: one row an entry."""

Records = npt.NDArray[np.void]

Unchanged = Mapping[str, Bools]
"""Which values of columns (by `RecordColumn.value`) are what they were."""

KEPT_BITS = 64


@dataclass(frozen=True, slots=True)
class RecordColumn:
    """Where one column is in the record."""

    name: str
    kind: pa.DataType
    nullable: bool
    value: str
    """Field with the value, or with the row number in the arena."""
    valid: str | None
    """Field with the validity; None if there are no nulls, or the row number tells."""
    in_arena: bool


class ColumnarLayout:
    """Columns of a table: keys first, then state."""

    def __init__(self, keys: pa.Schema, state: pa.Schema, expiry: str | None = None) -> None:
        self.keys = keys
        self.state = state
        self.expiry = expiry
        fields: list[tuple[str, Any]] = []
        self.key_parts = [_part(f"k{i}", field, fields) for i, field in enumerate(keys)]
        self.state_parts = [_part(f"s{i}", field, fields) for i, field in enumerate(state)]
        self.parts = [*self.key_parts, *self.state_parts]
        self.arena_parts = [part for part in self.parts if part.in_arena]
        self.record = np.dtype(fields or [("none", np.bool_)])
        self.raw = np.dtype(f"V{self.record.itemsize}")
        self.expiry_part = next((p for p in self.parts if p.name == expiry), None)
        self.columns = [HASH, *keys.names, *state.names]

    def decode(self, part: RecordColumn, records: Records) -> tuple[Values, Bools | None]:
        """Values (or arena rows) and validity of one column, contiguous."""
        valid = None if part.valid is None else np.ascontiguousarray(records[part.valid])
        return np.ascontiguousarray(records[part.value]), valid

    def encode(self, part: RecordColumn, array: Any, records: Records) -> None:
        """Write a fixed-width column into records."""
        values, valid = to_numpy(array)
        records[part.value] = values
        if part.valid is not None:
            records[part.valid] = True if valid is None else valid
        elif valid is not None:
            raise ValueError(f"column {part.name} must not be null")

    def section(self, hashes: Int64s, columns: Sequence[Any]) -> pa.Table:
        """Entries as `export` gives them."""
        arrays = [pa.array(hashes), *columns]
        return pa.Table.from_arrays(arrays, schema=self.export_schema)

    @property
    def export_schema(self) -> pa.Schema:
        """HASH, keys, state; all nullable, so that the type depends on nothing else."""
        fields = [pa.field(f.name, f.type) for f in (*self.keys, *self.state)]
        return pa.schema([pa.field(HASH, pa.int64()), *fields])

    @property
    def log_schema(self) -> pa.Schema:
        """HASH, OP, keys, state."""
        return self.export_schema.insert(1, pa.field(OP, pa.uint8()))

    def log_upserts(
        self, hashes: Int64s, keys: Sequence[Any], state: Sequence[Any], unchanged: Unchanged
    ) -> pa.Table:
        """Changelog entries with what has changed."""
        columns, bits = list(state), np.zeros(len(hashes), np.uint64)
        for i, part in enumerate(self.state_parts[:KEPT_BITS]):
            mask = unchanged.get(part.value)
            if mask is not None and mask.any():
                bits |= mask.astype(np.uint64) << np.uint64(i)
                # Not if_else: it keeps the bytes behind the nulls that it makes.
                columns[i] = columns[i].take(pa.array(np.arange(len(mask)), mask=mask))
        table = self._log_table(hashes, UPSERT, keys, columns)
        return table.append_column(KEPT, pa.array(bits)) if bits.any() else table

    def log_deletions(self, hashes: Int64s, keys: Sequence[Any]) -> pa.Table:
        """Changelog entries without state."""
        columns = [pa.nulls(len(hashes), field.type) for field in self.state]
        return self._log_table(hashes, DELETE, keys, columns)

    def _log_table(
        self, hashes: Int64s, op: int, keys: Sequence[Any], state: Sequence[Any]
    ) -> pa.Table:
        ops = pa.array(np.full(len(hashes), op, np.uint8))
        return pa.Table.from_arrays([pa.array(hashes), ops, *keys, *state], schema=self.log_schema)


def _part(prefix: str, field: pa.Field, fields: list[tuple[str, Any]]) -> RecordColumn:
    dtype = storage_dtype(field.type)
    fields.append((prefix, np.dtype(np.int32) if dtype is None else dtype))
    valid = None
    if dtype is not None and field.nullable:
        valid = prefix + "v"
        fields.append((valid, np.dtype(np.bool_)))
    return RecordColumn(field.name, field.type, field.nullable, prefix, valid, dtype is None)


def fixed(part: RecordColumn, values: Values, valid: Bools | None) -> Any:
    """Decoded values of a fixed-width column as an Arrow array."""
    return to_arrow(values, valid, part.kind)


def stored_columns(table: pa.Table, schema: pa.Schema) -> list[Any]:
    """The same for stored entries, which may be older than some of the columns."""
    found = []
    for field in schema:
        if field.name in table.column_names:
            found += columns_of(table, pa.schema([field]))
        elif field.nullable:
            found.append(pa.nulls(len(table), field.type))
        else:
            dtype = storage_dtype(field.type)
            found.append(to_arrow(np.zeros(len(table), dtype), None, field.type))
    return found


def columns_of(table: pa.Table, schema: pa.Schema) -> list[Any]:
    """The columns of a table that a schema names, as single arrays of its types."""
    found = []
    for field in schema:
        array = flat(table.column(field.name))
        found.append(array if array.type == field.type else array.cast(field.type))
    return found


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema with all columns nullable."""
    return pa.schema([pa.field(f.name, f.type) for f in schema])
