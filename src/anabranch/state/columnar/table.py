"""The entries of one key group: an index, packed records and arenas."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import HASH, Int64s, KeySpace
from anabranch.state.columnar.arena import Arena
from anabranch.state.columnar.before import TableBefore
from anabranch.state.columnar.index import HashIndex, Slots
from anabranch.state.columnar.keyed import replay
from anabranch.state.columnar.layout import (
    SECTION,
    ColumnarLayout,
    Records,
    columns_of,
    fixed,
    stored_columns,
)
from anabranch.state.columnar.values import flat
from anabranch.state.contract import Sections
from anabranch.state.memory_pools import PARCELS

UNKNOWN = -(2**63)
NEVER = 2**63 - 1
_GROWTH = 1.25

PACKED = "packed"
"""Section with records as they are in memory."""


class GroupTable:
    """State of one key group; see `GroupState`.

    Slots that a transaction frees are not used again before the next one, so undoing needs only the
    old index and the old records of the slots that were written over. What is installed or
    discarded has moved for good: it stays so after an undo.
    """

    def __init__(self, layout: ColumnarLayout, keyspace: KeySpace) -> None:
        self.layout = layout
        self.index = HashIndex()
        self.arenas = [Arena(part.kind) for part in layout.arena_parts]
        self.expiry_floor = NEVER
        """No entry expires before it; UNKNOWN: look at all of them."""
        self._keyspace = keyspace
        self._raw: npt.NDArray[np.void] = np.empty(0, layout.raw)
        self._size = 0
        self._free: Slots = np.empty(0, np.int32)
        self._freed: list[Slots] = []
        self._allocated: list[Slots] = []
        self._discarded: list[Slots] = []
        self._before = self.index
        self._overwritten: list[tuple[Slots, npt.NDArray[np.void]]] = []
        self._tidied = self.index, 0
        """Index and rows in arenas when space was last looked after (-1: it has to be)."""

    # Transactions

    def begin(self) -> None:
        """Start a transaction: freed slots can be used again."""
        self._overwritten.clear()
        if self._freed or self._discarded or self._allocated:
            self._give_back(self._freed)
        self._before = self.index
        if self.index is self._tidied[0] and self._arena_rows() == self._tidied[1]:
            return  # mostly nothing was added or removed
        if self._size > 64 and len(self.index) * 4 < self._size:
            self._rebuild()
        else:
            self._compact_arenas()
        self._tidied = self.index, self._arena_rows()

    def undo(self) -> None:
        """Go back to the last `begin`."""
        for slots, raw in reversed(self._overwritten):
            self._raw[slots] = raw
        if self._overwritten or self.index is not self._before:
            self.index = self._before
            self._give_back(self._allocated)
            self.expiry_floor = UNKNOWN
        self._overwritten.clear()

    def before(self) -> TableBefore:
        """The table as it was at the last `begin`."""
        return TableBefore(self._before, self._raw, self._overwritten, self.arenas)

    def _give_back(self, slots: list[Slots]) -> None:
        """A transaction is over or undone: these slots are free, and those of discarded bins."""
        done = [*slots, *self._discarded]
        if done:
            # A slot may have been written and discarded in one transaction.
            unique = np.unique(np.concatenate(done)) if self._discarded else np.concatenate(done)
            self._free = np.concatenate((self._free, unique))
        for kept in (self._freed, self._allocated, self._discarded):
            kept.clear()

    # Records

    def read(self, slots: Slots) -> npt.NDArray[np.void]:
        """Raw records of some slots."""
        return self._raw.take(slots)

    def insert(self, hashes: Int64s, raw: npt.NDArray[np.void], repeats: bool) -> None:
        """Add entries (sorted by hash) whose keys are not here."""
        slots = self._allocate(len(hashes))
        self._allocated.append(slots)
        self._raw[slots] = raw
        self.index = self.index.add(hashes, slots, repeats)

    def overwrite(self, slots: Slots, raw: npt.NDArray[np.void], old: npt.NDArray[np.void]) -> None:
        """Replace records; `old` is what `read` gave for the slots."""
        self._overwritten.append((slots, old))
        self._raw[slots] = raw

    def remove(self, hashes: Int64s, slots: Slots) -> None:
        """Drop entries (sorted by hash)."""
        self.index = self.index.remove(hashes, slots)
        self._freed.append(slots)

    def due(self, limit: int) -> tuple[Int64s, Slots]:
        """Entries whose expiry is at or before the limit, in the order of their hashes."""
        part = self.layout.expiry_part
        assert part is not None
        hashes, slots = self.index.entries()
        records = self._raw.take(slots).view(self.layout.record)
        values, valid = self.layout.decode(part, records)
        if valid is not None:
            values = np.where(valid, values, NEVER)
        due = values <= limit
        self.expiry_floor = int(values[~due].min(initial=NEVER))
        return hashes[due], slots[due]

    def peek_due(self, limit: int) -> Int64s:
        """Hashes of what `due` would return; changes nothing."""
        part = self.layout.expiry_part
        if part is None or self.expiry_floor > limit:
            return np.empty(0, np.int64)
        hashes, slots = self.index.entries()
        values, valid = self.layout.decode(part, self._raw.take(slots).view(self.layout.record))
        due = values <= limit
        if valid is not None:
            due &= valid
        return np.unique(hashes[due])

    def columns(self, slots: Slots) -> list[Any]:
        """All columns of some slots as Arrow arrays."""
        return self.decode(self._raw.take(slots).view(self.layout.record))

    def decode(self, records: Records) -> list[Any]:
        """All columns of records of this table as Arrow arrays."""
        arenas = iter(self.arenas)
        found = []
        for part in self.layout.parts:
            values, valid = self.layout.decode(part, records)
            found.append(next(arenas).take(values) if part.in_arena else fixed(part, values, valid))
        return found

    # Moving

    def export(self, bins: Collection[int] | None = None, hashes: Int64s | None = None) -> Sections:
        """All entries, or those of some bins or hashes, in the order of bins."""
        if hashes is None:
            entries = self.index.entries()
        else:
            wanted = np.unique(hashes)
            at, slots = self.index.pairs(wanted)
            entries = wanted[at], slots
        hashes, slots = self._by_bin(*entries, bins)
        return {SECTION: self.layout.section(hashes, self.columns(slots))}

    def export_packed(self, bins: Collection[int]) -> Sections:
        """Records as they lie in memory, and what they point to."""
        hashes, slots = self._by_bin(*self.index.entries(), bins)
        raw = self._raw.take(slots)
        records = raw.view(self.layout.record)
        kind = pa.binary(self.layout.raw.itemsize)
        packed = pa.Array.from_buffers(kind, len(raw), [None, pa.py_buffer(raw)])
        pointed = [
            arena.take(np.ascontiguousarray(records[part.value]), PARCELS, PARCELS)
            for part, arena in zip(self.layout.arena_parts, self.arenas, strict=True)
        ]
        names = [HASH, PACKED, *(part.name for part in self.layout.arena_parts)]
        return {PACKED: pa.Table.from_arrays([pa.array(hashes), packed, *pointed], names)}

    def _by_bin(
        self, hashes: Int64s, slots: Slots, bins: Collection[int] | None
    ) -> tuple[Int64s, Slots]:
        """Entries (of some bins) in the order of bins."""
        of_entry = self._keyspace.bin_of(hashes).astype(np.uint16)
        if bins is not None and len(bins) < self._keyspace.bins:
            some = np.zeros(self._keyspace.bins, bool)
            some[list(bins)] = True
            kept = np.flatnonzero(some[of_entry])
            hashes, slots, of_entry = hashes[kept], slots[kept], of_entry[kept]
        order = np.argsort(of_entry, kind="stable")
        return hashes[order], slots[order]

    def install(self, sections: Sections) -> None:
        """Add exported entries; an undo keeps them."""
        for section, take_in in ((SECTION, self._from_columns), (PACKED, self._from_packed)):
            table = sections.get(section)
            if table is not None and table.num_rows:
                (hashes,) = columns_of(table, pa.schema([pa.field(HASH, pa.int64())]))
                self._install(hashes.to_numpy(), take_in(table))

    def _from_columns(self, table: pa.Table) -> npt.NDArray[np.void]:
        layout = self.layout
        columns = [*columns_of(table, layout.keys), *stored_columns(table, layout.state)]
        return self.pack(columns).view(layout.raw)

    def _from_packed(self, table: pa.Table) -> npt.NDArray[np.void]:
        layout = self.layout
        packed = flat(table.column(PACKED))
        start = packed.offset * layout.raw.itemsize
        raw = np.frombuffer(packed.buffers()[1], layout.raw, len(packed), start)
        if not layout.arena_parts:
            return raw
        records = raw.view(layout.record).copy()
        for part, arena in zip(layout.arena_parts, self.arenas, strict=True):
            column = table.column(part.name)
            records[part.value] = arena.append(column)
        return records.view(layout.raw)

    def _install(self, unsorted: Int64s, raw: npt.NDArray[np.void]) -> None:
        order = np.argsort(unsorted, kind="stable")  # quick: exported bins are sorted already
        sorted_hashes = unsorted[order]
        repeats = bool((sorted_hashes[1:] == sorted_hashes[:-1]).any())
        if len(self.index) or self._before is not self.index:
            repeats = repeats or any(
                bool(len(index.pairs(sorted_hashes)[0])) for index in (self.index, self._before)
            )
        slots = self._allocate(len(order))
        if (np.diff(slots) == 1).all():  # new space, or as good: quicker
            self._raw[slots[0] : slots[-1] + 1] = raw
        else:
            self._raw[slots] = raw
        slots = slots[order]
        same = self._before is self.index
        self.index = self.index.add(sorted_hashes, slots, repeats)
        self._before = self.index if same else self._before.add(sorted_hashes, slots, repeats)
        self.expiry_floor = UNKNOWN

    def replay(self, sections: Sections) -> None:
        """Apply a changelog; of several entries with one key the last counts."""
        table = sections.get(SECTION)
        if table is not None and table.num_rows:
            replay(self, table)

    def discard(self, bins: Collection[int]) -> None:
        """Drop the entries of some bins; an undo does not bring them back."""
        wanted = list(bins)
        same = self._before is self.index
        gone: list[Slots] = []
        kept: list[HashIndex] = []
        for index in (self.index,) if same else (self.index, self._before):
            hashes, slots = index.entries()
            drop = np.isin(self._keyspace.bin_of(hashes), wanted)
            gone.append(slots[drop])
            kept.append(
                HashIndex().add(hashes[~drop], slots[~drop], index.repeats) if drop.any() else index
            )
        self.index, self._before = kept[0], kept[-1]
        self._tidied = self.index, -1
        self._discarded.extend(gone)
        if not len(self.index) and same:
            self._reset()

    @property
    def num_rows(self) -> int:
        """Number of entries."""
        return len(self.index)

    @property
    def num_bytes(self) -> int:
        """Memory of index, records and arenas."""
        arenas = sum(arena.num_bytes for arena in self.arenas)
        return self.index.num_bytes + self._raw.nbytes + arenas

    # Space

    def pack(self, columns: Sequence[Any]) -> Records:
        """Records for whole columns; values of variable width go to the arenas."""
        layout = self.layout
        count = len(columns[0]) if columns else 0
        records = np.zeros(count, layout.record)
        arenas = iter(self.arenas)
        for part, array in zip(layout.parts, columns, strict=True):
            if part.in_arena:
                records[part.value] = next(arenas).append(array)
            else:
                layout.encode(part, array, records)
        return records

    def _allocate(self, count: int) -> Slots:
        reused = self._free[:count]
        self._free = self._free[count:]
        first, self._size = self._size, self._size + count - len(reused)
        if self._size > len(self._raw):
            grown = np.empty(max(16, int(self._size * _GROWTH)), self.layout.raw)
            grown[:first] = self._raw[:first]
            self._raw = grown
        fresh = np.arange(first, self._size, dtype=np.int32)
        return np.concatenate((reused, fresh)) if len(reused) else fresh

    def _reset(self) -> None:
        self.index = self._before = HashIndex()
        self._tidied = self.index, 0
        self._raw = np.empty(0, self.layout.raw)
        self._size = 0
        self._free = np.empty(0, np.int32)
        for slots in (self._freed, self._allocated, self._discarded):
            slots.clear()
        self._overwritten.clear()
        self.expiry_floor = NEVER
        for arena in self.arenas:
            arena.clear()

    def _rebuild(self) -> None:
        """Give back memory after many removals; only when there is nothing to undo."""
        hashes, slots = self.index.entries()
        repeats = self.index.repeats
        raw = self._raw.take(slots)
        self._raw = raw
        self._size = len(raw)
        self._free = np.empty(0, np.int32)
        fresh = np.arange(len(raw), dtype=np.int32)
        self.index = self._before = HashIndex().add(hashes, fresh, repeats)
        self._compact_arenas(force=True)

    def _arena_rows(self) -> int:
        return sum(arena.rows for arena in self.arenas)

    def _compact_arenas(self, force: bool = False) -> None:
        live = len(self.index)
        for part, arena in zip(self.layout.arena_parts, self.arenas, strict=True):
            if arena.rows > 2 * live + 64 or (force and arena.rows > live):
                slots = self.index.entries()[1]
                pointers = self._raw.view(self.layout.record)[part.value]
                rows = pointers[slots]
                present = rows >= 0
                arena.compact(rows[present])
                pointers[slots[present]] = np.arange(int(present.sum()), dtype=np.int32)
