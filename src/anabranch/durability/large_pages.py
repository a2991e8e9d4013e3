"""Entries with large values on their way into a file: ordered, and cut into pages, without copies.

Whoever makes such entries gives each a chunk of its own (`state/large_values.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import Int64s
from anabranch.state.large_values import LARGE_BYTES

Place = npt.NDArray[np.intp]


def has_large(entries: pa.Table) -> bool:
    """Whether some entries are chunks of their own."""
    return any(map(_is_large, entries.to_batches()))


def ordered_pieces(entries: pa.Table, at: Place) -> Iterator[tuple[pa.Table, int, int]]:
    """Entries in an order, as tables with their first place and end in it.

    Those with large values come one by one and share their memory; the others are copied.
    """
    batches = entries.to_batches()
    is_large = np.repeat(
        np.array([_is_large(batch) for batch in batches]), [batch.num_rows for batch in batches]
    )
    ends = np.cumsum([batch.num_rows for batch in batches])
    small = pa.Table.from_batches(
        [batch for batch in batches if not _is_large(batch)], schema=entries.schema
    ).combine_chunks()
    place_in_small = np.cumsum(~is_large) - 1
    small = small.take(pa.array(place_in_small[at[~is_large[at]]]))
    taken = start = 0
    for cut in [*np.flatnonzero(is_large[at]).tolist(), len(at)]:
        if cut > start:
            yield small.slice(taken, cut - start), start, cut
            taken += cut - start
        if cut < len(at):
            batch = batches[int(ends.searchsorted(at[cut], side="right"))]
            yield pa.Table.from_batches([batch]), cut, cut + 1
        start = cut + 1


def order_at(order: Int64s | None, size: int) -> Place:
    """Places of entries in the order of a file; as they are, if it has none."""
    return np.arange(size) if order is None else np.argsort(order, kind="stable")


def content_of(page: pa.RecordBatch) -> list[Any]:
    """A page as it is in a file; large values are looked at where they are."""
    if not _is_large(page):
        return [page.serialize()]
    sink = _Chunks()
    with pa.PythonFile(sink, "w") as file:
        writer = pa.ipc.new_stream(file, page.schema)
        writer.write_batch(page)
        chunks, skipped = list(sink.found), page.schema.serialize().size
        writer.close()
    # A page has no schema: that is in the index.
    while skipped:
        skipped -= len(chunks.pop(0))
    return [chunk for chunk in chunks if len(chunk)]


def _is_large(batch: pa.RecordBatch) -> bool:
    return bool(batch.num_rows == 1 and batch.nbytes >= LARGE_BYTES)


class _Chunks:
    """What Arrow writes, piece by piece: buffers come as they are."""

    closed = False

    def __init__(self) -> None:
        self.found: list[Any] = []

    def write(self, chunk: Any) -> int:
        self.found.append(chunk)
        return len(chunk)

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """Arrow closes what it wrote to."""
