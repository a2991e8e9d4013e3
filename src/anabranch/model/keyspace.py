"""From a key's 64-bit hash to its key group and bin: the only place that knows the formula.

Spark computes the hash (`xxhash64` of the key columns) and the shuffle uses the same `pmod`. Where
a site column says in which key groups a key is, the hash is changed so that the same formula leads
there: nobody else has to know (`SiteSpace`).
"""

from __future__ import annotations

from collections.abc import Collection
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
        return _mod(_div(hashes, self.groups), self.bins)

    def order_of(self, hashes: Int64s, by_bin: bool) -> Int64s:
        """A number that grows with (key group, bin, hash), or with (key group, hash).

        Neighbours may share one. It is how state files are sorted.
        """
        place, rest = self.group_of(hashes), _div(hashes, self.groups)
        if by_bin:
            place, rest = place * self.bins + _mod(rest, self.bins), _div(rest, self.bins)
        span = self._span(by_bin)
        return place * span + (rest >> 4) + span // 2

    def order_ranges(
        self, groups: Collection[int], bins: Collection[int] | None, by_bin: bool
    ) -> tuple[Int64s, Int64s]:
        """First and last order of key groups, or of some bins of each if files are sorted so."""
        span, places = self._span(by_bin), np.array(sorted(groups), np.int64)
        if by_bin and bins is None:
            span *= self.bins
        elif by_bin:
            assert bins is not None
            inside = np.array(sorted(bins), np.int64)
            places = (places[:, None] * self.bins + inside[None, :]).ravel()
        return places * span, (places + 1) * span - 1

    def _span(self, by_bin: bool) -> int:
        return (1 << 61) // (self.groups * (self.bins if by_bin else 1))


@dataclass(frozen=True, slots=True)
class SiteSpace:
    """How key groups are divided among sites, which are known by the hashes of their names.

    Ranges of `width` key groups each. Declared sites have the first ranges, one each; all other
    sites share the last ones. A site is always in one range.
    """

    groups: int
    width: int
    shared: int
    """Ranges at the end, for sites that were not declared."""
    declared: tuple[int, ...] = ()
    """Hashes of sites, in the order of their ranges."""

    @property
    def ranges(self) -> int:
        """How many there are; key groups that are left over have no site."""
        return self.groups // self.width

    @property
    def capacity(self) -> int:
        """How many sites can be declared."""
        return self.ranges - self.shared

    def range_of(self, site: int) -> int:
        """Number of the range of a site."""
        if site in self.declared:
            return self.declared.index(site)
        return self.capacity + site % self.shared

    def groups_of(self, site: int) -> range:
        """Key groups of a site."""
        first = self.range_of(site) * self.width
        return range(first, first + self.width)

    def place(self, hashes: Int64s, sites: Int64s) -> Int64s:
        """Hashes of keys, changed so that their key groups are those of their sites.

        The key group is chosen by the lowest bits, the bin by higher ones: both stay even. One bit
        is given up, so that nothing overflows. `spark/plan.py` computes the same in the JVM.
        """
        distinct, at = np.unique(sites, return_inverse=True)
        firsts = np.array([self.groups_of(site).start for site in distinct.tolist()], np.int64)
        half = hashes >> 1
        return half - _mod(half, self.groups) + firsts[at] + _mod(hashes, self.width)


def _div(values: Int64s, size: int) -> Int64s:
    if size & (size - 1):
        return np.floor_divide(values, size)
    return values >> (size.bit_length() - 1)


def _mod(values: Int64s, size: int) -> Int64s:
    # The same for powers of two, several times faster.
    return np.mod(values, size) if size & (size - 1) else values & (size - 1)
