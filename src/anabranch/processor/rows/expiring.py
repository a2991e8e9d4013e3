"""State variables with TTL: every value, element or entry carries its expiry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from anabranch.processor.rows.cursor import Cursor
from anabranch.processor.rows.variables import RowListState, RowMapState, RowValueState, in_order
from anabranch.state.rows.cells import ABSENT
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import Variable


class ExpiringValueState(RowValueState):
    """One tuple per key, gone `ttl_ms` after its last update."""

    def __init__(self, cursor: Cursor, variable: Variable) -> None:
        super().__init__(cursor, variable)
        assert variable.spec.ttl_ms is not None
        self._ttl_ms = variable.spec.ttl_ms

    def exists(self) -> bool:
        return self.get() is not None

    def get(self) -> Any:
        cell = self._cursor.record[self._slot]
        return None if cell is None or cell[1] <= self._cursor.now_ms else cell[0]

    def update(self, newValue: Any) -> None:
        if type(newValue) is not tuple or tuple(map(type, newValue)) not in self._exact:
            newValue = self._accept(newValue)
        cursor = self._cursor
        if not cursor.dirty:
            cursor.touch()
        former = cursor.record[self._slot]
        expiry_ms = cursor.now_ms + self._ttl_ms
        cursor.record[self._slot] = (newValue, expiry_ms)
        index = cursor.group.expiries[self._slot]
        if former is None:
            cursor.group.entries += 1
        elif former[1] != expiry_ms:
            index.drop(former[1], cursor.key)
        index.add(expiry_ms, cursor.key)

    def clear(self) -> None:
        cell = self._cursor.record[self._slot]
        super().clear()
        if cell is not None:
            self._cursor.group.expiries[self._slot].drop(cell[1], self._cursor.key)


class ExpiringListState(RowListState):
    """A list per key whose elements expire one by one."""

    def __init__(self, cursor: Cursor, variable: Variable) -> None:
        super().__init__(cursor, variable)
        assert variable.spec.ttl_ms is not None
        self._ttl_ms = variable.spec.ttl_ms

    def exists(self) -> bool:
        return bool(self._live())

    def get(self) -> Iterator[Any]:
        return iter(self._live())

    def put(self, newState: Any) -> None:
        super().put(newState)
        self._remember()

    def appendValue(self, newState: Any) -> None:
        super().appendValue(newState)
        self._remember()

    def appendList(self, newState: Any) -> None:
        super().appendList(newState)
        self._remember()

    def _live(self) -> list[Any]:
        now_ms = self._cursor.now_ms
        cells = self._cursor.record[self._slot]
        return [] if cells is None else [cell[0] for cell in cells if cell[1] > now_ms]

    def _checked(self, value: Any) -> Any:
        return super()._checked(value), self._cursor.now_ms + self._ttl_ms

    def _remember(self) -> None:
        cursor = self._cursor
        cursor.group.expiries[self._slot].add(cursor.now_ms + self._ttl_ms, cursor.key)


class ExpiringMapState(RowMapState):
    """A map per key whose entries expire one by one."""

    def __init__(self, cursor: Cursor, variable: Variable) -> None:
        super().__init__(cursor, variable)
        assert variable.spec.ttl_ms is not None
        self._ttl_ms = variable.spec.ttl_ms

    def exists(self) -> bool:
        now_ms = self._cursor.now_ms
        cell = self._cursor.record[self._slot]
        return cell is not None and any(entry[1] > now_ms for entry in cell.values())

    def getValue(self, key: Any) -> Any:
        entry = self._entry(key)
        if entry is None or entry[1] <= self._cursor.now_ms:
            return None
        return tuple.__new__(self._row_type, entry[0])

    def containsKey(self, key: Any) -> bool:
        return self.getValue(key) is not None

    def updateValue(self, key: Any, value: Any) -> None:
        user_key = self._canonical(key)
        if type(value) is not tuple or tuple(map(type, value)) not in self._exact:
            value = self._accept(value)
        cell = self._cell()
        cursor = self._cursor
        expiry_ms = cursor.now_ms + self._ttl_ms
        former = cell.get(user_key)
        index = cursor.group.expiries[self._slot]
        if former is not None and former[1] != expiry_ms:
            index.drop(former[1], (cursor.key, user_key))
        if cell.put(user_key, (value, expiry_ms)):
            cursor.group.entries += 1
        index.add(expiry_ms, (cursor.key, user_key))

    def removeKey(self, key: Any) -> None:
        former = self._entry(key)
        super().removeKey(key)
        if former is not None:
            item = (self._cursor.key, self._canonical(key))
            self._cursor.group.expiries[self._slot].drop(former[1], item)

    def _entry(self, key: Any) -> Any:
        cell = self._cursor.record[self._slot]
        user_key = self._canonical(key)
        return None if cell is None else cell.get(user_key)

    def _sorted(self) -> list[tuple[Any, Any]]:
        now_ms = self._cursor.now_ms
        cell = self._cursor.record[self._slot]
        if not cell:
            return []
        return [(key, cell[key][0]) for key in in_order(cell) if cell[key][1] > now_ms]


def remove_expired(group: RowGroupState, now_ms: int) -> None:
    """Drop what has expired by now; at the end of a transaction, also for keys without rows."""
    for variable in group.layout.expiring:
        slot = variable.slot
        for _, items in group.take_expired(slot, now_ms):
            for item in items:
                key, user_key = cast(Any, item) if variable.spec.kind == "map" else (item, None)
                record = group.records.get(key)
                if record is None or record[slot] is None:
                    continue
                if variable.spec.kind == "map":
                    _expire_entry(group, key, slot, user_key, now_ms)
                else:
                    _expire_cell(group, key, slot, now_ms)


def _expire_entry(group: RowGroupState, key: Any, slot: int, user_key: Any, now_ms: int) -> None:
    record = group.records[key]
    entry = record[slot].get(user_key)
    if entry is not None and entry[1] <= now_ms:
        group.touch(key, record)
        if record[slot].remove(user_key) is not ABSENT:
            group.entries -= 1


def _expire_cell(group: RowGroupState, key: Any, slot: int, now_ms: int) -> None:
    record = group.records[key]
    cell = record[slot]
    if isinstance(cell, list):
        live = [element for element in cell if element[1] > now_ms]
        if len(live) < len(cell):
            group.touch(key, record)
            group.entries -= len(cell) - len(live)
            record[slot] = live or None
    elif cell[1] <= now_ms:
        group.touch(key, record)
        group.entries -= 1
        record[slot] = None
