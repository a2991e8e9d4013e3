"""Calls of user code that have not come back, as the journal of a running service tells them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from anabranch.model.journal_entry import EntryKind

_ANOTHER_PROCESS = (EntryKind.WORKER_STARTED.value, EntryKind.WORKER_ENDED.value)
_ANOTHER_SERVICE = (EntryKind.SERVICE_STARTED.value, EntryKind.SERVICE_STOPPED.value)


def stuck_calls(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries of calls that no later entry ends, in the order of time."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        kind, worker = row["kind"], row.get("worker")
        if kind == EntryKind.USER_CODE_STUCK.value:
            found[row["worker"], row["details"]["number"]] = row
        elif kind == EntryKind.USER_CODE_BACK.value:
            found.pop((row["worker"], row["details"]["number"]), None)
        elif kind in _ANOTHER_PROCESS:
            found = {call: entry for call, entry in found.items() if call[0] != worker}
        elif kind in _ANOTHER_SERVICE:
            found = {}
    return list(found.values())


def begun(row: dict[str, Any]) -> datetime:
    """When the call of an entry began."""
    at: datetime = row["time"]
    return at - timedelta(seconds=row["seconds"])


def about(row: dict[str, Any]) -> str:
    """What was called, for people: operator, method, key and batch."""
    key = row["details"].get("key")
    parts = [f"operator '{row['operator']}'", row["details"]["method"]]
    parts += [f"key {key}"] if key is not None else []
    parts += [f"batch {row['epoch']}"] if "epoch" in row else []
    return ", ".join(parts)
