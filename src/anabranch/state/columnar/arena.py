"""Values of variable width: append-only Arrow chunks, addressed by row number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.state.columnar.grouping import Places
from anabranch.state.memory_pools import STATE

_CHUNK_BYTES_MAX = 256 << 20
_GROWTH = 1.25
_ARRAY_BYTES_MAX = 2**31 - 1

_VIEWS = {pa.binary(): pa.binary_view(), pa.string(): pa.string_view()}
_VIEW = np.dtype([("length", "i4"), ("prefix", "V4"), ("buffer", "i4"), ("offset", "i4")])
_INLINE = np.arange(12)
"""Bytes of a short value, which is in its view, in place of the last three fields."""


class TooManyBytes(OverflowError):
    """Values that were asked for together do not fit into one Arrow array."""


Rows = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int32]


class Arena:
    """Rows of one column, never changed; a compaction drops those that nothing points to."""

    __slots__ = ("_chunks", "_kind", "_offsets", "_rows", "_sizes", "_starts", "data")

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self.clear()

    def clear(self) -> None:
        """Drop all rows."""
        self._chunks: list[Any] = []
        self._sizes: list[int] = []
        """Bytes of each chunk: asked for after each commit, and Arrow counts anew each time."""
        self._starts: Rows = np.zeros(0, np.int32)
        self._rows = 0
        self.data: list[Any] = []
        """Of text and bytes, the bytes of each chunk."""
        self._offsets: Offsets = np.zeros(0, np.int32)
        """And where in them values begin and end, chunk after chunk, in one array: reading a few
        values of each of many arenas costs what its NumPy calls cost."""

    @property
    def rows(self) -> int:
        """Rows held, also those that nothing points to any more."""
        return self._rows

    @property
    def num_bytes(self) -> int:
        """Memory of the chunks."""
        return sum(self._sizes) + self._offsets.nbytes

    def append(self, array: Any) -> Rows:
        """Add values (an array, chunked or not); the row of each, -1 for nulls."""
        parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        valid = None
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            parts = [part.drop_null() for part in parts]
        first, count = self._rows, sum(map(len, parts))
        if count:
            # Always a copy: a slice would keep the memory of the whole array alive.
            self._add(pa.concat_arrays([*parts, parts[0].slice(0, 0)], STATE))
            self._merge()
        fresh = np.arange(first, first + count, dtype=np.int32)
        if valid is None:
            return fresh
        rows = np.full(len(array), -1, np.int32)
        rows[valid] = fresh
        return rows

    def _merge(self) -> None:
        """Keep few chunks: each is more than twice as long as the next (row numbers stay)."""
        while len(self._chunks) > 1 and len(self._chunks[-2]) <= 2 * len(self._chunks[-1]):
            if self._sizes[-2] + self._sizes[-1] > _CHUNK_BYTES_MAX:
                break
            merged = pa.concat_arrays(self._chunks[-2:], STATE)
            for known in (self._chunks, self._sizes, self.data):
                del known[-2:]
            self._starts = self._starts[:-2]
            self._rows -= len(merged)
            self._add(merged)

    def _add(self, chunk: Any) -> None:
        """The next chunk, which is not a slice of anything."""
        if self._kind in _VIEWS:
            _, ends, data = chunk.buffers()
            start = self._rows + len(self._chunks)
            end = start + len(chunk) + 1
            if end > len(self._offsets):
                grown = np.empty(max(end, int(start * _GROWTH)), np.int32)
                grown[:start] = self._offsets[:start]
                self._offsets = grown
            self._offsets[start:end] = np.frombuffer(ends, np.int32, len(chunk) + 1)
            self.data.append(data or pa.py_buffer(b""))
        self._chunks.append(chunk)
        self._sizes.append(chunk.nbytes)
        self._starts = np.append(self._starts, np.int32(self._rows))
        self._rows += len(chunk)

    def take(self, rows: Rows, pool: Any = None, scratch: Any = None) -> Any:
        """The values of some rows; null where the number is negative. In memory of batches, unless
        a pool is given: for the result, and for what is needed until then."""
        return gather(self._kind, [(self, rows)], pool, scratch)

    def pieces(self, rows: Rows) -> Iterator[tuple[Any, Rows, Places | None]]:
        """Where some rows are: a chunk, rows of it, and which of the wanted ones these are (None:
        all of them, in this order)."""
        if len(self._chunks) <= 1:
            yield self._chunks[0] if self._chunks else pa.nulls(0, self._kind), rows, None
            return
        of_row = np.maximum(self._chunk_of(rows), 0)
        low, high = int(of_row.min()), int(of_row.max())
        if low == high:
            yield self._chunks[low], rows - self._starts[low], None
            return
        order = np.argsort(of_row, kind="stable")
        bounds = of_row[order].searchsorted(np.arange(low, high + 2)).tolist()
        for i, start, end in zip(range(low, high + 1), bounds, bounds[1:], strict=False):
            if start < end:
                some = order[start:end]
                yield self._chunks[i], rows[some] - self._starts[i], some

    def locate(self, rows: Rows) -> tuple[Places, Offsets, Offsets]:
        """Of text and bytes: the chunk of each row, where in it the value begins and where it ends;
        anything where the number is negative."""
        of_row = self._chunk_of(rows)
        at = rows + of_row  # each chunk before has one offset more than rows
        return of_row, self._offsets.take(at), self._offsets.take(at + 1)

    def _chunk_of(self, rows: Rows) -> Places:
        return self._starts.searchsorted(rows, side="right") - 1

    def compact(self, rows: Rows) -> None:
        """Keep only the given rows, which get the numbers 0, 1, 2, ..."""
        kept = self.take(rows, STATE)
        self.clear()
        if len(kept):
            self._add(kept)


def gather(
    kind: pa.DataType,
    wanted: Iterable[tuple[Arena, Rows]],
    pool: Any = None,
    scratch: Any = None,
) -> Any:
    """The values of rows of several arenas, one arena after the other; see `Arena.take`."""
    given = [(arena, rows) for arena, rows in wanted if len(rows)]
    if not given:
        return pa.array([], kind)
    # Of one arena there are few chunks and perhaps all rows, as when it is sent or compacted:
    # Arrow's own function is quicker with short values.
    if len(given) > 1 and kind in _VIEWS:
        return _by_views(kind, given, pool)
    return _by_parts(given, pool, scratch)


def _by_views(kind: pa.DataType, wanted: Sequence[tuple[Arena, Rows]], pool: Any) -> Any:
    """Text and bytes: views of values where they are, and one cast that copies each of them."""
    chunks, begins, ends = [], [], []
    data: list[Any] = []
    for arena, rows in wanted:
        found = arena.locate(rows) if arena.rows else (rows, rows, rows)
        chunks.append(found[0] + len(data))
        begins.append(found[1])
        ends.append(found[2])
        data += arena.data
    views = np.zeros(sum(map(len, chunks)), _VIEW)
    views["buffer"] = np.concatenate(chunks)
    views["offset"] = offsets = np.concatenate(begins)
    views["length"] = np.concatenate(ends) - offsets
    missing = np.concatenate([rows for _, rows in wanted]) < 0
    valid = None
    if missing.any():
        views[missing] = np.zeros((), _VIEW)
        valid = pa.py_buffer(np.packbits(~missing, bitorder="little"))
    if int(views["length"].sum(dtype=np.int64)) > _ARRAY_BYTES_MAX:  # Arrow does not look
        raise TooManyBytes("More than 2 GiB of values were asked for at once.")
    _inline(views, data)
    buffers = [valid, pa.py_buffer(views), *data]
    array = pa.Array.from_buffers(_VIEWS[kind], len(views), buffers)
    return pc.cast(array, kind, memory_pool=pool)


def _inline(views: npt.NDArray[np.void], data: Sequence[Any]) -> None:
    """Put short values into their views."""
    lengths = views["length"]
    short = np.flatnonzero((lengths > 0) & (lengths <= len(_INLINE)))
    if not len(short):
        return
    buffers, as_bytes = views["buffer"][short], views.view(np.uint8).reshape(len(views), -1)
    order = np.argsort(buffers, kind="stable")
    cuts = np.flatnonzero(np.diff(buffers[order], prepend=-1, append=-1)).tolist()
    for start, end in pairwise(cuts):
        some = short[order[start:end]]
        buffer = np.frombuffer(data[buffers[order[start]]], np.uint8)
        found = buffer.take(views["offset"][some][:, None] + _INLINE, mode="clip")
        found[lengths[some][:, None] <= _INLINE] = 0
        as_bytes[some, -len(_INLINE) :] = found


def _by_parts(wanted: Sequence[tuple[Arena, Rows]], pool: Any, scratch: Any) -> Any:
    """Chunk by chunk. Not ChunkedArray.take: it copies all chunks into one first."""
    parts: list[tuple[Any, Rows]] = []
    places: list[Places] = []
    count, in_order = 0, True
    for arena, rows in wanted:
        for chunk, some, at in arena.pieces(rows):
            parts.append((chunk, some))
            places.append(np.arange(count, count + len(rows)) if at is None else at + count)
            in_order = in_order and at is None
        count += len(rows)
    if len(parts) == 1:
        return _take(*parts[0], pool)
    taken = [_take(chunk, some, scratch) for chunk, some in parts]
    if in_order:
        return pa.concat_arrays(taken, pool)
    back = np.empty(count, np.int64)
    back[np.concatenate(places)] = np.arange(count)
    return _take(pa.concat_arrays(taken, scratch), back, pool)


def _take(chunk: Any, rows: npt.NDArray[Any], pool: Any) -> Any:
    missing = rows < 0
    at = pa.array(rows, mask=missing if missing.any() else None)
    # The plain function: Array.take spends more time on its arguments than on the work.
    return pc.call_function("array_take", [chunk, at], None, pool)
