"""What a record's slots hold, and how to count it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import islice
from typing import Any

from anabranch.state.rows.layout import TIMERS_AT, Record, RowLayout

ABSENT: Any = object()
_SAMPLE = 32


class MapCell(dict[Any, Any]):
    """Entries of a map state of one key; `undo_log` has the former value of each changed entry."""

    __slots__ = ("undo_log",)

    def __init__(self) -> None:
        super().__init__()
        self.undo_log: dict[Any, Any] = {}

    @classmethod
    def of(cls, entries: dict[Any, Any]) -> MapCell:
        """With these entries, and nothing to undo."""
        cell = cls()
        cell.update(entries)
        return cell

    def put(self, user_key: Any, entry: Any) -> bool:
        """Set an entry; whether it is new."""
        former = self.get(user_key, ABSENT)
        self.undo_log.setdefault(user_key, former)
        self[user_key] = entry
        return former is ABSENT

    def remove(self, user_key: Any) -> Any:
        """Remove an entry and return it, or ABSENT."""
        former = self.pop(user_key, ABSENT)
        if former is not ABSENT:
            self.undo_log.setdefault(user_key, former)
        return former

    def rollback(self) -> None:
        for user_key, former in self.undo_log.items():
            if former is ABSENT:
                self.pop(user_key, None)
            else:
                self[user_key] = former
        self.undo_log = {}


@dataclass(frozen=True, slots=True)
class Captured:
    """What one key had in one slot when somebody asked; transactions do not change it."""

    key: Any
    hashed: int
    cell: Any
    undo_log: dict[Any, Any] | None
    """Of a map: what takes it back to how it was before a transaction."""

    @classmethod
    def of(cls, key: Any, hashed: int, cell: Any, before: bool) -> Captured:
        """Copies what would change: references only, so that transactions hardly wait."""
        if type(cell) is MapCell:
            undo_log = dict(cell.undo_log) if before else None
            return cls(key, hashed, dict(cell), undo_log)
        return cls(key, hashed, list(cell) if type(cell) is list else cell, None)

    def entries(self) -> Any:
        """A tuple (a value, or timers), a list, or a dictionary; takes a while for a large map."""
        for user_key, former in (self.undo_log or {}).items():
            if former is ABSENT:
                self.cell.pop(user_key, None)
            else:
                self.cell[user_key] = former
        return self.cell


def is_empty(record: Record) -> bool:
    """Whether a record has neither timers nor state; only maps stay in their slot when emptied."""
    return all(cell is None or (type(cell) is MapCell and not cell) for cell in record[TIMERS_AT:])


def count_entries(layout: RowLayout, record: Record) -> int:
    """Number of section rows that a record makes."""
    found = len(record[TIMERS_AT] or ())
    for variable in layout.variables:
        cell = record[variable.slot]
        if cell is not None:
            found += 1 if variable.spec.kind == "value" else len(cell)
    return found


def size_of(value: Any) -> int:
    """Rough bytes of a nested value; long containers are extrapolated from their first items."""
    own = sys.getsizeof(value)
    if not isinstance(value, (list, tuple, dict)) or not value:
        return own
    items = list(islice(value.items() if isinstance(value, dict) else value, _SAMPLE))
    return own + sum(map(size_of, items)) * len(value) // len(items)
