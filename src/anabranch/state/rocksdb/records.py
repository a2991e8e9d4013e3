"""Entries of a columnar operator as values of a database: packed records, then what they refer to.

value    one entry or several whose keys have the same hash
entry    the record, as it is in memory; lengths of segments (u32); segments of columns in arenas
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import Int64s
from anabranch.state.columnar.layout import ColumnarLayout
from anabranch.state.rocksdb.shredding import Shredder, apart, interleaved

Raw = npt.NDArray[np.void]


class RecordCodec:
    """Of one layout."""

    def __init__(self, layout: ColumnarLayout) -> None:
        self._raw = layout.raw
        self._shredders = [Shredder(part.kind) for part in layout.arena_parts]
        self._segments = sum(shredder.segments for shredder in self._shredders)
        self._head = layout.raw.itemsize + 4 * self._segments

    def encode(
        self, hashes: Int64s, raw: Raw, columns: Sequence[Any]
    ) -> tuple[Int64s, list[bytes]]:
        """Sorted hashes, each once, and their values."""
        entries = self._entries(raw, columns)
        first = np.ones(len(hashes), bool)
        np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
        if first.all():
            return hashes, entries
        starts = np.flatnonzero(first)
        ends = np.append(starts[1:], len(hashes))
        cuts = zip(starts.tolist(), ends.tolist(), strict=True)
        return hashes[starts], [b"".join(entries[start:end]) for start, end in cuts]

    def _entries(self, raw: Raw, columns: Sequence[Any]) -> list[bytes]:
        count = len(raw)
        if not self._segments or not count:
            entries: list[bytes] = raw.tolist()
            return entries
        one = np.ones(count, np.int64)
        segments = [
            segment
            for shredder, column in zip(self._shredders, columns, strict=True)
            for segment in shredder.shred(column, one)
        ]
        heads = np.empty((count, self._head), np.uint8)
        width = self._raw.itemsize
        heads[:, :width] = np.ascontiguousarray(raw).view(np.uint8).reshape(count, width)
        lengths = np.stack([_lengths(segment) for segment in segments], axis=1).astype(np.uint32)
        heads[:, width:] = lengths.view(np.uint8).reshape(count, -1)
        packed = pa.py_buffer(heads)
        offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * self._head)
        head = pa.Array.from_buffers(pa.large_binary(), count, [None, offsets, packed])
        starts, data = interleaved([head, *segments])
        content, cuts = bytes(data), starts.tolist()
        return [content[start:end] for start, end in pairwise(cuts)]

    def decode(self, values: Sequence[bytes]) -> tuple[Int64s, Raw, list[Any]]:
        """Number of entries of each value; their records, and columns in arenas."""
        data = np.frombuffer(b"".join(values), np.uint8)
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        if not self._segments or not values:
            return sizes // self._raw.itemsize, data.view(self._raw), []
        ends = np.cumsum(sizes)
        starts, counts = self._starts(data, ends - sizes, ends)
        heads = data[starts[:, None] + np.arange(self._head)]
        width = self._raw.itemsize
        raw = np.ascontiguousarray(heads[:, :width]).view(self._raw).reshape(-1)
        tail = np.ascontiguousarray(heads[:, width:]).view(np.uint32).astype(np.int64)
        lengths = np.concatenate((np.full((len(starts), 1), self._head), tail), axis=1)
        segments = iter(apart(data, starts, lengths)[1:])
        return counts, raw, [s.unite(segments, len(starts)) for s in self._shredders]

    def _starts(self, data: Any, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
        """Where entries start, over all values; and how many each value has."""
        counts = np.zeros(len(starts), np.int64)
        found = []
        at, of_value = starts, np.arange(len(starts))
        while len(at):
            found.append(at)
            counts[of_value] += 1
            where = at[:, None] + np.arange(self._raw.itemsize, self._head)
            lengths = np.ascontiguousarray(data[where]).view(np.uint32)
            after = at + self._head + lengths.sum(axis=1, dtype=np.int64)
            more = after < ends[of_value]
            at, of_value = after[more], of_value[more]
        if len(found) == 1:
            return starts, counts
        return np.sort(np.concatenate(found or [starts])), counts


def _lengths(segment: Any) -> npt.NDArray[Any]:
    return np.diff(np.frombuffer(segment.buffers()[1], np.int64, len(segment) + 1))
