"""Records to Arrow sections and back: snapshots, and changelogs of what a transaction changed.

In a changelog, UPSERT sets one entry and DELETE removes it. For a list, an entry is an element at a
position; DELETE has no position and removes the whole list, so a rewritten list is a DELETE and
then its elements, while a list that only grew logs the new elements alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, repeat
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from anabranch.errors import StateMismatch
from anabranch.model.keyspace import DELETE, OP, UPSERT
from anabranch.state.columnar.values import flat
from anabranch.state.contract import Sections
from anabranch.state.rows.cells import ABSENT, MapCell, is_empty
from anabranch.state.rows.layout import HASH_AT, TIMERS, TIMERS_AT, Record, RowLayout, Variable
from anabranch.state.rows.reshaping import reshaped

if TYPE_CHECKING:
    from anabranch.state.rows.group import RowGroupState

Touched = Sequence[tuple[Any, Record | None, Record]]
"""Key, former record (None if new) and record of each key that a transaction touched."""


class SectionRows:
    """Rows of one section, column by column."""

    def __init__(self) -> None:
        self.hashes: list[int] = []
        self.ops: list[int] = []
        self.keys: list[Any] = []
        self.user_keys: list[Any] = []
        self.positions: list[int | None] = []
        self.cells: list[Any] = []

    def add(self, record: Record, key: Any, op: int, cell: Any) -> None:
        """One of a record; user keys and positions are the caller's to add."""
        self.hashes.append(record[HASH_AT])
        self.ops.append(op)
        self.keys.append(key)
        self.cells.append(cell)

    def add_entry(
        self, hashed: int, key: Any, user_key: Any, position: int | None, cell: Any
    ) -> None:
        """One that is not from a changelog."""
        self.hashes.append(hashed)
        self.keys.append(key)
        self.user_keys.append(user_key)
        self.positions.append(position)
        self.cells.append(cell)

    def table(self, layout: RowLayout, variable: Variable | None, *, changelog: bool) -> Any:
        """`cells` are values, `(value, expiry)` pairs, or timers' expiries; None in a DELETE.

        Large values are chunks of their own.
        """
        schema = layout.schema_of(variable, changelog=changelog)
        if variable is None:
            return self._piece(layout, None, (), schema)
        values: Sequence[Any] = self.cells
        if variable.spec.ttl_ms is not None:
            values = [None if cell is None else cell[0] for cell in self.cells]
        columns = variable.value.split(values)
        large = variable.value.large(columns)
        if not large:
            return self._piece(layout, variable, columns, schema)
        starts = sorted({0, *large, *(at + 1 for at in large), len(values)})
        pieces = []
        for start, end in pairwise(starts):
            some = [column[start:end] for column in columns]
            pieces.append(self._part(start, end)._piece(layout, variable, some, schema))
        return pa.concat_tables(pieces)

    def _part(self, start: int, end: int) -> SectionRows:
        part = SectionRows()
        for name, rows in vars(self).items():
            setattr(part, name, rows[start:end])
        return part

    def _piece(
        self,
        layout: RowLayout,
        variable: Variable | None,
        values: Sequence[Sequence[Any]],
        schema: Any,
    ) -> Any:
        """`values` has what is in the columns of the value."""
        columns = [pa.array(np.array(self.hashes, np.int64))]
        if OP in schema.names:
            columns.append(pa.array(np.array(self.ops, np.uint8)))
        columns += layout.key.write(self.keys)
        if variable is None:
            columns.append(pa.array(self.cells, pa.int64()))
            return pa.Table.from_arrays(columns, schema=schema)
        if variable.user_key is not None:
            columns += variable.user_key.write(self.user_keys)
        if variable.spec.kind == "list":
            columns.append(pa.array(self.positions, pa.int32()))
        columns += variable.value.write_columns(values)
        if variable.spec.ttl_ms is not None:
            expiries = [None if cell is None else cell[1] for cell in self.cells]
            columns.append(pa.array(expiries, pa.int64()))
        return pa.Table.from_arrays(columns, schema=schema)


def export_records(layout: RowLayout, keys: Sequence[Any], records: Sequence[Record]) -> Sections:
    """Snapshot sections; every variable has one, also an empty one."""
    sections: Sections = {}
    timers = SectionRows()
    for key, record in zip(keys, records, strict=True):
        for expiry_ms in record[TIMERS_AT] or ():
            timers.add(record, key, UPSERT, expiry_ms)
    sections[TIMERS] = timers.table(layout, None, changelog=False)
    for variable in layout.variables:
        rows = SectionRows()
        for key, record in zip(keys, records, strict=True):
            _add_all(rows, variable, key, record)
        sections[variable.spec.name] = rows.table(layout, variable, changelog=False)
    return sections


def _add_all(rows: SectionRows, variable: Variable, key: Any, record: Record) -> None:
    cell = record[variable.slot]
    if cell is None:
        return
    if variable.spec.kind == "value":
        rows.add(record, key, UPSERT, cell)
    elif variable.spec.kind == "list":
        _add_elements(rows, key, record, cell, 0)
    else:
        for user_key, entry in cell.items():
            rows.add(record, key, UPSERT, entry)
            rows.user_keys.append(user_key)


def _add_elements(rows: SectionRows, key: Any, record: Record, cell: list[Any], start: int) -> None:
    for position in range(start, len(cell)):
        rows.add(record, key, UPSERT, cell[position])
        rows.positions.append(position)


def changelog_of(layout: RowLayout, states: Iterable[RowGroupState]) -> tuple[Sections, int, int]:
    """Changelog of a transaction over all its key groups; also the rows updated and removed."""
    touched: list[tuple[Any, Record | None, Record]] = []
    for state in states:
        log = state.undo_log
        if log:
            touched += zip(log, log.values(), map(state.records.__getitem__, log), strict=True)
    sections: Sections = {}
    updated = removed = 0
    if not touched:
        return sections, updated, removed
    timers = (None,) if layout.has_timers else ()
    for variable in (*layout.variables, *timers):
        rows = SectionRows()
        if variable is None:
            _timer_changes(rows, touched)
        elif variable.spec.kind == "value":
            _value_changes(rows, variable.slot, touched)
        elif variable.spec.kind == "list":
            _list_changes(rows, variable.slot, touched)
        else:
            _map_changes(rows, variable.slot, touched)
        if rows.ops:
            name = TIMERS if variable is None else variable.spec.name
            sections[name] = rows.table(layout, variable, changelog=True)
            deletes = sum(rows.ops)
            removed += deletes
            updated += len(rows.ops) - deletes
    return sections, updated, removed


def _value_changes(rows: SectionRows, slot: int, touched: Touched) -> None:
    # The hot path: four flat lists, no call per key.
    changed = [
        (key, record)
        for key, former, record in touched
        if record[slot] is not (None if former is None else former[slot])
    ]
    rows.keys = [key for key, _ in changed]
    rows.hashes = [record[HASH_AT] for _, record in changed]
    rows.cells = [record[slot] for _, record in changed]
    rows.ops = [DELETE if cell is None else UPSERT for cell in rows.cells]


def _list_changes(rows: SectionRows, slot: int, touched: Touched) -> None:
    for key, former, record in touched:
        before = None if former is None else former[slot]
        now = record[slot]
        if now is before:
            continue
        kept = len(before) if before is not None else 0
        grown = now is not None and len(now) >= kept
        if before is not None and not (grown and all(map(is_, before, now))):
            rows.add(record, key, DELETE, None)
            rows.positions.append(None)
            kept = 0
        if now is not None:
            _add_elements(rows, key, record, now, kept)


def _map_changes(rows: SectionRows, slot: int, touched: Touched) -> None:
    for key, _, record in touched:
        cell = record[slot]
        if cell is None:
            continue
        for user_key, before in cell.undo_log.items():
            now = cell.get(user_key, ABSENT)
            if now is before:
                continue
            gone = now is ABSENT
            rows.add(record, key, DELETE if gone else UPSERT, None if gone else now)
            rows.user_keys.append(user_key)


def _timer_changes(rows: SectionRows, touched: Touched) -> None:
    for key, former, record in touched:
        before = (former[TIMERS_AT] if former is not None else None) or ()
        now = record[TIMERS_AT] or ()
        if now is before:
            continue
        for expiry_ms in before:
            if expiry_ms not in now:
                rows.add(record, key, DELETE, expiry_ms)
        for expiry_ms in now:
            if expiry_ms not in before:
                rows.add(record, key, UPSERT, expiry_ms)


def load_sections(state: RowGroupState, sections: Sections, *, changelog: bool) -> int:
    """Put snapshot or changelog entries into a key group; by how many entries it grew."""
    known = {variable.spec.name: variable for variable in state.layout.variables}
    grown = 0
    for name, table in sections.items():
        if table.num_rows == 0 or name in state.layout.deleted:
            continue
        if name != TIMERS and name not in known:
            raise StateMismatch(
                f"The stored state has a variable {name!r} that the processor does not define. "
                f"Define it again, or call handle.deleteIfExists({name!r}) in init to drop it."
            )
        grown += _load(state, known.get(name), table.combine_chunks(), changelog=changelog)
    return grown


def _load(state: RowGroupState, variable: Variable | None, table: Any, *, changelog: bool) -> int:
    layout = state.layout
    expected = layout.schema_of(variable, changelog=changelog)
    if variable is not None and not table.schema.equals(expected):
        table = _as_defined(table, variable, expected)
    if not table.schema.equals(expected):
        name = TIMERS if variable is None else variable.spec.name
        raise StateMismatch(
            f"The stored state of {name!r} has columns {table.schema.names}, but the processor "
            f"defines {expected.names} with other names or types. Use the schema it was written "
            "with, or start with an empty state location."
        )
    columns = [
        column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        for column in table.columns
    ]
    size = table.num_rows
    hashes = columns.pop(0).to_pylist()
    ops: Iterable[int] = columns.pop(0).to_pylist() if changelog else repeat(UPSERT, size)
    width = len(layout.key.fields)
    keys = layout.key.read(columns[:width], size)
    columns = columns[width:]
    user_keys: Iterable[Any] = repeat(None, size)
    positions: Iterable[Any] = repeat(None, size)
    if variable is not None and variable.user_key is not None:
        width = len(variable.user_key.fields)
        user_keys = variable.user_key.read(columns[:width], size)
        columns = columns[width:]
    if variable is not None and variable.spec.kind == "list":
        positions = columns.pop(0).to_pylist()
    if variable is None:
        cells: Sequence[Any] = columns[0].to_pylist()
    elif variable.spec.ttl_ms is not None:
        expiries = columns.pop().to_pylist()
        cells = list(zip(variable.value.read(columns, size), expiries, strict=True))
    else:
        cells = variable.value.read(columns, size)
    emptied = set()
    grown = 0
    for hashed, op, key, user_key, position, cell in zip(
        hashes, ops, keys, user_keys, positions, cells, strict=True
    ):
        record = state.records.get(key)
        if record is None:
            if op == DELETE:
                continue
            record = state.layout.blank.copy()
            record[HASH_AT] = hashed
            state.records[key] = record
        if op == DELETE:
            emptied.add(key)
        grown += _apply(state, variable, (key, user_key, position), record, op, cell)
    for key in emptied:
        if is_empty(state.records[key]):
            del state.records[key]
    return grown


def _as_defined(table: Any, variable: Variable, expected: Any) -> Any:
    """As the processor defines it now: of the value, what is newer than the table is null."""
    columns = []
    for field in expected:
        is_value = field in variable.value.fields
        if field.name in table.schema.names:
            column = flat(table.column(field.name))
            columns.append(reshaped(column, field.type) if is_value else column)
        elif is_value:
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            return table
    return pa.Table.from_arrays(columns, names=expected.names)


def _apply(
    state: RowGroupState,
    variable: Variable | None,
    place: tuple[Any, Any, int | None],
    record: Record,
    op: int,
    cell: Any,
) -> int:
    """Apply one entry; by how many entries the record grew."""
    key, user_key, position = place
    slot = TIMERS_AT if variable is None else variable.slot
    former = record[slot]
    if variable is None:
        timers = set(former or ())
        if op == UPSERT:
            timers.add(cell)
            state.timers.add(cell, key)
        else:
            timers.discard(cell)
        record[slot] = tuple(sorted(timers)) or None
        return len(timers) - len(former or ())
    if op == UPSERT and variable.spec.ttl_ms is not None:
        item = (key, user_key) if variable.spec.kind == "map" else key
        state.expiries[slot].add(cell[1], item)
    if variable.spec.kind == "value":
        record[slot] = cell if op == UPSERT else None
        return (op == UPSERT) - (former is not None)
    if variable.spec.kind == "list":
        if op == DELETE:
            record[slot] = None
            return -len(former or ())
        if former is None:
            record[slot] = [cell]
        elif position is not None and position < len(former):
            former[position] = cell
            return 0
        else:
            former.append(cell)
        return 1
    if former is None:
        former = record[slot] = MapCell()
    size = len(former)
    if op == UPSERT:
        former[user_key] = cell
    else:
        former.pop(user_key, None)
    return len(former) - size
