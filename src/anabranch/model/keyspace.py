"""From a key's 64-bit hash to its key group and bin: the only place that knows the formula.

Spark computes the hash (`xxhash64` of the key columns) and the shuffle uses the same `pmod`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HASH = "__hash"
"""Column with the key's hash: first in every row batch and every state section."""

GROUP = "__group"
"""Column with the key group: first in every output batch of a worker."""

OP = "__op"
"""Changelog column: UPSERT or DELETE, second (after HASH) in every changelog section."""

UPSERT = 0
DELETE = 1

KEPT = "__kept"
"""Changelog column, last and only if needed: bits of state columns that are null here but stay what
they were in the entry before. Values that are large and seldom change are logged once."""

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class KeySpace:
    """How keys are divided: `groups` key groups with `bins` bins each."""

    groups: int = 256
    bins: int = 16

    def group_of(self, hashes: Int64s) -> Int64s:
        """Key group of each hash; the same as Spark's `pmod(hash, groups)`."""
        return _mod(hashes, self.groups)

    def bin_of(self, hashes: Int64s) -> Int64s:
        """Bin inside its key group of each hash."""
        if not self.groups & (self.groups - 1):
            return _mod(hashes >> (self.groups.bit_length() - 1), self.bins)
        return _mod(np.floor_divide(hashes, self.groups), self.bins)


def _mod(values: Int64s, size: int) -> Int64s:
    # The same for powers of two, several times faster.
    return np.mod(values, size) if size & (size - 1) else values & (size - 1)
