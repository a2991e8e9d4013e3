"""Values of variable width: append-only Arrow chunks, addressed by row number."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from anabranch.model.keyspace import Int64s
from anabranch.state.columnar.values import flat

_CHUNK_BYTES_MAX = 256 << 20


class Arena:
    """Rows of one column, never changed; a compaction drops those that nothing points to."""

    __slots__ = ("_chunks", "_kind", "_rows")

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: list[Any] = []
        self._rows = 0

    @property
    def rows(self) -> int:
        """Rows held, also those that nothing points to any more."""
        return self._rows

    @property
    def num_bytes(self) -> int:
        """Memory of the chunks."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def append(self, array: Any) -> int:
        """Add rows; the number of the first one."""
        first = self._rows
        if len(array):
            # A slice would keep the memory of the whole array alive.
            self._chunks.append(pa.concat_arrays([array, array.slice(0, 0)]))
            self._rows += len(array)
            self._merge()
        return first

    def _merge(self) -> None:
        """Keep few chunks: each is more than twice as long as the next (row numbers stay)."""
        chunks = self._chunks
        while len(chunks) > 1 and len(chunks[-2]) <= 2 * len(chunks[-1]):
            if chunks[-2].nbytes + chunks[-1].nbytes > _CHUNK_BYTES_MAX:
                break
            last = chunks.pop()
            chunks[-1] = pa.concat_arrays([chunks[-1], last])

    def take(self, rows: Int64s) -> Any:
        """The values of some rows; null where the number is negative."""
        missing = rows < 0
        indices = pa.array(rows, pa.int64(), mask=missing if missing.any() else None)
        if len(self._chunks) == 1:
            return self._chunks[0].take(indices)
        if not self._chunks:
            return pa.nulls(len(rows), self._kind)
        return flat(pa.chunked_array(self._chunks, self._kind).take(indices))

    def compact(self, rows: Int64s) -> None:
        """Keep only the given rows, which get the numbers 0, 1, 2, ..."""
        kept = self.take(rows)
        self._chunks = [kept] if len(kept) else []
        self._rows = len(kept)

    def clear(self) -> None:
        """Drop all rows."""
        self._chunks = []
        self._rows = 0
