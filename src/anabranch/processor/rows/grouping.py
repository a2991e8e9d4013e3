"""Rows of a chunk by key: one sort over the hashes, then real key equality."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.state.rows.codec import Codec
from anabranch.state.rows.layout import KeyCodec


@dataclass(slots=True)
class KeyedRows:
    """Rows ordered by key group and key; the rows of a key are next to each other."""

    columns: list[Any]
    """Arrow arrays in that order, without the hash."""
    groups: list[int]
    """Key groups that have rows."""
    keys_per_group: list[int]
    hashes: list[int]
    """Per key, as all that follow."""
    keys: list[Any]
    canonical: list[Any]
    counts: list[int]


def group_rows(
    table: Any, key_columns: Sequence[int], codec: KeyCodec, keyspace: KeySpace
) -> KeyedRows:
    """Order the rows of a table whose first column is the hash."""
    columns = [_contiguous(column) for column in table.columns]
    hashes: Int64s = columns.pop(0).to_numpy(zero_copy_only=False)
    groups = keyspace.group_of(hashes)
    order = np.argsort(hashes, kind="stable")
    # Small integers are sorted by radix: nearly free.
    order = order[np.argsort(groups[order].astype(np.uint16), kind="stable")]
    codes = [
        _codes(columns[at], column) for at, column in zip(key_columns, codec.columns, strict=True)
    ]
    ordered = [code[order] for code in codes]
    same_hash = hashes[order][1:] == hashes[order][:-1]
    if not _agree(same_hash, ordered):
        order = np.lexsort((*codes[::-1], hashes, groups))
        ordered = [code[order] for code in codes]
        same_hash = hashes[order][1:] == hashes[order][:-1]
    same_key = same_hash
    for code in ordered:
        same_key = same_key & (code[1:] == code[:-1])
    starts = np.concatenate(([0], np.flatnonzero(~same_key) + 1))
    counts = np.diff(np.append(starts, len(order)))
    columns = [column.take(pa.array(order)) for column in columns]
    at_starts = pa.array(starts)
    key_values = [columns[at].take(at_starts) for at in key_columns]
    canonical = codec.read(key_values, len(starts))
    shown = [canonical] if codec.plain and len(key_values) == 1 else None
    if shown is None:
        shown = [values.to_pylist() for values in key_values]
    group_starts = groups[order][starts]
    found, per_group = np.unique(group_starts, return_counts=True)
    return KeyedRows(
        columns=columns,
        groups=found.tolist(),
        keys_per_group=per_group.tolist(),
        hashes=hashes[order][starts].tolist(),
        keys=list(zip(*shown, strict=True)) if shown else [()] * len(starts),
        canonical=canonical,
        counts=counts.tolist(),
    )


def in_parts(keyed: KeyedRows, rows_max: int) -> KeyedRows:
    """Keys with more rows than that come several times, one part after the other."""
    counts = np.array(keyed.counts)
    parts = -(-counts // rows_max)
    if not (parts > 1).any():
        return keyed
    at = np.repeat(np.arange(len(parts)), parts)
    sizes = np.full(len(at), rows_max)
    sizes[np.cumsum(parts) - 1] = counts - (parts - 1) * rows_max
    firsts = np.concatenate(([0], np.cumsum(keyed.keys_per_group)[:-1]))
    return KeyedRows(
        columns=keyed.columns,
        groups=keyed.groups,
        keys_per_group=np.add.reduceat(parts, firsts).tolist(),
        hashes=[keyed.hashes[index] for index in at],
        keys=[keyed.keys[index] for index in at],
        canonical=[keyed.canonical[index] for index in at],
        counts=sizes.tolist(),
    )


def _agree(same_hash: Any, codes: Sequence[Any]) -> bool:
    """Whether equal hashes are equal keys everywhere, so that no run mixes two keys."""
    return all(bool(np.all(code[1:][same_hash] == code[:-1][same_hash])) for code in codes)


def _contiguous(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else column.combine_chunks()
    return column


def _codes(column: Any, codec: Codec) -> Int64s:
    """An integer per row, equal exactly where the values are; null has a code of its own."""
    kind = column.type
    if column.null_count == 0 and pa.types.is_primitive(kind) and kind.bit_width == 64:
        if pa.types.is_floating(kind):
            values = column.to_numpy() + 0.0
            values[np.isnan(values)] = np.nan
            bits: Int64s = values.view(np.int64)
            return bits
        viewed: Int64s = column.view(pa.int64()).to_numpy()
        return viewed
    if pa.types.is_floating(kind):
        filled = _codes(column.cast(pa.float64()).fill_null(0.0), codec)
        return _rank(filled, column.is_null().to_numpy(zero_copy_only=False))
    if pa.types.is_nested(kind):
        seen: dict[Any, int] = {}
        keys = codec.read_canonical(column)
        return np.array([seen.setdefault(key, len(seen)) for key in keys])
    encoded = column.dictionary_encode() if column.null_count == 0 else _encode_nulls(column)
    indices: Int64s = encoded.indices.to_numpy().astype(np.int64)
    return indices


def _encode_nulls(column: Any) -> Any:
    return pc.dictionary_encode(column, null_encoding="encode")


def _rank(codes: Int64s, is_null: Any) -> Int64s:
    unique, ranks = np.unique(codes, return_inverse=True)
    ranked: Int64s = np.where(is_null, len(unique), ranks)
    return ranked
