"""Values of variable width: append-only Arrow chunks, addressed by row number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.state.columnar.grouping import Places
from anabranch.state.pool import STATE

_CHUNK_BYTES_MAX = 256 << 20

Rows = npt.NDArray[np.int32]


class Arena:
    """Rows of one column, never changed; a compaction drops those that nothing points to."""

    __slots__ = ("_chunks", "_kind", "_rows", "_sizes", "_starts")

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: list[Any] = []
        self._sizes: list[int] = []
        """Bytes of each chunk: asked for after each commit, and Arrow counts anew each time."""
        self._starts: Rows = np.zeros(0, np.int32)
        self._rows = 0

    @property
    def rows(self) -> int:
        """Rows held, also those that nothing points to any more."""
        return self._rows

    @property
    def num_bytes(self) -> int:
        """Memory of the chunks."""
        return sum(self._sizes)

    def append(self, array: Any) -> int:
        """Add rows (an array, chunked or not); the number of the first one."""
        first = self._rows
        if len(array):
            parts = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
            # Always a copy: a slice would keep the memory of the whole array alive.
            chunk = pa.concat_arrays([*parts, parts[0].slice(0, 0)], STATE)
            self._chunks.append(chunk)
            self._sizes.append(chunk.nbytes)
            self._rows += len(array)
            self._merge()
        return first

    def _merge(self) -> None:
        """Keep few chunks: each is more than twice as long as the next (row numbers stay)."""
        chunks, sizes = self._chunks, self._sizes
        try:
            while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]):
                if sizes[-2] + sizes[-1] > _CHUNK_BYTES_MAX:
                    break
                merged = pa.concat_arrays(chunks[-2:], STATE)
                chunks[-2:], sizes[-2:] = [merged], [merged.nbytes]
        finally:
            self._starts = np.cumsum([0, *map(len, chunks[:-1])], dtype=np.int32)

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
        of_row = np.maximum(self._starts.searchsorted(rows, side="right") - 1, 0)
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

    def compact(self, rows: Rows) -> None:
        """Keep only the given rows, which get the numbers 0, 1, 2, ..."""
        kept = self.take(rows, STATE)
        self._chunks, self._sizes = ([kept], [kept.nbytes]) if len(kept) else ([], [])
        self._rows = len(kept)

    def clear(self) -> None:
        """Drop all rows."""
        self._chunks, self._sizes = [], []
        self._rows = 0


def gather(
    kind: pa.DataType,
    wanted: Iterable[tuple[Arena, Rows]],
    pool: Any = None,
    scratch: Any = None,
) -> Any:
    """The values of rows of several arenas, one arena after the other; see `Arena.take`.

    Not ChunkedArray.take: it copies all chunks into one first.
    """
    parts: list[tuple[Any, Rows]] = []
    places: list[Places] = []
    count, in_order = 0, True
    for arena, rows in wanted:
        if not len(rows):
            continue
        for chunk, some, at in arena.pieces(rows):
            parts.append((chunk, some))
            places.append(np.arange(count, count + len(rows)) if at is None else at + count)
            in_order = in_order and at is None
        count += len(rows)
    if not count:
        return pa.array([], kind)
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
