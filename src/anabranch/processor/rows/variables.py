"""Value, list and map state without TTL: PySpark's classes, working on the current record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState

from anabranch.processor.rows.cursor import Cursor
from anabranch.processor.rows.input import row_type
from anabranch.processor.rows.misuse import misuse
from anabranch.state.rows.cells import ABSENT, MapCell
from anabranch.state.rows.layout import KeyCodec, Variable


class RowValueState(ValueState):
    """One tuple per key."""

    def __init__(self, cursor: Cursor, variable: Variable) -> None:
        self._cursor = cursor
        self._slot = variable.slot
        self._stateName = variable.spec.name
        self._exact = variable.value.exact
        self._accept = variable.value.accept

    def exists(self) -> bool:
        return self._cursor.record[self._slot] is not None

    def get(self) -> Any:
        return self._cursor.record[self._slot]

    def update(self, newValue: Any) -> None:
        if type(newValue) is not tuple or tuple(map(type, newValue)) not in self._exact:
            newValue = self._accept(newValue)
        cursor = self._cursor
        if not cursor.dirty:
            cursor.touch()
        record = cursor.record
        slot = self._slot
        if record[slot] is None:
            cursor.group.entries += 1
        record[slot] = newValue

    def clear(self) -> None:
        cursor = self._cursor
        if cursor.record[self._slot] is not None:
            if not cursor.dirty:
                cursor.touch()
            cursor.record[self._slot] = None
            cursor.group.entries -= 1


class RowListState(ListState):
    """A list of tuples per key; copied at a transaction's first write, so that it can be undone."""

    def __init__(self, cursor: Cursor, variable: Variable) -> None:
        self._cursor = cursor
        self._slot = variable.slot
        self._stateName = variable.spec.name
        self._exact = variable.value.exact
        self._accept = variable.value.accept

    def exists(self) -> bool:
        return self._cursor.record[self._slot] is not None

    def get(self) -> Iterator[Any]:
        elements = self._cursor.record[self._slot]
        # A copy: the user may append while iterating, and sees the list as it was.
        return iter(() if elements is None else tuple(elements))

    def put(self, newState: Any) -> None:
        self._replace(self._elements(newState))

    def appendValue(self, newState: Any) -> None:
        self._append([self._checked(newState)])

    def appendList(self, newState: Any) -> None:
        self._append(self._elements(newState))

    def clear(self) -> None:
        if self._cursor.record[self._slot] is not None:
            self._replace([])

    def _elements(self, values: Any) -> list[Any]:
        elements = [self._checked(value) for value in values]
        if not elements:
            condition = "ILLEGAL_STATE_STORE_VALUE.EMPTY_LIST_VALUE"
            raise misuse("updating list state", condition, stateName=self._stateName)
        return elements

    def _replace(self, elements: list[Any]) -> None:
        cursor = self._cursor
        if not cursor.dirty:
            cursor.touch()
        former = cursor.record[self._slot]
        cursor.group.entries += len(elements) - (0 if former is None else len(former))
        cursor.record[self._slot] = elements or None

    def _checked(self, value: Any) -> Any:
        if type(value) is tuple and tuple(map(type, value)) in self._exact:
            return value
        return self._accept(value)

    def _append(self, added: list[Any]) -> None:
        cursor = self._cursor
        if not cursor.dirty:
            cursor.touch()
        record = cursor.record
        slot = self._slot
        elements = record[slot]
        cursor.group.entries += len(added)
        if elements is None:
            record[slot] = added
        elif cursor.before is not None and cursor.before[slot] is elements:
            record[slot] = elements + added
        else:
            elements += added


def _order(canonical: Any) -> Any:
    """A sort key for canonical keys with nulls inside: nulls first."""
    if isinstance(canonical, tuple):
        return (1, tuple(map(_order, canonical)))
    return (0, 0) if canonical is None else (1, type(canonical).__name__, canonical)


def in_order(keys: Any) -> list[Any]:
    """Keys in an order that depends on nothing but the keys, as a sorted store gives them."""
    try:
        return sorted(keys)
    except TypeError:
        return sorted(keys, key=_order)


class RowMapState(MapState):
    """A map per key, from user key tuples to value tuples; iterated in user key order."""

    def __init__(self, cursor: Cursor, variable: Variable) -> None:
        assert variable.user_key is not None
        self._cursor = cursor
        self._slot = variable.slot
        self._stateName = variable.spec.name
        self._exact = variable.value.exact
        self._accept = variable.value.accept
        self._user_key: KeyCodec = variable.user_key
        self._canonical = variable.user_key.canonical
        self._row_type = row_type(variable.spec.value_schema.names)

    def exists(self) -> bool:
        return bool(self._cursor.record[self._slot])

    def getValue(self, key: Any) -> Any:
        cell = self._cursor.record[self._slot]
        user_key = self._canonical(key)
        value = None if cell is None else cell.get(user_key)
        # A Row, where iterator() and values() give plain tuples: as in Spark.
        return None if value is None else tuple.__new__(self._row_type, value)

    def containsKey(self, key: Any) -> bool:
        cell = self._cursor.record[self._slot]
        user_key = self._canonical(key)
        return cell is not None and user_key in cell

    def updateValue(self, key: Any, value: Any) -> None:
        user_key = self._canonical(key)
        if type(value) is not tuple or tuple(map(type, value)) not in self._exact:
            value = self._accept(value)
        if self._cell().put(user_key, value):
            self._cursor.group.entries += 1

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        items = self._user_key.items
        return iter([(items(key), value) for key, value in self._sorted()])

    def keys(self) -> Iterator[Any]:
        items = self._user_key.items
        return iter([items(key) for key, _ in self._sorted()])

    def values(self) -> Iterator[Any]:
        return iter([value for _, value in self._sorted()])

    def removeKey(self, key: Any) -> None:
        cell = self._cursor.record[self._slot]
        user_key = self._canonical(key)
        if cell is not None and user_key in cell and self._cell().remove(user_key) is not ABSENT:
            self._cursor.group.entries -= 1

    def clear(self) -> None:
        if self._cursor.record[self._slot]:
            cell = self._cell()
            self._cursor.group.entries -= len(cell)
            for user_key in list(cell):
                cell.remove(user_key)

    def _sorted(self) -> list[tuple[Any, Any]]:
        cell = self._cursor.record[self._slot]
        return [(key, cell[key]) for key in in_order(cell)] if cell else []

    def _cell(self) -> MapCell:
        """The cell, made writable."""
        cursor = self._cursor
        if not cursor.dirty:
            cursor.touch()
        cell: MapCell | None = cursor.record[self._slot]
        if cell is None:
            cell = cursor.record[self._slot] = MapCell()
        return cell
