"""Stored columns of an older shape as the columns that a processor defines now."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def reshaped(column: Any, wanted: Any) -> Any:
    """An Arrow array in another type: fields by their names, numbers as wider ones."""
    kind = column.type
    if kind.equals(wanted):
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(wanted):
        return _struct(column, wanted)
    if pa.types.is_list(kind) and pa.types.is_list(wanted):
        values = reshaped(column.flatten(), wanted.value_type)
        lengths = column.value_lengths()
        return _nested(column, wanted, lengths, values)
    if pa.types.is_map(kind) and pa.types.is_map(wanted):
        return _map(column, wanted)
    return pc.cast(column, wanted, safe=False)  # a long may be rounded to a double


def _struct(column: Any, wanted: Any) -> Any:
    stored = dict(zip((each.name for each in column.type), column.flatten(), strict=True))
    size = len(column)
    children = [
        reshaped(stored[each.name], each.type) if each.name in stored else pa.nulls(size, each.type)
        for each in wanted
    ]
    if not children:
        return pa.Array.from_buffers(wanted, size, [_validity(column)], column.null_count)
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=pc.is_null(column))


def _map(column: Any, wanted: Any) -> Any:
    starts = column.offsets.to_numpy()
    lengths = pa.array(np.diff(starts).astype(np.int32))
    inside = slice(int(starts[0]), int(starts[-1]))
    keys = reshaped(column.keys[inside], wanted.key_type)
    items = reshaped(column.items[inside], wanted.item_type)
    entries = pa.StructArray.from_arrays(
        [keys, items], fields=[wanted.key_field, wanted.item_field]
    )
    return _nested(column, wanted, lengths, entries)


def _nested(column: Any, wanted: Any, lengths: Any, values: Any) -> Any:
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(pc.fill_null(lengths, 0).to_numpy(zero_copy_only=False), out=offsets[1:])
    buffers = [_validity(column), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(wanted, len(column), buffers, column.null_count, children=[values])


def _validity(column: Any) -> Any:
    return pc.is_valid(column).buffers()[1] if column.null_count else None
