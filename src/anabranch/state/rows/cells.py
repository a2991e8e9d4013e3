"""What a record's slots hold, and how to count it."""

from __future__ import annotations

import sys
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

    def before(self) -> MapCell:
        """A copy with what `rollback` would leave."""
        found = MapCell()
        found.update(self)
        found.undo_log = dict(self.undo_log)
        found.rollback()
        return found

    def rollback(self) -> None:
        for user_key, former in self.undo_log.items():
            if former is ABSENT:
                self.pop(user_key, None)
            else:
                self[user_key] = former
        self.undo_log = {}


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
