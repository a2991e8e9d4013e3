"""An evening in the life of a service, as entries of its journal."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from anabranch.durability.journal import JournalContent, table_of
from anabranch.model.journal_entry import EntryKind, JournalEntry

START = 1_800_000_000.0
NASTY = "<script>alert('x')</script> & \"quoted\""


def load(at: float, seconds: float) -> JournalEntry:
    busy = {"operators": {"totals": {"busy_seconds": {"applying": seconds}}}}
    return JournalEntry(EntryKind.LOAD, at, details={"w1": busy})


def rows() -> list[dict[str, Any]]:
    """100 batches of a second each, a move in the middle, a death, an error."""
    entries = [JournalEntry(EntryKind.SERVICE_STARTED, START, text="2 workers")]
    for epoch in range(100):
        slow = 4.0 if epoch == 50 else 0.5
        times: dict[str, Any] = {
            "load_ms": 3000 if epoch == 50 else 0,
            "apply_ms": 200,
            "write_ms": 30,
        }
        entries.append(
            JournalEntry(
                EntryKind.BATCH,
                START + 1 + epoch,
                "totals",
                epoch=epoch,
                seconds=slow,
                rows=1000,
                **times,
            )
        )
    about = {"number": 1, "cause": "command line", "strategy": "live", "workers_before": ["w1"]}
    about["workers_after"] = ["w1", "w2"]
    ended = {**about, "outcome": "done", "pause_seconds": 3.0, "bytes": 5 << 20}
    entries += [
        JournalEntry(EntryKind.MOVE_STARTED, START + 45, details=about),
        JournalEntry(EntryKind.MOVE_ENDED, START + 55, seconds=10.0, details=ended),
        JournalEntry(EntryKind.WORKER_ENDED, START + 70, worker="w2", text=NASTY),
        load(START + 10, 1.0),
        load(START + 20, 9.0),
        load(START + 30, 0.5),  # a new process
        load(START + 40, 1.5),
    ]
    return JournalContent(table_of(sorted(entries, key=lambda entry: entry.time))).rows()


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(START + seconds, timezone.utc)
