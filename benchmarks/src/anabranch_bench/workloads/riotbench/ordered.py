"""Helpers for operators whose result depends on the order of a key's rows.

Message numbers rise with time, and a batch is a range of them: rows in the order of their message
are in the same order however the stream is cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.processor.columnar.api import KeyedBatch
from anabranch_bench.workloads.riotbench.draws import Floats, Ints

Indices = Any
"""NumPy integers that select keys or rows."""


def rounds(batch: KeyedBatch) -> Iterator[tuple[Indices, Indices]]:
    """Keys and rows: in round r the r-th row of every key that has so many.

    A sequential rule becomes one NumPy expression for each round, over all keys.
    """
    order = np.lexsort((numbers(batch.rows.column("id")), batch.key_of_row()))
    counts = batch.segments.counts
    starts = np.cumsum(counts) - counts
    for turn in range(int(counts.max(initial=0))):
        keys = np.flatnonzero(counts > turn)
        yield keys, order[starts[keys] + turn]


def numbers(column: Any, default: float | None = None) -> Any:
    """A column as NumPy numbers that can be changed; nulls become `default` (or NaN)."""
    if default is not None:
        column = pc.fill_null(column, default)
    return np.asarray(column).copy()


def window_state(batch: KeyedBatch, width: int) -> tuple[Floats, Ints]:
    """The last values of each key, oldest first, and how many there are (`window_columns`)."""
    held = numbers(batch.state.column("held"), 0)
    columns = [numbers(batch.state.column(f"value{i}"), 0.0) for i in range(width)]
    return np.column_stack(columns), held


def window_schema(width: int) -> list[pa.Field]:
    """State columns of a window."""
    values = [pa.field(f"value{i}", pa.float64()) for i in range(width)]
    return [pa.field("held", pa.int64()), *values]


def window_columns(window: Floats, held: Ints) -> dict[str, Any]:
    """State columns of a window, filled."""
    return {"held": held, **{f"value{i}": column for i, column in enumerate(window.T)}}


def push(window: Floats, held: Ints, keys: Indices, values: Floats) -> None:
    """Append a value for each of these keys; the oldest falls out of a full window."""
    width = window.shape[1]
    full = keys[held[keys] == width]
    window[full, :-1] = window[full, 1:]
    held[keys] = np.minimum(held[keys] + 1, width)
    window[keys, held[keys] - 1] = values
