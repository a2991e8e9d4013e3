"""A key group of a row operator: records of the keys in use over a namespace with the rest."""

from __future__ import annotations

import marshal
import pickle
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from anabranch.model.keyspace import HASH, Int64s
from anabranch.state.contract import Sections
from anabranch.state.rocksdb.database import Namespace
from anabranch.state.rows.cells import MapCell, count_entries
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import HASH_AT, TIMERS_AT, Record, RowLayout
from anabranch.state.rows.sections import load_sections

Hints = set[tuple[int, int]]
"""Section and time of the timers and expiries of a hash. The section of a slot is its number."""

_PICKLED = 0x80
"""How a pickle starts, and nothing marshalled does."""


class StoredRows(RowGroupState):
    """State of one key group; see `GroupState`.

    What it inherits is the working set: the records of all keys whose hash is in `_here`. It is
    written back and emptied at a `begin`, when nothing can be undone, if working sets take too much
    memory. For hashes that are not here the database counts. A record is one value there.
    """

    __slots__ = ("__weakref__", "_dirty", "_here", "_hints", "_keys_below", "space")

    def __init__(self, layout: RowLayout, space: Namespace) -> None:
        super().__init__(layout)
        self.space = space
        self._keys_below = 0
        """Keys in the database whose hashes are not here."""
        self._forget()

    def _forget(self) -> None:
        self._here: set[int] = set()
        self._dirty: set[int] = set()
        """Hashes whose records differ from those in the database."""
        self._hints: dict[int, Hints] = {}
        """Hints of the hashes that were brought and have any."""

    @property
    def has_more(self) -> bool:
        """Whether the database has records that are not here."""
        return self._keys_below > 0

    # Bringing

    def missing(self, hashes: Iterable[int]) -> Int64s:
        """Which hashes are not here; each once, in the order of the database."""
        wanted = set(hashes) - self._here
        return self.space.in_order(np.array(sorted(wanted), np.int64))

    def take_in(self, hashes: Int64s, values: Sequence[bytes | None]) -> None:
        """Make hashes part of the working set; `values`: what the database has for them."""
        wanted = hashes.tolist()
        self._here.update(wanted)
        has_hints = self.layout.has_timers or self.layout.expiring
        for hash_, value in zip(wanted, values, strict=False):
            if value is None:
                continue
            for key, record in _loads(self.layout, value):
                self.records[key] = record
                self._keys_below -= 1
                if has_hints and (hints := _hints_of(self.layout, record)):
                    self._hints.setdefault(hash_, set()).update(hints)
                    self._index(key, record)

    def bring(self, hashes: Iterable[int]) -> None:
        """Make hashes part of the working set."""
        wanted = self.missing(hashes)
        if len(wanted):
            keys = self.space.keys_of(wanted) if self.has_more else ()
            self.take_in(wanted, self.space.database.get(keys))

    def _index(self, key: Any, record: Record) -> None:
        for time_ms in record[TIMERS_AT] or ():
            self.timers.add(time_ms, key)
        for variable in self.layout.expiring:
            cell, index = record[variable.slot], self.expiries[variable.slot]
            if cell is None:
                continue
            if variable.spec.kind == "map":
                for user_key, entry in cell.items():
                    index.add(entry[1], (key, user_key))
            else:
                for element in cell if isinstance(cell, list) else (cell,):
                    index.add(element[1], key)

    # Transactions

    def begin(self) -> None:
        records = self.records
        self._dirty.update(records[key][HASH_AT] for key in self.undo_log if key in records)
        super().begin()
        size = super().num_bytes + 64 * len(self._here)
        if self.space.database.note_working_set(self.space.number, size) and self._here:
            self._spill()
            self.space.database.note_working_set(self.space.number, 0)

    def _spill(self) -> None:
        """Write back what has changed and empty the working set; only with nothing to undo."""
        dirty = self._dirty
        if dirty:
            changed = [item for item in self.records.items() if item[1][HASH_AT] in dirty]
            by_hash = _by_hash(changed)
            gone = np.array(sorted(dirty - by_hash.keys()), np.int64)
            hints = {h: some for h, some in self._hints.items() if h in dirty}
            self._put(by_hash, gone, hints)
        self._keys_below += len(self.records)
        self.records = {}
        for index in self._indexes():
            index.clear()
        self._forget()

    def _put(
        self, by_hash: dict[int, list[tuple[Any, Record]]], gone: Int64s, hints: dict[int, Hints]
    ) -> None:
        """Write records; `hints`: what the database has for these hashes and for those gone."""
        layout, after = self.layout, dict[int, Hints]()
        if layout.has_timers or layout.expiring:
            for hash_, items in by_hash.items():
                after[hash_] = set().union(*(_hints_of(layout, record) for _, record in items))
        hashes = self.space.in_order(np.array(list(by_hash), np.int64))
        values = [_dumps(layout, by_hash[hash_]) for hash_ in hashes.tolist()]
        new, old = self._hint_keys(after), self._hint_keys(hints)
        self.space.put(hashes, values, gone, new - old, old - new)

    def _hint_keys(self, hints: dict[int, Hints]) -> set[bytes]:
        by_section: dict[int, list[tuple[int, int]]] = {}
        for hash_, some in hints.items():
            for section, time_ms in some:
                by_section.setdefault(section, []).append((time_ms, hash_))
        found: set[bytes] = set()
        for section, pairs in by_section.items():
            columns = np.array(pairs, np.int64).T
            found.update(self.space.hints_of(section, columns[0].copy(), columns[1].copy()))
        return found

    # What is due

    def take_timers(self, until_ms: int) -> list[tuple[int, set[Any]]]:
        self.bring(self.space.due(TIMERS_AT, until_ms)[1].tolist())
        return super().take_timers(until_ms)

    def take_expired(self, slot: int, now_ms: int) -> list[tuple[int, set[Any]]]:
        self.bring(self.space.due(slot, now_ms)[1].tolist())
        return super().take_expired(slot, now_ms)

    def due_timers(self, until_ms: int) -> Int64s:
        below = set(self.space.due(TIMERS_AT, until_ms)[1].tolist()) - self._here
        return np.array(sorted(below.union(super().due_timers(until_ms).tolist())), np.int64)

    # Moving

    def export(self, bins: Collection[int] | None = None, hashes: Int64s | None = None) -> Sections:
        whole = RowGroupState(self.layout)
        for value in self._below(bins, hashes)[1]:
            whole.records.update(_loads(self.layout, value))
        whole.records.update(self.records)
        return whole.export(bins, hashes)

    def _below(
        self, bins: Collection[int] | None, hashes: Int64s | None = None
    ) -> tuple[Int64s, list[bytes]]:
        """Records in the database whose hashes are not here."""
        if not self.has_more:
            return np.empty(0, np.int64), []
        if hashes is not None:
            found = self.missing(hashes.tolist())
            values = self.space.database.get(self.space.keys_of(found))
        else:
            all_bins = range(self.layout.keyspace.bins)
            found, scanned = self.space.scan(all_bins if bins is None else bins)
            values = [
                None if hash_ in self._here else value
                for hash_, value in zip(found.tolist(), scanned, strict=True)
            ]
        at = [i for i, value in enumerate(values) if value is not None]
        return found[at], [value for value in values if value is not None]

    def install(self, sections: Sections) -> None:
        """Add exported entries to the database; an undo keeps them."""
        hashes = _hashes_of(sections)
        known = self._here.intersection(hashes.tolist())
        if self.has_more:
            wanted = self.missing(hashes.tolist())
            found = self.space.database.get(self.space.keys_of(wanted))
            pairs = zip(wanted.tolist(), found, strict=True)
            known.update(hash_ for hash_, value in pairs if value is not None)
        if known:  # put to what there is
            self.bring(known)
            self._dirty.update(known)
            is_known = np.array(sorted(known), np.int64)
            super().install(_some(sections, is_known, keep=True))
            sections = _some(sections, is_known, keep=False)
        new = RowGroupState(self.layout)
        new.install(sections)
        if new.records:
            self._put(_by_hash(new.records.items()), np.empty(0, np.int64), {})
            self._keys_below += len(new.records)
            self.entries += new.entries
            self._entries_before += new.entries

    def replay(self, sections: Sections) -> None:
        self.begin()
        hashes = _hashes_of(sections).tolist()
        self.bring(hashes)
        self.entries += load_sections(self, sections, changelog=True)
        self._entries_before = self.entries
        self._dirty.update(hashes)
        self.begin()  # it may have brought more than there is room for

    def discard(self, bins: Collection[int]) -> None:
        super().discard(bins)
        for value in self._below(bins)[1]:
            for _, record in _loads(self.layout, value):
                size = count_entries(self.layout, record)
                self.entries -= size
                self._entries_before -= size
                self._keys_below -= 1
        self.space.delete_bins(bins)
        for section in (TIMERS_AT, *self.expiries):
            times, hashes, _ = self.space.due(section, 2**63 - 1)
            at = np.isin(self.layout.keyspace.bin_of(hashes), list(bins))
            self.space.delete(self.space.hints_of(section, times[at], hashes[at]))

    @property
    def num_bytes(self) -> int:
        return self.space.size_of(self._keys_below) + super().num_bytes


def bring(states: Sequence[StoredRows], sizes: Sequence[int], hashes: Sequence[int]) -> None:
    """Make hashes part of the working sets of several key groups, with one read."""
    wanted = []
    keys: list[bytes] = []
    start = 0
    for state, size in zip(states, sizes, strict=True):
        some = state.missing(hashes[start : start + size])
        wanted.append((state, some))
        if state.has_more:
            keys += state.space.keys_of(some)
        start += size
    values = states[0].space.database.get(keys) if keys else []
    start = 0
    for state, some in wanted:
        size = len(some) if state.has_more else 0
        state.take_in(some, values[start : start + size])
        start += size


def _by_hash(items: Iterable[tuple[Any, Record]]) -> dict[int, list[tuple[Any, Record]]]:
    found: dict[int, list[tuple[Any, Record]]] = {}
    for item in items:
        found.setdefault(item[1][HASH_AT], []).append(item)
    return found


def _dumps(layout: RowLayout, items: list[tuple[Any, Record]]) -> bytes:
    """Keys with the same hash and their records as one value."""
    if layout.maps:
        items = [(key, _with_maps(layout, record, dict)) for key, record in items]
    try:
        return marshal.dumps(items)
    except ValueError:  # dates, decimals, rows
        return pickle.dumps(items, pickle.HIGHEST_PROTOCOL)


def _loads(layout: RowLayout, value: bytes) -> list[tuple[Any, Record]]:
    loads = pickle.loads if value[0] == _PICKLED else marshal.loads
    items: list[tuple[Any, Record]] = loads(value)
    if layout.maps:
        items = [(key, _with_maps(layout, record, MapCell.of)) for key, record in items]
    return items


def _with_maps(layout: RowLayout, record: Record, convert: Any) -> Record:
    record = record.copy()
    for slot in layout.maps:
        if record[slot] is not None:
            record[slot] = convert(record[slot])
    return record


def _hints_of(layout: RowLayout, record: Record) -> Hints:
    hints = {(TIMERS_AT, time_ms) for time_ms in record[TIMERS_AT] or ()}
    for variable in layout.expiring:
        slot, cell = variable.slot, record[variable.slot]
        if cell is None:
            continue
        if variable.spec.kind == "map":
            hints.update((slot, entry[1]) for entry in cell.values())
        else:
            hints.update((slot, e[1]) for e in (cell if isinstance(cell, list) else (cell,)))
    return hints


def _hashes_of(sections: Sections) -> Int64s:
    parts = [table.column(HASH).to_numpy() for table in sections.values() if table.num_rows]
    return np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)


def _some(sections: Sections, hashes: Int64s, *, keep: bool) -> Sections:
    """Entries of the hashes, or of all others."""
    return {
        name: table.take(np.flatnonzero(np.isin(table.column(HASH).to_numpy(), hashes) == keep))
        for name, table in sections.items()
    }
