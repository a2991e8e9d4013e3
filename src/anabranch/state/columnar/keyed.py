"""Reading and writing the entries of many keys over many key groups, few calls for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import CorruptState
from anabranch.model.keyspace import DELETE, HASH, KEPT, OP, Int64s
from anabranch.state.columnar.arena import gather
from anabranch.state.columnar.compare import equal, is_text_or_bytes
from anabranch.state.columnar.grouping import Places, Segments, group_rows
from anabranch.state.columnar.index import Slots
from anabranch.state.columnar.layout import (
    KEPT_BITS,
    ColumnarLayout,
    RecordColumn,
    Unchanged,
    columns_of,
    fixed,
    stored_columns,
)
from anabranch.state.columnar.values import flat, to_arrow, to_numpy

if TYPE_CHECKING:
    from anabranch.state.columnar.table import GroupTable

Raw = npt.NDArray[np.void]


class KeyedEntries:
    """The entries of distinct keys, sorted by hash; `bounds[i]:bounds[i + 1]` are `tables[i]`."""

    def __init__(
        self,
        layout: ColumnarLayout,
        tables: Sequence[GroupTable],
        bounds: Places,
        hashes: Int64s,
    ) -> None:
        self.layout = layout
        self.hashes = hashes
        self.keys: Sequence[Any] = ()
        self.slots: Slots = np.empty(0, np.int32)
        """Slot of each key, -1 if it is new."""
        self._tables = tables
        self._bounds = bounds
        self._spans = list(zip(tables, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        self._known: Places = np.empty(0, np.intp)
        self._old: Raw = np.empty(0, layout.raw)
        self._clash: npt.NDArray[np.bool_] | None = None
        self._state: Sequence[Any] | None = None
        """Columns as they were read, if they were."""

    @classmethod
    def find(
        cls,
        layout: ColumnarLayout,
        tables: Sequence[GroupTable],
        bounds: Places,
        hashes: Int64s,
        keys: Sequence[Any],
    ) -> KeyedEntries:
        """Look keys up; those that are not there are new."""
        entries = cls(layout, tables, bounds, hashes)
        entries.keys = keys
        needles, slots = entries._candidates()
        old = entries._read(needles, slots)
        same = np.ones(len(needles), bool)
        everything = np.array_equal(needles, np.arange(len(hashes)))
        for part, key in zip(layout.key_parts, keys, strict=True):
            wanted = key if everything else key.take(needles)
            same &= equal(entries._column(part, old, needles), wanted)
        if not same.all():
            entries._clash = np.zeros(len(hashes), bool)
            entries._clash[needles[~same]] = True
            needles, slots, old = needles[same], slots[same], old[same]
        entries.slots = np.full(len(hashes), -1, np.int32)
        entries.slots[needles] = slots
        entries._known, entries._old = needles, old
        return entries

    @classmethod
    def at(
        cls,
        layout: ColumnarLayout,
        tables: Sequence[GroupTable],
        bounds: Places,
        hashes: Int64s,
        slots: Slots,
    ) -> KeyedEntries:
        """Entries whose slots are known."""
        entries = cls(layout, tables, bounds, hashes)
        entries.slots = slots
        entries._known = np.arange(len(slots))
        entries._old = entries._read(entries._known, slots)
        entries.keys = [
            entries._column(part, entries._old, entries._known) for part in layout.key_parts
        ]
        return entries

    @property
    def is_new(self) -> npt.NDArray[np.bool_]:
        """Keys that have no entry yet."""
        return self.slots < 0

    def state(self) -> list[Any]:
        """State columns, one row a key; null for new keys."""
        found = []
        count, known = len(self.hashes), self._known
        for part in self.layout.state_parts:
            column = self._column(part, self._old, known)
            if len(known) == count:
                found.append(column)
            elif not len(known):
                found.append(pa.nulls(count, part.kind))
            elif part.in_arena:
                rows = np.full(count, -1, np.int64)
                rows[known] = np.arange(len(known))
                found.append(column.take(pa.array(rows, mask=rows < 0)))
            else:
                some, some_valid = to_numpy(column)
                values, valid = np.zeros(count, some.dtype), np.zeros(count, bool)
                values[known] = some
                valid[known] = True if some_valid is None else some_valid
                found.append(to_arrow(values, valid, part.kind))
        self._state = found
        return found

    def write(
        self, at: Places | None, state: Sequence[Any], kept: Unchanged | None = None
    ) -> Unchanged:
        """Store the state (one row for each key in `at`; None: all keys), adding new keys.

        `kept` says which values are what they were, whatever `state` has there; None: those are
        looked for. Returns them.
        """
        layout = self.layout
        if at is None:
            at, keys = np.arange(len(self.hashes)), self.keys
        else:
            keys = [key.take(at) for key in self.keys]
        records = np.zeros(len(at), layout.record)
        for part, column in zip(layout.parts, [*keys, *state], strict=True):
            if not part.in_arena:
                layout.encode(part, column, records)
        slots = self.slots[at]
        old_at, new_at = np.flatnonzero(slots >= 0), np.flatnonzero(slots < 0)
        bounds = np.searchsorted(at, self._bounds)
        if len(old_at) == len(self._known):
            old = self._old
        else:
            old = self._old.take(np.searchsorted(self._known, at[old_at]))
        kept = self._unchanged(at, state) if kept is None else kept
        if layout.arena_parts:
            self._fill_arenas(records, [*keys, *state], bounds, (old_at, new_at, old), kept)
        raw = records.view(layout.raw)
        self._store(at, raw, slots, bounds, (old_at, new_at, old))
        if layout.expiry_part is not None:
            self._lower_floors(records, bounds)
        return kept

    def drop(self, at: Places) -> int:
        """Remove the entries of some keys; how many there were."""
        at = at[self.slots[at] >= 0]
        cuts = np.searchsorted(at, self._bounds).tolist()
        for i, table in enumerate(self._tables):
            if cuts[i] < cuts[i + 1]:
                some = at[cuts[i] : cuts[i + 1]]
                table.remove(self.hashes[some], self.slots[some])
        return len(at)

    def _candidates(self) -> tuple[Places, Slots]:
        """Keys with entries of the same hash, and the slots of these, in the order of tables."""
        found = np.full(len(self.hashes), -1, np.int32)
        clashing = []
        for table, start, end in self._spans:
            if table.index.repeats:
                clashing.append((table, start, end))
            elif start < end:
                found[start:end] = table.index.find(self.hashes[start:end])
        needles = np.flatnonzero(found >= 0)
        slots = found[needles]
        if clashing:
            more = [
                (start, *table.index.pairs(self.hashes[start:end]))
                for table, start, end in clashing
            ]
            needles = np.concatenate([needles, *(start + some for start, some, _ in more)])
            slots = np.concatenate([slots, *(some for _, _, some in more)])
            order = np.argsort(needles, kind="stable")
            needles, slots = needles[order], slots[order]
        return needles, slots

    def _read(self, needles: Places, slots: Slots) -> Raw:
        cuts = np.searchsorted(needles, self._bounds).tolist()
        found = [
            table.read(slots[cuts[i] : cuts[i + 1]])
            for i, table in enumerate(self._tables)
            if cuts[i] < cuts[i + 1]
        ]
        return np.concatenate(found) if found else np.empty(0, self.layout.raw)

    def _column(self, part: RecordColumn, raw: Raw, needles: Places) -> Any:
        """One column of records that were read for the given keys."""
        values, valid = self.layout.decode(part, raw.view(self.layout.record))
        if not part.in_arena:
            return fixed(part, values, valid)
        number = self.layout.arena_parts.index(part)
        cuts = np.searchsorted(needles, self._bounds).tolist()
        return gather(
            part.kind,
            (
                (table.arenas[number], values[cuts[i] : cuts[i + 1]])
                for i, table in enumerate(self._tables)
                if cuts[i] < cuts[i + 1]
            ),
        )

    def _unchanged(self, at: Places, state: Sequence[Any]) -> dict[str, npt.NDArray[np.bool_]]:
        """Text and bytes that are what they were: comparing costs less than writing."""
        if self._state is None or not len(self._known):
            return {}
        found = {}
        for part, before, after in zip(self.layout.state_parts, self._state, state, strict=True):
            if part.in_arena and is_text_or_bytes(part.kind):
                before = before if len(at) == len(before) else before.take(at)
                found[part.value] = equal(before, after) & (self.slots[at] >= 0)
        return found

    def _fill_arenas(
        self,
        records: npt.NDArray[np.void],
        columns: Sequence[Any],
        bounds: Places,
        split: tuple[Places, Places, Raw],
        unchanged: Unchanged,
    ) -> None:
        """Append what is new; a known key and a value that has not changed keep their places."""
        layout, (old_at, new_at, old) = self.layout, split
        number = 0
        for i, part in enumerate(layout.parts):
            if not part.in_arena:
                continue
            column, fresh, pointers = columns[i], None, records[part.value]
            if i < len(layout.key_parts):
                fresh = new_at
            elif part.value in unchanged:
                fresh = np.flatnonzero(~unchanged[part.value])
            if fresh is not None:
                pointers[old_at] = old.view(layout.record)[part.value]
                column, bounds_of = column.take(fresh), np.searchsorted(fresh, bounds)
            else:
                bounds_of = bounds
            rows = np.empty(len(column), np.int32)
            cuts = bounds_of.tolist()
            for table, start, end in zip(self._tables, cuts[:-1], cuts[1:], strict=True):
                if start < end:
                    some = column.slice(start, end - start)
                    rows[start:end] = table.arenas[number].append(some)
            pointers[slice(None) if fresh is None else fresh] = rows
            number += 1

    def _store(
        self,
        at: Places,
        raw: Raw,
        slots: Slots,
        bounds: Places,
        split: tuple[Places, Places, Raw],
    ) -> None:
        old_at, new_at, old = split
        raw_old, slots_old = raw.take(old_at), slots[old_at]
        raw_new, hashes_new = raw.take(new_at), self.hashes[at[new_at]]
        clash = self._repeats(at[new_at], hashes_new)
        cuts_old = np.searchsorted(old_at, bounds).tolist()
        cuts_new = np.searchsorted(new_at, bounds).tolist()
        for i, table in enumerate(self._tables):
            a, b = cuts_old[i], cuts_old[i + 1]
            if a < b:
                table.overwrite(slots_old[a:b], raw_old[a:b], old[a:b])
            a, b = cuts_new[i], cuts_new[i + 1]
            if a < b:
                repeats = clash is not None and bool(clash[a:b].any())
                table.insert(hashes_new[a:b], raw_new[a:b], repeats)

    def _repeats(self, new: Places, hashes: Int64s) -> npt.NDArray[np.bool_] | None:
        """Which new keys share their hash with another key."""
        twice = np.zeros(len(hashes), bool)
        np.equal(hashes[1:], hashes[:-1], out=twice[1:])
        if self._clash is not None:
            twice |= self._clash[new]
        return twice if twice.any() else None

    def _lower_floors(self, records: npt.NDArray[np.void], bounds: Places) -> None:
        part = self.layout.expiry_part
        assert part is not None
        values, valid = self.layout.decode(part, records)
        if valid is not None:
            values = np.where(valid, values, np.iinfo(np.int64).max)
        for table, start, end in zip(self._tables, bounds[:-1], bounds[1:], strict=True):
            if start < end:
                table.expiry_floor = min(table.expiry_floor, int(values[start:end].min()))


def replay(table: GroupTable, log: pa.Table) -> None:
    """Apply changelog entries to one key group; of several entries with one key the last counts."""
    layout = table.layout
    bits = None
    if KEPT in log.column_names:
        bits = _bits_now(flat(log.column(KEPT)).fill_null(0).to_numpy(), log, layout)
    hashes, ops = columns_of(log, pa.schema([pa.field(HASH, pa.int64()), pa.field(OP, pa.uint8())]))
    keys, state = columns_of(log, layout.keys), stored_columns(log, layout.state)
    segments, key_hashes = group_rows(hashes.to_numpy(), keys, None)
    last = np.maximum.reduceat(segments.order, segments.starts)
    bounds = np.array([0, len(last)])
    keys = [key.take(last) for key in keys]
    entries = KeyedEntries.find(layout, [table], bounds, key_hashes, keys)
    is_gone = ops.to_numpy() == DELETE
    gone = is_gone[last]
    entries.drop(np.flatnonzero(gone))
    left = np.flatnonzero(~gone)
    if not len(left):
        return
    kept: dict[str, npt.NDArray[np.bool_]] = {}
    columns = []
    for i, (part, column) in enumerate(zip(layout.state_parts, state, strict=True)):
        rows = last[left]
        if bits is not None and part.in_arena and i < KEPT_BITS:
            rows = _last_given(segments, bits >> np.uint64(i) & np.uint64(1) == 0)[left]
            kept[part.value] = rows < 0
            if (entries.is_new[left] & (rows < 0) | (rows >= 0) & is_gone[rows]).any():
                raise CorruptState(
                    "A changelog refers to missing state: files of an earlier epoch were "
                    "lost or changed. Restore the state location from a backup."
                )
        columns.append(column.take(pa.array(rows, mask=rows < 0)))
    entries.write(left, columns, kept)


def _last_given(segments: Segments, is_given: npt.NDArray[np.bool_]) -> Places:
    """Of each key, the last entry that has a value of its own; -1: all keep what was there."""
    rows = np.where(is_given[segments.order], segments.order, -1)
    return np.maximum.reduceat(rows, segments.starts)


def _bits_now(
    bits: npt.NDArray[np.uint64], log: pa.Table, layout: ColumnarLayout
) -> npt.NDArray[np.uint64]:
    """KEPT counts state columns as they were when the changelog was written: as they are now."""
    others = {HASH, OP, KEPT, *layout.keys.names}
    then = [name for name in log.column_names if name not in others]
    if then == layout.state.names[: len(then)]:
        return bits
    found = np.zeros_like(bits)
    for now, name in enumerate(layout.state.names[:KEPT_BITS]):
        if name in then:
            found |= (bits >> np.uint64(then.index(name)) & np.uint64(1)) << np.uint64(now)
    return found
