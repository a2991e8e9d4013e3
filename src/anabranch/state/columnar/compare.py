"""Equality and order of Arrow values of any type, by vectors, as Spark sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.keyspace import Int64s
from anabranch.state.columnar.values import Bools, flat, storage_dtype, to_arrow, to_numpy


def is_list(kind: pa.DataType) -> bool:
    """Lists and maps: values of variable length with children."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind))


def is_text_or_bytes(kind: pa.DataType) -> bool:
    """Values that are compared as they lie in memory."""
    tests = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_binary,
        pa.types.is_large_binary,
    )
    return any(test(kind) for test in tests)


def normalise(array: Any) -> Any:
    """One NaN and one zero at any depth, as Spark does to grouping keys."""
    kind = array.type
    if not _has_float(kind):
        return array
    if pa.types.is_floating(kind):
        values, valid = to_numpy(array)
        with np.errstate(invalid="ignore"):
            values = values + values.dtype.type(0)
        values[np.isnan(values)] = np.nan
        return to_arrow(values, valid, kind)
    if pa.types.is_struct(kind):
        children = [normalise(child) for child in array.flatten()]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    offsets, values = list_parts(array)
    children = [None if array.null_count == 0 else _bitmap(array.is_valid()), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(array), children, children=[normalise(values)])


def _bitmap(valid: Any) -> Any:
    bits = valid.to_numpy(zero_copy_only=False)
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def _has_float(kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    return any(_has_float(kind.field(i).type) for i in range(kind.num_fields))


def list_parts(array: Any) -> tuple[Any, Any]:
    """Offsets from zero and the values they point into, of a list or map array; nulls are empty."""
    wide = pa.types.is_large_list(array.type)
    dtype = np.int64 if wide else np.int32
    if not len(array):
        return np.zeros(1, dtype), _children(array).slice(0, 0)
    raw = np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * dtype().itemsize)
    if not array.null_count:
        values = _children(array).slice(int(raw[0]), int(raw[-1] - raw[0]))
        return raw - raw[0], values
    lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), np.diff(raw), 0)
    ends = np.cumsum(lengths)
    at = np.arange(int(ends[-1])) + np.repeat(raw[:-1] - (ends - lengths), lengths)
    offsets = np.concatenate(([0], ends)).astype(dtype)
    return offsets, _children(array).take(pa.array(at))


def _children(array: Any) -> Any:
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays(
            [array.keys, array.items],
            fields=[array.type.key_field, array.type.item_field],
        )
        return entries
    return array.values


def equal(left: Any, right: Any) -> Bools:
    """Where two arrays of one type hold the same value; null is equal to null, NaN to NaN."""
    if not len(left):
        return np.zeros(0, bool)
    if is_text_or_bytes(left.type) and _is_same_memory(left, right):
        return np.ones(len(left), bool)
    valid_left = left.is_valid().to_numpy(zero_copy_only=False)
    valid_right = right.is_valid().to_numpy(zero_copy_only=False)
    both = valid_left & valid_right
    same: Bools = np.where(both, _equal_values(left, right), valid_left == valid_right)
    return same


def _is_same_memory(left: Any, right: Any) -> bool:
    """Whether two arrays of text or bytes are one: a state that was passed on as it was read."""
    if len(left) != len(right) or left.offset != right.offset:
        return False
    return all(
        (a.address if a else None) == (b.address if b else None)
        for a, b in zip(left.buffers(), right.buffers(), strict=True)
    )


def _equal_values(left: Any, right: Any) -> Bools:
    kind = left.type
    dtype = storage_dtype(kind)
    if dtype is not None:
        a, b = to_numpy(left)[0], to_numpy(right)[0]
        if dtype.kind == "f":
            bits = np.dtype(f"i{dtype.itemsize}")
            return np.asarray(a.view(bits) == b.view(bits))
        if dtype.kind == "V":
            shape = (len(left), dtype.itemsize)
            matches = a.view(np.uint8).reshape(shape) == b.view(np.uint8).reshape(shape)
            return np.asarray(matches.all(1))
        return np.asarray(a == b)
    if pa.types.is_struct(kind):
        same = np.ones(len(left), bool)
        for a, b in zip(left.flatten(), right.flatten(), strict=True):
            same &= equal(a, b)
        return same
    if is_list(kind):
        return _equal_lists(left, right)
    if pa.types.is_null(kind):
        return np.ones(len(left), bool)
    return np.asarray(pc.equal(left, right).fill_null(False).to_numpy(zero_copy_only=False))


def _equal_lists(left: Any, right: Any) -> Bools:
    offsets_left, values_left = list_parts(left)
    offsets_right, values_right = list_parts(right)
    lengths = np.diff(offsets_left).astype(np.int64)
    same = lengths == np.diff(offsets_right)
    counts = np.where(same, lengths, 0)
    rows = np.repeat(np.arange(len(left)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    a = values_left.take(pa.array(within + np.repeat(offsets_left[:-1], counts)))
    b = values_right.take(pa.array(within + np.repeat(offsets_right[:-1], counts)))
    same[rows[~equal(a, b)]] = False
    return np.asarray(same)


def ranks(array: Any) -> Int64s:
    """Dense rank of each value in Spark's order: null first (0), NaN last."""
    array = flat(array)
    kind = array.type
    if not len(array) or pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_struct(kind):
        return _struct_ranks(array)
    if is_list(kind):
        return _list_ranks(array)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        keys = float_order(to_numpy(array)[0])
        found = np.unique(keys, return_inverse=True)[1].astype(np.int64)
    elif pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        found = np.unique(to_numpy(array)[0], return_inverse=True)[1].astype(np.int64)
    else:
        if pa.types.is_boolean(kind):
            array = array.cast(pa.int8())
        ranked = pc.rank(array, sort_keys="ascending", tiebreaker="dense")
        found = ranked.to_numpy().astype(np.int64) - 1
    return np.where(valid, found + 1, 0)


def float_order(values: Any) -> Int64s:
    """Integers in the order of floats: zeros are one value, NaN is the largest."""
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64) + 0.0
    bits = wide.view(np.int64)
    keys = np.where(bits < 0, np.int64(-(2**63)) - bits - 1, bits)
    ordered: Int64s = np.where(np.isnan(wide), np.int64(2**63 - 1), keys)
    return ordered


def _struct_ranks(array: Any) -> Int64s:
    fields = [ranks(child) for child in array.flatten()]
    rows = np.stack(fields, axis=1) if fields else np.zeros((len(array), 1), np.int64)
    offsets = np.arange(len(array) + 1, dtype=np.int64) * (rows.shape[1] * 8)
    return _packed_ranks(array, offsets, rows)


def _list_ranks(array: Any) -> Int64s:
    offsets, values = list_parts(array)
    return _packed_ranks(array, offsets.astype(np.int64) * 8, ranks(values))


def _packed_ranks(array: Any, offsets: Int64s, numbers: Int64s) -> Int64s:
    """Ranks of rows of numbers: as big-endian bytes they sort like the rows."""
    data = pa.py_buffer(np.ascontiguousarray(numbers.astype(">i8")))
    valid = _bitmap(array.is_valid()) if array.null_count else None
    buffers = [valid, pa.py_buffer(offsets), data]
    return ranks(pa.Array.from_buffers(pa.large_binary(), len(array), buffers))
