"""Arrow values of any type as bytes, row by row, and back; nothing per row in Python.

A value of a given type is a fixed number of segments: of each buffer that an Arrow array of the
type has, the part that belongs to the row. Validity is a byte for each value; texts and lists have
their lengths in a segment, so that the flat buffers can be put together again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import Int64s
from anabranch.state.columnar.compare import list_parts

Bytes = npt.NDArray[np.uint8]

_TEXTS = (pa.types.is_string, pa.types.is_binary)
_WIDE_TEXTS = (pa.types.is_large_string, pa.types.is_large_binary)


class Shredder:
    """Segments of one Arrow type."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        types = pa.types
        self._is_wide = types.is_large_list(kind) or any(test(kind) for test in _WIDE_TEXTS)
        self._is_text = any(test(kind) for test in (*_TEXTS, *_WIDE_TEXTS))
        self._is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind)
        self._children = [Shredder(child) for child in _children(kind)]
        is_nested = self._is_list or types.is_struct(kind) or types.is_fixed_size_list(kind)
        self._is_flat = not (self._is_text or is_nested)
        self._width = _width(kind) if self._is_flat else 0
        own = 3 if self._is_text else 2 if self._is_list or self._is_flat else 1
        self.segments: int = own + sum(child.segments for child in self._children)

    def shred(self, array: Any, counts: Int64s) -> Iterator[Any]:
        """Segments of rows that have `counts` values each: arrays with a binary for each row."""
        yield _segment(array.is_valid().to_numpy(zero_copy_only=False), counts)
        if self._is_text:
            offsets, data = self._text_parts(array)
            lengths = np.diff(offsets)
            yield _segment(lengths.astype(np.int32), 4 * counts)
            yield _segment(data[offsets[0] : offsets[-1]], _sums(lengths, counts))
        elif self._is_list:
            offsets, items = list_parts(array)
            lengths = np.diff(offsets)
            yield _segment(lengths.astype(np.int32), 4 * counts)
            yield from self._children[0].shred(items, _sums(lengths, counts))
        elif self._is_flat:
            yield _segment(self._flat_values(array), counts * self._width)
        elif pa.types.is_struct(self._kind):
            for i, child in enumerate(self._children):
                yield from child.shred(array.field(i), counts)
        else:
            size = self._kind.list_size
            start = array.offset * size
            items = array.values.slice(start, len(array) * size)
            yield from self._children[0].shred(items, counts * size)

    def unite(self, segments: Iterator[Bytes], count: int) -> Any:
        """An array of `count` values from what the segments of all rows are together."""
        valid = next(segments).view(np.bool_)
        bitmap = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        if self._is_flat:
            data = next(segments)
            if pa.types.is_null(self._kind):
                return pa.nulls(count)
            if pa.types.is_boolean(self._kind):
                data = np.packbits(data, bitorder="little")
            return self._array(count, [bitmap, pa.py_buffer(data)])
        if not (self._is_text or self._is_list):
            size = count
            if pa.types.is_fixed_size_list(self._kind):
                size *= self._kind.list_size
            return self._array(
                count, [bitmap], [child.unite(segments, size) for child in self._children]
            )
        lengths = next(segments).view(np.int32)
        offsets = np.zeros(count + 1, np.int64 if self._is_wide else np.int32)
        np.cumsum(lengths, out=offsets[1:])
        buffers = [bitmap, pa.py_buffer(offsets)]
        if self._is_text:
            return self._array(count, [*buffers, pa.py_buffer(next(segments))])
        return self._array(count, buffers, [self._children[0].unite(segments, int(offsets[-1]))])

    def _array(self, count: int, buffers: list[Any], children: list[Any] | None = None) -> Any:
        return pa.Array.from_buffers(self._kind, count, buffers, children=children)

    def _text_parts(self, array: Any) -> tuple[npt.NDArray[Any], Bytes]:
        dtype = np.dtype(np.int64 if self._is_wide else np.int32)
        _, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return np.zeros(len(array) + 1, dtype), np.empty(0, np.uint8)
        start = array.offset * dtype.itemsize
        values = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return np.frombuffer(offsets, dtype, len(array) + 1, start), values

    def _flat_values(self, array: Any) -> Bytes:
        if pa.types.is_boolean(self._kind):
            bits = array.fill_null(False).to_numpy(zero_copy_only=False)
            return np.asarray(bits, np.bool_).view(np.uint8)
        buffer = None if not self._width else array.buffers()[1]
        size = len(array) * self._width
        if buffer is None:
            return np.zeros(size, np.uint8)
        return np.frombuffer(buffer, np.uint8, size, array.offset * self._width)


def interleaved(segments: list[Any]) -> tuple[Int64s, Any]:
    """Segments row by row: where each row starts (and the last ends), and all bytes."""
    rows, width = len(segments[0]), len(segments)
    order = np.arange(rows * width).reshape(width, rows).T.reshape(-1)
    together = pa.concat_arrays(segments).take(pa.array(order))
    _, offsets, data = together.buffers()
    starts = np.frombuffer(offsets, np.int64, rows * width + 1)[::width]
    return starts, b"" if data is None else data


def apart(data: Any, starts: Int64s, lengths: npt.NDArray[Any]) -> list[Bytes]:
    """For each column of `lengths` its segments of all rows together; rows follow each other."""
    rows, width = lengths.shape
    offsets = np.empty(rows * width + 1, np.int64)
    offsets[0] = starts[0] if rows else 0
    np.cumsum(lengths.reshape(-1), out=offsets[1:])
    offsets[1:] += offsets[0]
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    whole = pa.Array.from_buffers(pa.large_binary(), rows * width, buffers)
    found = []
    for i in range(width):
        _, _, content = whole.take(pa.array(np.arange(i, rows * width, width))).buffers()
        size = int(lengths[:, i].sum())
        empty = np.empty(0, np.uint8)
        found.append(empty if not size else np.frombuffer(content, np.uint8, size))
    return found


def _segment(data: npt.NDArray[Any], sizes: Int64s) -> Any:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def _sums(lengths: npt.NDArray[Any], counts: Int64s) -> Int64s:
    """Sum of the lengths of each row's values."""
    totals = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
    ends = np.cumsum(counts)
    sums: Int64s = totals[ends] - totals[ends - counts]
    return sums


def _children(kind: pa.DataType) -> list[pa.DataType]:
    types = pa.types
    if types.is_map(kind):
        return [pa.struct([kind.key_field, kind.item_field])]
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return [kind.value_type]
    return [field.type for field in kind] if types.is_struct(kind) else []


def _width(kind: pa.DataType) -> int:
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_null(kind):
        return 0
    try:
        width: int = kind.bit_width
    except ValueError:
        width = -1
    if width < 8 or pa.types.is_dictionary(kind):
        raise InvalidArgument(
            f'State of type {kind} cannot be kept with backend="rocksdb". Use backend="memory", or '
            "another type for the column."
        )
    return width // 8
