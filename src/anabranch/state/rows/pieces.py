"""What was captured for a lookup, as Arrow tables of bounded size: a large map takes many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from anabranch.state.rows.cells import Captured
from anabranch.state.rows.layout import RowLayout, Variable
from anabranch.state.rows.sections import SectionRows

ENTRIES_MAX = 8192
BYTES_MAX = 4 << 20
"""Of text and of bytes in one piece; a larger value is a piece of its own."""


def in_pieces(
    layout: RowLayout, variable: Variable | None, found: Iterable[Captured]
) -> Iterator[pa.Table]:
    """Entries of keys, those of a key in their order, made when they are taken."""
    rows, size = SectionRows(), 0
    has_sizes = variable is not None and variable.value.is_bulky
    for captured in found:
        for user_key, position, cell in _entries_of(variable, captured):
            rows.add_entry(captured.hashed, captured.key, user_key, position, cell)
            if has_sizes:
                size += _bytes_of(variable, cell)
            if len(rows.cells) >= ENTRIES_MAX or size >= BYTES_MAX:
                yield rows.table(layout, variable, changelog=False)
                rows, size = SectionRows(), 0
    if rows.cells:
        yield rows.table(layout, variable, changelog=False)


def _entries_of(
    variable: Variable | None, captured: Captured
) -> Iterable[tuple[Any, int | None, Any]]:
    """User key, position and cell of each entry."""
    entries = captured.entries()
    if variable is None:
        return ((None, None, expiry_ms) for expiry_ms in entries)
    if variable.spec.kind == "value":
        return [(None, None, entries)]
    if variable.spec.kind == "list":
        return ((None, position, cell) for position, cell in enumerate(entries))
    return ((user_key, None, cell) for user_key, cell in entries.items())


def _bytes_of(variable: Variable | None, cell: Any) -> int:
    assert variable is not None
    return variable.value.bytes_of(cell if variable.spec.ttl_ms is None else cell[0])


def read_piece(
    layout: RowLayout, variable: Variable | None, table: pa.Table
) -> tuple[list[Any], list[Any], list[Any]]:
    """The other end: canonical keys, user keys as users know them (only of a map), and values.

    A value is a tuple without its expiry; of timers, a time.
    """
    columns = [_array(column) for column in table.columns[1:]]
    size, width = table.num_rows, len(layout.key.fields)
    keys = layout.key.read(columns[:width], size)
    columns = columns[width:]
    user_keys: list[Any] = []
    if variable is None:
        return keys, user_keys, columns[0].to_pylist()
    if variable.user_key is not None:
        width = len(variable.user_key.fields)
        user_keys = variable.user_key.read_items(columns[:width], size)
        columns = columns[width:]
    if variable.spec.kind == "list":
        columns = columns[1:]  # they are in the order of their positions
    if variable.spec.ttl_ms is not None:
        columns.pop()
    return keys, user_keys, variable.value.read(columns, size)


def _array(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
