"""The largest rows of committed state by a column, read from the location within a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.durability.blobs import BlobStore
from anabranch.errors import InvalidArgument
from anabranch.http.problems import Problem
from anabranch.spark.state_reader import StateReader, StateSelection
from anabranch.spark.state_shapes import KEY, KEY_GROUP

SECONDS_MAX = 8.0
"""It runs in the driver, beside the query: after so long it tells what it has found so far."""
PART_BYTES = 64 << 20
VALUE = "value."
"""Row operators have their values in a struct of this name."""
_READING = threading.Lock()
"""One at a time."""


def top_rows(
    blobs: BlobStore, operator: str, variable: str | None, by: str | None, limit: int
) -> dict[str, Any]:
    """As of the last committed epoch; `by` is a column with numbers, else the first one."""
    if not _READING.acquire(blocking=False):
        raise Problem(503, "Somebody reads the largest rows already. Try again in some seconds.")
    try:
        return _read(blobs, StateSelection(operator, variable), by, limit)
    finally:
        _READING.release()


def _read(
    blobs: BlobStore, selection: StateSelection, by: str | None, limit: int
) -> dict[str, Any]:
    reader = StateReader(blobs.address, selection)
    deadline = time.monotonic() + SECONDS_MAX
    best: pa.Table | None = None
    columns: list[str] = []
    rows, is_complete = 0, True
    for table in _tables(reader):
        flat = flattened(table)
        columns = numeric(flat)
        if not columns:
            raise InvalidArgument(
                f"The state of {reader.operator!r} has no column with numbers to sort by."
            )
        chosen = by or columns[0]
        if chosen not in columns:
            raise InvalidArgument(
                f"There is no column {chosen!r} with numbers, only: {', '.join(columns)}."
            )
        rows += flat.num_rows
        best = largest(flat if best is None else pa.concat_tables([best, flat]), chosen, limit)
        if time.monotonic() > deadline:
            is_complete = False
            break
    return {
        "operator": reader.operator,
        "epoch": reader.epoch,
        "columns": columns,
        "by": by or (columns[0] if columns else None),
        "rows_read": rows,
        "is_complete": is_complete,
        "rows": [] if best is None else best.to_pylist(),
    }


def _tables(reader: StateReader) -> Iterator[pa.Table]:
    # Each part opens the same files again: few parts are faster, many take less memory.
    for groups in reader.partitions(1 + reader.stored_bytes // PART_BYTES):
        yield from reader.read(groups)


def flattened(table: pa.Table) -> pa.Table:
    """Fields of structs as columns of their own, the key apart."""
    while any(pa.types.is_struct(f.type) and f.name != KEY for f in table.schema):
        key = table.column(KEY) if KEY in table.column_names else None
        rest = table.drop_columns([KEY]) if key is not None else table
        rest = rest.flatten()
        rest = rest.rename_columns([name.removeprefix(VALUE) for name in rest.column_names])
        table = rest if key is None else rest.add_column(0, KEY, key)
    return table


def numeric(table: pa.Table) -> list[str]:
    """Columns that can be sorted by as numbers."""
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return [
        field.name
        for field in table.schema
        if field.name not in (KEY, KEY_GROUP) and any(fits(field.type) for fits in kinds)
    ]


def largest(table: pa.Table, by: str, limit: int) -> pa.Table:
    """The rows with the largest values."""
    kept = table.filter(pc.is_valid(table[by]))
    order = pc.select_k_unstable(kept, limit, [(by, "descending")])
    return kept.take(order)
