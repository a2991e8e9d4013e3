"""From a key's hash to its slot: immutable sorted runs, searched and merged by vectors.

A main run and a small delta run, both sorted by hash. Every change makes a new index that shares
what it can, so undoing a transaction is going back to the old index.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anabranch.model.keyspace import Int64s

Slots = npt.NDArray[np.int32]

_NO_HASHES: Int64s = np.empty(0, np.int64)
_NO_SLOTS: Slots = np.empty(0, np.int32)
_DELTA_MIN = 64
_DELTA_SHARE = 8


@dataclass(frozen=True, slots=True)
class SortedRun:
    """Hashes in order, the slot of each; slot -1 is a removed entry."""

    hashes: Int64s
    slots: Slots
    removed: int = 0

    def find(self, hashes: Int64s) -> Slots:
        """Slot of each hash (sorted), -1 where there is none; hashes in the run are unique."""
        if not len(self.hashes):
            return np.full(len(hashes), -1, np.int32)
        at = self.hashes.searchsorted(hashes)
        slots: Slots = self.slots.take(at, mode="clip")
        slots[self.hashes.take(at, mode="clip") != hashes] = -1
        return slots

    def pairs(self, hashes: Int64s) -> tuple[Int64s, Slots]:
        """Every (position in `hashes`, slot) with equal hashes; hashes in the run may repeat."""
        first = self.hashes.searchsorted(hashes)
        counts = self.hashes.searchsorted(hashes, side="right") - first
        needles = np.repeat(np.arange(len(hashes)), counts)
        ends = np.cumsum(counts)
        at = np.arange(len(needles)) - np.repeat(ends - counts, counts) + np.repeat(first, counts)
        slots = self.slots[at]
        live = slots >= 0
        return needles[live], slots[live]

    def merge(self, hashes: Int64s, slots: Slots) -> SortedRun:
        """This run with sorted entries added and removed ones gone."""
        old = self.live()
        if not len(old.hashes):
            return SortedRun(hashes, slots)
        size = len(old.hashes) + len(hashes)
        at = old.hashes.searchsorted(hashes) + np.arange(len(hashes))
        rest = np.ones(size, bool)
        rest[at] = False
        merged_hashes = np.empty(size, np.int64)
        merged_slots = np.empty(size, np.int32)
        merged_hashes[at] = hashes
        merged_slots[at] = slots
        merged_hashes[rest] = old.hashes
        merged_slots[rest] = old.slots
        return SortedRun(merged_hashes, merged_slots)

    def live(self) -> SortedRun:
        """This run without removed entries."""
        if not self.removed:
            return self
        keep = self.slots >= 0
        return SortedRun(self.hashes[keep], self.slots[keep])

    def without(self, gone: npt.NDArray[np.bool_]) -> SortedRun:
        """This run with the marked entries removed."""
        count = int(np.count_nonzero(gone))
        if not count:
            return self
        slots = self.slots.copy()
        slots[gone] = -1
        run = SortedRun(self.hashes, slots, self.removed + count)
        return run.live() if run.removed * 2 > len(slots) else run

    def marks(self, hashes: Int64s, slots: Slots) -> npt.NDArray[np.bool_]:
        """Which entries of this run hold one of the slots (hashes sorted, unique in the run)."""
        gone = np.zeros(len(self.hashes), bool)
        if len(gone):
            at = np.minimum(self.hashes.searchsorted(hashes), len(gone) - 1)
            gone[at[self.slots[at] == slots]] = True
        return gone


@dataclass(frozen=True, slots=True)
class HashIndex:
    """Immutable map from hash to slots."""

    main: SortedRun = SortedRun(_NO_HASHES, _NO_SLOTS)
    delta: SortedRun = SortedRun(_NO_HASHES, _NO_SLOTS)
    repeats: bool = False
    """Some hash may have several live entries: different keys with the same hash."""

    def __len__(self) -> int:
        main, delta = self.main, self.delta
        return len(main.slots) - main.removed + len(delta.slots) - delta.removed

    @property
    def num_bytes(self) -> int:
        """Memory of both runs."""
        return 12 * (len(self.main.slots) + len(self.delta.slots))

    def find(self, hashes: Int64s) -> Slots:
        """Slot of each hash (sorted), -1 where there is none; only without repeats."""
        found = self.main.find(hashes)
        if len(self.delta.slots):
            missing = found < 0
            if missing.any():
                found[missing] = self.delta.find(hashes[missing])
        return found

    def pairs(self, hashes: Int64s) -> tuple[Int64s, Slots]:
        """Every (position in `hashes`, slot) with equal hashes."""
        main, delta = self.main.pairs(hashes), self.delta.pairs(hashes)
        return np.concatenate((main[0], delta[0])), np.concatenate((main[1], delta[1]))

    def add(self, hashes: Int64s, slots: Slots, repeats: bool = False) -> HashIndex:
        """This index with sorted entries added; `repeats`: some hash is here already, or twice."""
        if not len(hashes):
            return self
        repeats = repeats or self.repeats
        share = max(_DELTA_MIN, len(self.main.slots) // _DELTA_SHARE)
        if len(self.delta.slots) + len(hashes) <= share:
            return HashIndex(self.main, self.delta.merge(hashes, slots), repeats)
        delta = self.delta.merge(hashes, slots)
        return HashIndex(self.main.merge(delta.hashes, delta.slots), HashIndex().delta, repeats)

    def remove(self, hashes: Int64s, slots: Slots) -> HashIndex:
        """This index without the given entries (sorted by hash)."""
        if not len(hashes):
            return self
        if self.repeats:
            gone = np.zeros(1 + max(map(_top, (self.main.slots, self.delta.slots))), bool)
            gone[slots] = True
            marks = [gone[run.slots] & (run.slots >= 0) for run in (self.main, self.delta)]
        else:
            marks = [run.marks(hashes, slots) for run in (self.main, self.delta)]
        main, delta = self.main.without(marks[0]), self.delta.without(marks[1])
        return HashIndex(main, delta, self.repeats and bool(len(main.slots) + len(delta.slots)))

    def entries(self) -> tuple[Int64s, Slots]:
        """All live entries in the order of their hashes."""
        run = self.main.live()
        delta = self.delta.live()
        if len(delta.slots):
            run = run.merge(delta.hashes, delta.slots)
        return run.hashes, run.slots


def _top(slots: Slots) -> int:
    return int(slots.max(initial=-1))
