"""A key group of a columnar operator: a table of the keys in use over a namespace with the rest."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import HASH, Int64s
from anabranch.state.columnar.grouping import Places
from anabranch.state.columnar.index import HashIndex, Slots
from anabranch.state.columnar.layout import SECTION, ColumnarLayout
from anabranch.state.columnar.table import NEVER, UNKNOWN, GroupTable
from anabranch.state.columnar.values import flat
from anabranch.state.contract import Sections
from anabranch.state.rocksdb.database import Namespace
from anabranch.state.rocksdb.records import RecordCodec

STORED = "stored"
"""Section with values as they are in the database: all entries of a hash in one row."""

_EXPIRY = 1
"""Section of the index by expiry."""

_NO_HASHES: Int64s = np.empty(0, np.int64)


class StoredTable(GroupTable):
    """State of one key group; see `GroupState`.

    What the table inherits is the working set: all entries of the hashes in `_here`. It is written
    back and emptied at a `begin`, when nothing can be undone, if working sets take too much memory.
    For hashes that are not here the database counts.
    """

    def __init__(self, layout: ColumnarLayout, codec: RecordCodec, space: Namespace) -> None:
        super().__init__(layout, space.keyspace)
        self.space = space
        self._codec = codec
        self._rows_below = 0
        """Entries in the database whose hashes are not here."""
        self._forget()

    def _forget(self) -> None:
        self._here = HashIndex()
        self._dirty: list[Int64s] = []
        """Hashes whose entries differ from those in the database."""
        self._hints: list[tuple[Int64s, Int64s]] = []
        """Hashes and expiries of entries that were brought."""

    @property
    def has_more(self) -> bool:
        """Whether the database has entries that are not here."""
        return self._rows_below > 0

    # Bringing

    def missing(self, hashes: Int64s) -> Int64s:
        """Which of sorted hashes are not here; each once, in the order of the database."""
        once = np.ones(len(hashes), bool)
        np.not_equal(hashes[1:], hashes[:-1], out=once[1:])
        if len(self._here):
            once &= self._here.find(hashes) < 0
        return self.space.in_order(hashes if once.all() else hashes[once])

    def take_in(self, hashes: Int64s, values: Sequence[bytes | None]) -> None:
        """Make hashes part of the working set; `values`: what the database has for them."""
        order = np.argsort(hashes, kind="stable")
        self._here = self._here.add(hashes[order], np.zeros(len(hashes), np.int32))
        at = [i for i, value in enumerate(values) if value is not None]
        if not at:
            return
        found = [value for value in values if value is not None]
        of_entry, raw, expiry = self._put_in(self, hashes[at], found)
        self._rows_below -= len(raw)
        if expiry is not None:
            self._hints.append((of_entry, expiry))

    def bring(self, hashes: Int64s) -> None:
        """Make sorted hashes part of the working set."""
        wanted = self.missing(hashes)
        if len(wanted):
            keys = self.space.keys_of(wanted) if self.has_more else ()
            self.take_in(wanted, self.space.database.get(keys))

    def _put_in(
        self, table: GroupTable, hashes: Int64s, values: Sequence[bytes]
    ) -> tuple[Int64s, npt.NDArray[np.void], Int64s | None]:
        """Entries of the database into a table: hashes, records and expiries."""
        counts, raw, columns = self._codec.decode(values)
        if self.layout.arena_parts:
            raw = raw.copy()
            records = raw.view(self.layout.record)
            parts = zip(self.layout.arena_parts, table.arenas, columns, strict=True)
            for part, arena, column in parts:
                records[part.value] = arena.append(column)
        of_entry = np.repeat(hashes, counts)
        floor = table.expiry_floor
        table._install(of_entry, raw)
        table.expiry_floor = floor  # what was in the database counted already
        return of_entry, raw, self._expiries(raw)

    def _expiries(self, raw: npt.NDArray[np.void]) -> Int64s | None:
        part = self.layout.expiry_part
        if part is None:
            return None
        values, valid = self.layout.decode(part, raw.view(self.layout.record))
        expiries: Int64s = values if valid is None else np.where(valid, values, NEVER)
        return expiries

    # Transactions

    def begin(self) -> None:
        """The last transaction is final; write back if working sets have become too large."""
        self._note_changes()
        super().begin()
        size = super().num_bytes + self._here.num_bytes
        if self.space.database.note_working_set(self.space.number, size) and size:
            self._spill()
            self.space.database.note_working_set(self.space.number, 0)

    def _note_changes(self) -> None:
        written = [*(slots for slots, _ in self._overwritten), *self._allocated]
        for changed, index in ((written, self.index), (self._freed, self._before)):
            if changed:
                hashes, slots = index.entries()
                is_changed = np.zeros(self._size, bool)
                is_changed[np.concatenate(changed)] = True
                self._dirty.append(hashes[is_changed[slots]])

    def _spill(self) -> None:
        """Write back what has changed and empty the working set; only with nothing to undo."""
        live, slots = self.index.entries()
        if self._dirty:
            dirty = np.unique(np.concatenate(self._dirty))
            at = np.flatnonzero(_is_in(live, dirty))
            hashes, values = self._values(self, live[at], slots[at])
            gone = dirty[~_is_in(dirty, hashes)]
            before: set[bytes] = set()
            for some, times in self._hints:
                changed = _is_in(some, dirty)
                before.update(self._hint_keys(some[changed], times[changed]))
            expiries = self._expiries(self._raw.take(slots[at]))
            after = set() if expiries is None else set(self._hint_keys(live[at], expiries))
            self.space.put(hashes, values, gone, after - before, before - after)
        self._rows_below += len(live)
        floor = self.expiry_floor
        self._reset()
        self.expiry_floor = floor
        self._forget()

    def _values(
        self, table: GroupTable, hashes: Int64s, slots: Slots
    ) -> tuple[Int64s, list[bytes]]:
        """Entries of a table, sorted by hash, as values of the database."""
        raw = table.read(slots)
        records = raw.view(self.layout.record)
        columns = [
            arena.take(np.ascontiguousarray(records[part.value]))
            for part, arena in zip(self.layout.arena_parts, table.arenas, strict=True)
        ]
        return self._codec.encode(hashes, raw, columns)

    def _hint_keys(self, hashes: Int64s, expiries: Int64s) -> list[bytes]:
        expires = expiries < NEVER
        return self.space.hints_of(_EXPIRY, expiries[expires], hashes[expires])

    # What expires

    def due(self, limit: int) -> tuple[Int64s, Slots]:
        """Entries whose expiry is at or before the limit, in the order of their hashes."""
        _, hashes, later = self.space.due(_EXPIRY, limit)
        self.bring(np.unique(hashes))
        found = super().due(limit)
        self.expiry_floor = min(self.expiry_floor, NEVER if later is None else later)
        return found

    def peek_due(self, limit: int) -> Int64s:
        """Hashes of what `due` would return; changes nothing."""
        if self.layout.expiry_part is None or self.expiry_floor > limit:
            return _NO_HASHES
        _, hashes, _ = self.space.due(_EXPIRY, limit)
        below = np.unique(hashes)
        below = below[self._here.find(below) < 0]
        return np.union1d(below, super().peek_due(limit))

    # Moving

    def export(self, bins: Collection[int] | None = None, hashes: Int64s | None = None) -> Sections:
        """All entries, or those of some bins or hashes, in the order of bins."""
        table = GroupTable(self.layout, self._keyspace)
        if hashes is not None:
            wanted = self.missing(np.unique(hashes))
            keys = self.space.keys_of(wanted) if self.has_more else ()
            values = self.space.database.get(keys)
            at = [i for i, value in enumerate(values) if value is not None]
            below = wanted[at], [value for value in values if value is not None]
        else:
            below = self._below(bins)
        if len(below[1]):
            self._put_in(table, *below)
        table.install(super().export(bins, hashes))
        return table.export()

    def export_packed(self, bins: Collection[int]) -> Sections:
        """Values as they are in the database."""
        hashes, values = self._below(bins)
        mine, slots = self._by_bin(*self.index.entries(), bins)
        order = np.argsort(mine, kind="stable")
        more, more_values = self._values(self, mine[order], slots[order])
        content = pa.array([*values, *more_values], pa.large_binary())
        arrays = [pa.array(np.concatenate((hashes, more))), content]
        return {STORED: pa.Table.from_arrays(arrays, [HASH, STORED])}

    def _below(self, bins: Collection[int] | None) -> tuple[Int64s, list[bytes]]:
        """Entries in the database whose hashes are not here."""
        if not self._rows_below:
            return _NO_HASHES, []
        hashes, values = self.space.scan(range(self._keyspace.bins) if bins is None else bins)
        if not len(self._here):
            return hashes, values
        at = np.flatnonzero(self._here.find(hashes) < 0)
        return hashes[at], [values[i] for i in at.tolist()]

    def install(self, sections: Sections) -> None:
        """Add exported entries to the database; an undo keeps them."""
        stored = sections.get(STORED)
        if stored is not None and stored.num_rows:
            hashes = flat(stored.column(HASH)).to_numpy()
            self._add(hashes, flat(stored.column(STORED)).to_pylist())
        table = GroupTable(self.layout, self._keyspace)
        table.install({name: some for name, some in sections.items() if name != STORED})
        if table.num_rows:
            self._add(*self._values(table, *table.index.entries()))

    def _add(self, hashes: Int64s, values: list[bytes]) -> None:
        """New values; those of hashes that are known already are put to the others."""
        known = np.zeros(len(hashes), bool)
        if len(self._here):
            known = self._here.find(hashes) >= 0
        if self._rows_below:
            found = self.space.database.get(self.space.keys_of(hashes))
            known |= np.fromiter((value is not None for value in found), bool, len(hashes))
        if known.any():
            at = np.flatnonzero(known)
            self.bring(np.sort(hashes[at]))
            self._put_in(self, hashes[at], [values[i] for i in at.tolist()])
            self._dirty.append(hashes[at])
            at = np.flatnonzero(~known)
            hashes, values = hashes[at], [values[i] for i in at.tolist()]
        if len(values):
            counts, raw, _ = self._codec.decode(values)
            expiries = self._expiries(raw)
            hints = () if expiries is None else self._hint_keys(np.repeat(hashes, counts), expiries)
            self.space.put(hashes, values, _NO_HASHES, hints, ())
            self._rows_below += len(raw)
        self.expiry_floor = UNKNOWN

    def replay(self, sections: Sections) -> None:
        """Apply a changelog; nothing before it can be undone any more."""
        self.begin()
        table = sections.get(SECTION)
        if table is not None and table.num_rows:
            self.bring(np.unique(flat(table.column(HASH)).to_numpy()))
            super().replay(sections)
            self.begin()  # it may have brought more than there is room for

    def discard(self, bins: Collection[int]) -> None:
        """Drop the entries of some bins; an undo does not bring them back."""
        super().discard(bins)
        counts, _, _ = self._codec.decode(self._below(bins)[1])
        self._rows_below -= int(counts.sum())
        self.space.delete_bins(bins)
        times, hashes, _ = self.space.due(_EXPIRY, NEVER)
        at = np.isin(self._keyspace.bin_of(hashes), list(bins))
        self.space.delete(self._hint_keys(hashes[at], times[at]))

    @property
    def num_rows(self) -> int:
        """Number of entries."""
        return self._rows_below + super().num_rows

    @property
    def num_bytes(self) -> int:
        """Memory of the working set and about the size of the rest."""
        return self.space.size_of(self._rows_below) + super().num_bytes


def bring(tables: Sequence[StoredTable], bounds: Places, hashes: Int64s) -> None:
    """Make hashes part of the working sets of several tables, with one read."""
    cuts = bounds.tolist()
    wanted = [
        (table, table.missing(hashes[start:end]))
        for table, start, end in zip(tables, cuts[:-1], cuts[1:], strict=True)
    ]
    keys: list[bytes] = []
    for table, some in wanted:
        if table.has_more:
            keys += table.space.keys_of(some)
    values = tables[0].space.database.get(keys)
    start = 0
    for table, some in wanted:
        size = len(some) if table.has_more else 0
        table.take_in(some, values[start : start + size])
        start += size


def _is_in(hashes: Int64s, known: Int64s) -> npt.NDArray[np.bool_]:
    """Which hashes are among the known ones, which are sorted."""
    if not len(known):
        return np.zeros(len(hashes), bool)
    at = np.minimum(known.searchsorted(hashes), len(known) - 1)
    found: npt.NDArray[np.bool_] = known[at] == hashes
    return found
