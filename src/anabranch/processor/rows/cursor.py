"""Where user code is: the current key, its record and the clock, for the handle and variables."""

from __future__ import annotations

from typing import Any, NoReturn

from anabranch.processor.rows.misuse import misuse
from anabranch.state.rows.group import RowGroupState
from anabranch.state.rows.layout import Record


class _NoRecord:
    """Stands for the record while there is no current key: any access is the user's error."""

    def __getitem__(self, slot: int) -> NoReturn:
        raise misuse("using state", "INTERNAL_ERROR_TWS")

    __setitem__: Any = __getitem__


NO_RECORD: Any = _NoRecord()


class Cursor:
    """The implicit key. The engine sets it before each call; variables read it."""

    __slots__ = (
        "before",
        "call",
        "dirty",
        "fresh",
        "group",
        "key",
        "method",
        "now_ms",
        "phase",
        "record",
        "watermark_ms",
    )

    def __init__(self) -> None:
        self.group: RowGroupState
        self.key: Any = None
        self.record: Record = NO_RECORD
        self.before: Record | None = None
        """Former record, valid once dirty."""
        self.dirty = False
        """The record was written to in this transaction."""
        self.fresh = False
        """The record is not in its key group yet."""
        self.call: object = None
        """This call, where a key may have several in a row: its timers, its initial state."""
        self.method: str | None = None
        """Of the processor, as long as user code is called; None: it is not."""
        self.now_ms = -1
        self.watermark_ms = -1
        self.phase = "CREATED"
        """Spark's handle state."""

    def leave(self) -> None:
        """No current key."""
        self.key = None
        self.record = NO_RECORD
        self.before = None
        self.dirty = False

    def touch(self) -> None:
        """Before the first write to the current key."""
        if self.record is NO_RECORD:
            raise misuse("using state", "INTERNAL_ERROR_TWS")
        group = self.group
        if self.fresh:
            self.before = None
            group.records[self.key] = self.record
            self.fresh = False
        else:
            self.before = self.record.copy()
        group.undo_log[self.key] = self.before
        self.dirty = True
