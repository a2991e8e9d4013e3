"""Spark's `xxhash64` of key columns, for lookups from the driver: the same hash without a JVM."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import InvalidArgument
from anabranch.model.keyspace import Int64s

SEED = 42
_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_LONG_DIGITS = 18
"""Decimals with more digits are hashed as bytes."""

Hasher = Callable[[Any, int], int]
"""From a value that is not null and a seed to a hash, both unsigned."""


def hash_rows(columns: Sequence[Any], num_rows: int) -> Int64s:
    """The hash of each row of Arrow arrays; 0 for a key without columns, as in plans."""
    hashed = [SEED if len(columns) else 0] * num_rows
    for column in columns:
        hasher = _hasher(column.type)
        hashed = [
            seed if value is None else hasher(value, seed)
            for value, seed in zip(_values(column), hashed, strict=True)
        ]
    return np.array(hashed, np.uint64).view(np.int64)


def _rotated(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> (64 - bits)) & _MASK


def _mixed(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 33) * _P2 & _MASK
    value = (value ^ value >> 29) * _P3 & _MASK
    return value ^ value >> 32


def _int(value: int, seed: int) -> int:
    start = (seed + _P5 + 4) ^ (value & 0xFFFFFFFF) * _P1
    return _mixed(_rotated(start, 23) * _P2 + _P3)


def _long(value: int, seed: int) -> int:
    return _mixed(_with_word(seed + _P5 + 8, value))


def _with_word(hashed: int, word: int) -> int:
    return _rotated((hashed & _MASK) ^ _rotated((word & _MASK) * _P2, 31) * _P1, 27) * _P1 + _P4


def _bytes(value: bytes, seed: int) -> int:
    size, at = len(value), 0
    if size >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        for at in range(0, size - 31, 32):
            words = struct.unpack_from("<4Q", value, at)
            lanes = [_rotated(a + b * _P2, 31) * _P1 for a, b in zip(lanes, words, strict=True)]
        at += 32
        hashed = sum(_rotated(a, bits) for a, bits in zip(lanes, (1, 7, 12, 18), strict=True))
        for lane in lanes:
            hashed = (hashed ^ _rotated((lane & _MASK) * _P2, 31) * _P1) * _P1 + _P4
    else:
        hashed = seed + _P5
    hashed += size
    while at + 8 <= size:
        hashed = _with_word(hashed, struct.unpack_from("<Q", value, at)[0])
        at += 8
    if at + 4 <= size:
        word = struct.unpack_from("<I", value, at)[0]
        hashed = _rotated(hashed ^ word * _P1, 23) * _P2 + _P3
        at += 4
    for byte in value[at:]:
        hashed = _rotated(hashed ^ byte * _P5, 11) * _P1
    return _mixed(hashed)


def _hasher(kind: pa.DataType) -> Hasher:
    types = pa.types
    if types.is_int64(kind) or (types.is_temporal(kind) and not types.is_date32(kind)):
        return _long
    if types.is_boolean(kind) or types.is_signed_integer(kind) or types.is_date32(kind):
        return _int
    if types.is_float32(kind):
        return lambda value, seed: _int(_bits("<f", "<i", value), seed)
    if types.is_float64(kind):
        return lambda value, seed: _long(_bits("<d", "<q", value), seed)
    if types.is_decimal128(kind):
        return _long if kind.precision <= _LONG_DIGITS else _big
    if types.is_string(kind) or types.is_large_string(kind):
        return lambda value, seed: _bytes(value.encode(), seed)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _bytes
    if types.is_null(kind):
        return lambda _, seed: seed
    if types.is_list(kind) or types.is_large_list(kind):
        return _folded([_hasher(kind.value_type)], is_array=True)
    if types.is_struct(kind):
        return _folded([_hasher(field.type) for field in kind], is_array=False)
    raise InvalidArgument(f"State cannot be looked up by a key of type {kind}.")


def _folded(hashers: Sequence[Hasher], is_array: bool) -> Hasher:
    """Of the items of a struct or an array, one after the other."""

    def fold(items: Sequence[Any], seed: int) -> int:
        of_item = repeat(hashers[0], len(items)) if is_array else hashers
        for hasher, item in zip(of_item, items, strict=True):
            seed = seed if item is None else hasher(item, seed)
        return seed

    return fold


def _bits(floating: str, integral: str, value: float) -> int:
    if value != value:
        value = float("nan")  # all of them are one
    found: int = struct.unpack(integral, struct.pack(floating, value + 0.0))[0]
    return found


def _big(value: int, seed: int) -> int:
    """As Java's BigInteger has its bytes."""
    size = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return _bytes(value.to_bytes(size, "big", signed=True), seed)


def _values(column: Any) -> list[Any]:
    """Python values as the hashers take them; None for nulls."""
    kind, types = column.type, pa.types
    if types.is_decimal128(kind):
        return [None if v is None else _unscaled(v, kind.scale) for v in column.to_pylist()]
    if types.is_date32(kind):
        return list(column.cast(pa.int32()).to_pylist())
    if types.is_temporal(kind):
        return list(column.cast(pa.int64()).to_pylist())
    if types.is_struct(kind):
        children = [_values(child) for child in column.flatten()]
        rows = list(zip(*children, strict=True)) if children else [()] * len(column)
        return _where_valid(column, rows)
    if types.is_list(kind) or types.is_large_list(kind):
        items = iter(_values(column.flatten()))
        sizes = column.value_lengths().to_pylist()
        return [None if size is None else [next(items) for _ in range(size)] for size in sizes]
    return list(column.to_pylist())


def _where_valid(column: Any, rows: list[Any]) -> list[Any]:
    valid = column.is_valid().to_pylist()
    return [row if ok else None for row, ok in zip(rows, valid, strict=True)]


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number: int = int("".join(map(str, digits))) * 10 ** (exponent + scale)
    return -number if sign else number
