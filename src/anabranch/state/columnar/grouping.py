"""Rows grouped by key, once for a whole batch: by hash, then checked against the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.state.columnar.compare import equal, ranks

Places = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Segments:
    """Row numbers in the order of their keys, and where each key's rows start; no key is empty."""

    order: Places
    starts: Places

    @property
    def num_rows(self) -> int:
        """Rows over all keys."""
        return len(self.order)

    @property
    def num_keys(self) -> int:
        """Number of keys."""
        return len(self.starts)

    @property
    def counts(self) -> Places:
        """Rows of each key."""
        return np.diff(self.starts, append=self.num_rows)

    @property
    def single(self) -> bool:
        """Every key has exactly one row."""
        return len(self.starts) == len(self.order)

    def key_of_row(self) -> Places:
        """For each row the position of its key."""
        keys = np.empty(self.num_rows, np.intp)
        keys[self.order] = np.repeat(np.arange(self.num_keys), self.counts)
        return keys

    def stable(self) -> Segments:
        """The same with each key's rows in the order in which they came."""
        if self.single or not self.num_rows:
            return self
        size = self.num_rows
        codes = np.repeat(np.arange(self.num_keys) * size, self.counts) + self.order
        return Segments(np.sort(codes) % size, self.starts)


def pairs(count: int) -> Segments:
    """Segments that join row i with row count + i."""
    order = np.arange(2 * count).reshape(2, count).T.reshape(-1)
    return Segments(order, np.arange(0, 2 * count, 2))


def group_rows(
    hashes: Int64s, keys: Sequence[Any], keyspace: KeySpace | None
) -> tuple[Segments, Int64s]:
    """Segments of rows with equal keys, ordered by (key group, hash), and the hash of each.

    `keys` are normalised arrays. Without a key space the order is by hash alone.
    """
    order = np.argsort(hashes)
    ordered = hashes[order]
    if keyspace is not None:
        groups = keyspace.group_of(ordered).astype(np.uint16)
        by_group = np.argsort(groups, kind="stable")
        order, ordered = order[by_group], ordered[by_group]
    is_first = np.ones(len(order), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    again = np.flatnonzero(~is_first)
    if len(again) and keys and not _same(keys, order[again], order[again - 1]):
        order, is_first = _exact(hashes, keys, keyspace)
        ordered = hashes[order]
    starts = np.flatnonzero(is_first)
    return Segments(order, starts), ordered[starts]


def _same(keys: Sequence[Any], left: Places, right: Places) -> bool:
    return all(bool(equal(key.take(left), key.take(right)).all()) for key in keys)


def _exact(
    hashes: Int64s, keys: Sequence[Any], keyspace: KeySpace | None
) -> tuple[Places, npt.NDArray[np.bool_]]:
    """Order and first rows when different keys have the same hash."""
    columns = [ranks(key) for key in keys]
    columns.append(hashes)
    by = [*columns, keyspace.group_of(hashes)] if keyspace is not None else columns
    order = np.lexsort(by)
    is_first = np.zeros(len(order), bool)
    is_first[:1] = True
    for column in columns:
        ordered = column[order]
        is_first[1:] |= ordered[1:] != ordered[:-1]
    return order, is_first
