"""State of one key group: a record per key, changed in place, with a log to undo it."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

import numpy as np

from anabranch.model.keyspace import Int64s
from anabranch.state.contract import Sections
from anabranch.state.rows.cells import Captured, count_entries, is_empty, size_of
from anabranch.state.rows.expiry import ExpiryIndex
from anabranch.state.rows.layout import HASH_AT, TIMERS_AT, Record, RowLayout
from anabranch.state.rows.sections import export_records, load_sections

_SAMPLE = 32


class RowGroupState:
    """`GroupState` of the row API; the variables of processor/rows work on `records` directly."""

    __slots__ = (
        "_entries_before",
        "entries",
        "expiries",
        "layout",
        "records",
        "timers",
        "undo_log",
    )

    def __init__(self, layout: RowLayout) -> None:
        self.layout = layout
        self.records: dict[Any, Record] = {}
        """Canonical key to record. Emptied records stay until the next `begin`."""
        self.undo_log: dict[Any, Record | None] = {}
        """Former record of each key touched by the transaction; None for a new one."""
        self.timers = ExpiryIndex()
        self.expiries = {variable.slot: ExpiryIndex() for variable in layout.expiring}
        self.entries = 0
        self._entries_before = 0

    def begin(self) -> None:
        records = self.records
        maps = self.layout.maps
        for key in self.undo_log:
            record = records.get(key)
            if record is None:
                continue
            for slot in maps:
                if record[slot] is not None:
                    record[slot].undo_log = {}
            if is_empty(record):
                del records[key]
        self.undo_log = {}
        self._entries_before = self.entries
        for index in self._indexes():
            index.begin()

    def undo(self) -> None:
        records = self.records
        maps = self.layout.maps
        for key, former in self.undo_log.items():
            if former is None:
                records.pop(key, None)
                continue
            for slot in maps:
                if former[slot] is not None:
                    former[slot].rollback()
            records[key] = former
        self.undo_log = {}
        self.entries = self._entries_before
        for index in self._indexes():
            index.undo()

    def touch(self, key: Any, record: Record) -> Record | None:
        """Before the first write to a key: remember its record, and let a new one in."""
        log = self.undo_log
        if key in log:
            return log[key]
        if key in self.records:
            former: Record | None = record.copy()
        else:
            former = None
            self.records[key] = record
        log[key] = former
        return former

    def capture(self, keys: Iterable[Any], slot: int, before: bool) -> list[Captured]:
        """What keys have in a slot as it is, or was at the last `begin`: the same for ever."""
        found: list[Captured] = []
        log = self.undo_log
        for key in keys:
            is_changed = before and key in log
            record = log[key] if is_changed else self.records.get(key)
            if record is not None and record[slot] is not None:
                found.append(Captured.of(key, record[HASH_AT], record[slot], is_changed))
        return found

    def export(self, bins: Collection[int] | None = None, hashes: Int64s | None = None) -> Sections:
        keys, records = self._by_bin(bins, hashes)
        return export_records(self.layout, keys, records)

    def export_packed(self, bins: Collection[int]) -> Sections:
        return self.export(bins)

    def install(self, sections: Sections) -> None:
        added = load_sections(self, sections, changelog=False)
        self.entries += added
        self._entries_before += added

    def replay(self, sections: Sections) -> None:
        # A replayed transaction is final: nothing before it can be undone any more.
        self.begin()
        self.entries += load_sections(self, sections, changelog=True)
        self._entries_before = self.entries

    def discard(self, bins: Collection[int]) -> None:
        layout = self.layout
        keys, records = self._by_bin(bins)
        for key, record in zip(keys, records, strict=True):
            del self.records[key]
            former = self.undo_log.pop(key, record)
            self.entries -= count_entries(layout, record)
            if former is not None:
                self._entries_before -= count_entries(layout, former)
        if keys:
            self.records = dict(self.records)  # a dictionary that items leave does not shrink
            self._forget_hints()

    def _forget_hints(self) -> None:
        """Keep only those of records that are here: others come with their records."""
        records = self.records
        self.timers.retain(records.__contains__)
        for variable in self.layout.expiring:
            index = self.expiries[variable.slot]
            if variable.spec.kind == "map":
                index.retain(lambda item: item[0] in records)
            else:
                index.retain(records.__contains__)

    @property
    def num_rows(self) -> int:
        return self.entries

    @property
    def num_bytes(self) -> int:
        hints_bytes = sum(index.num_bytes for index in self._indexes())
        sample = list(islice(self.records.items(), _SAMPLE))
        if not sample:
            return hints_bytes
        records_bytes = sum(map(size_of, sample)) * len(self.records) // len(sample)
        return records_bytes + sys.getsizeof(self.records) + hints_bytes

    def take_timers(self, until_ms: int) -> list[tuple[int, set[Any]]]:
        """Keys by the times of their timers that are due; some may be gone meanwhile."""
        return self.timers.take(until_ms)

    def take_expired(self, slot: int, now_ms: int) -> list[tuple[int, set[Any]]]:
        """Keys (with user keys for a map) whose values may have expired, by time."""
        return self.expiries[slot].take(now_ms)

    def due_timers(self, until_ms: int) -> Int64s:
        """Hashes of the keys that have a timer due by then."""
        found = {
            record[HASH_AT]
            for expiry_ms, keys in self.timers.peek(until_ms)
            for key in keys
            if (record := self.records.get(key)) is not None
            and expiry_ms in (record[TIMERS_AT] or ())
        }
        return np.array(sorted(found), np.int64)

    def _by_bin(
        self, bins: Collection[int] | None, wanted: Int64s | None = None
    ) -> tuple[list[Any], list[Record]]:
        keys = list(self.records)
        records = list(self.records.values())
        if not keys:
            return keys, records
        hashes = np.fromiter((record[HASH_AT] for record in records), np.int64, len(records))
        bin_of = self.layout.keyspace.bin_of(hashes)
        at = np.arange(len(keys))
        if bins is not None:
            at = np.flatnonzero(np.isin(bin_of, list(bins)))
        elif wanted is not None:
            at = np.flatnonzero(np.isin(hashes, wanted))
        chosen = at[np.argsort(bin_of[at], kind="stable")].tolist()
        return [keys[at] for at in chosen], [records[at] for at in chosen]

    def _indexes(self) -> Iterable[ExpiryIndex]:
        return (self.timers, *self.expiries.values()) if self.expiries else (self.timers,)
