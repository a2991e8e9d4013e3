"""What becomes of things that happen: entries with the fields that the journal promises."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.coordinator import journal_notes
from anabranch.coordinator.journal_notes import JournalNotes, about_service
from anabranch.coordinator.operator_record import BatchTiming
from anabranch.model.ids import Epoch, WorkerId
from anabranch.model.journal_entry import EntryKind
from anabranch.model.query_reports import BatchReport
from anabranch.model.routing import Routing
from anabranch.transport.messages.control import OperatorStatus, WorkerStatus
from anabranch.transport.messages.lanes import LaneFailed

W1, W2 = WorkerId("w1"), WorkerId("w2")


class Noted:
    """Entries as they come."""

    def __init__(self) -> None:
        self.entries: list[tuple[EntryKind, dict[str, Any]]] = []
        self.has_load = threading.Event()

    def __call__(self, kind: EntryKind, **fields: Any) -> None:
        self.entries.append((kind, fields))
        if kind is EntryKind.LOAD:
            self.has_load.set()


def pool(pids: dict[WorkerId, int]) -> Any:
    """Workers with these processes, all on one host."""
    hosts = dict.fromkeys(pids, "h1")
    return SimpleNamespace(pids=lambda: pids, hosts=lambda: hosts, peers=dict)


def record(epoch: int) -> Any:
    """An operator whose last batch was this one."""
    stats = {"rows_input": 10, "apply_ms": 7, "state_rows": 3, "rows_forwarded": 0}
    timing = BatchTiming(epoch, started=0.0, seconds=0.5, stats=stats)
    return SimpleNamespace(name="totals", timings=[timing])


def status(seconds: float) -> WorkerStatus:
    """A worker that has applied for so long."""
    busy = {"applying": seconds, "writing": 0.5}
    return WorkerStatus({"totals": OperatorStatus(4, 10, 100, 0, 10, 0, busy)}, 16, {}, 1 << 20)


def test_a_batch() -> None:
    noted = Noted()
    JournalNotes(noted).batch(record(4), 4)
    ((kind, fields),) = noted.entries
    assert kind is EntryKind.BATCH
    assert (fields["seconds"], fields["rows"], fields["apply_ms"]) == (0.5, 10, 7)
    assert fields["details"] == {"state_rows": 3}


def test_a_batch_that_ran_again_after_a_restart_has_no_times() -> None:
    noted = Noted()
    JournalNotes(noted).batch(record(4), 5)
    assert noted.entries == [(EntryKind.BATCH, {"operator": "totals", "epoch": 5})]


def test_workers_and_failures() -> None:
    noted = Noted()
    notes = JournalNotes(noted)
    notes.of(pool({W1: 77}))
    notes.worker_started(W1, 2)
    notes.worker_ended(W1, 2, "killed by signal 9")
    notes.batch_failed(LaneFailed("totals", "run", Epoch(3), "whole message"), "one line")
    (_, started), (_, ended), (_, failed) = noted.entries
    assert started["details"] == {"incarnation": 2, "pid": 77, "host": "h1"}
    assert ended["text"] == "killed by signal 9"
    assert failed == {"operator": "totals", "epoch": 3, "text": "one line"}


def test_load_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_notes, "LOAD_SECONDS", 0.0)
    noted = Noted()
    notes = JournalNotes(noted)
    notes.of(pool({}))
    found = {W1: status(1.0), W2: status(12.0)}
    monkeypatch.setattr(journal_notes, "ask_all", lambda *asked: found)
    notes.batch(record(1), 1)
    assert noted.has_load.wait(30)
    _, load = noted.entries[-1]
    assert load["text"] == "applying so far: w2 12.0 s, w1 1.0 s"
    assert load["details"]["w1"]["operators"]["totals"]["busy_seconds"]["writing"] == 0.5


def test_what_spark_took_is_noted_once() -> None:
    noted = Noted()
    notes = JournalNotes(noted)
    reports = [BatchReport(epoch, 0.0, 0.5, 10, 0, 300, 20, 40) for epoch in range(3)]
    notes.spark = lambda: {"totals": reports[:2], "others": ()}
    notes._note_spark()
    notes.spark = lambda: {"totals": reports}
    notes._note_spark()
    notes._note_spark()
    assert [fields["details"]["epoch"] for _, fields in noted.entries] == [[0, 1], [2]]
    kind, fields = noted.entries[0]
    assert kind is EntryKind.SPARK
    assert fields["operator"] == "totals"
    assert fields["details"]["commit_ms"] == [40, 40]


def test_owners_are_noted_when_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    notes = JournalNotes(noted)
    now = [Routing(1, (W1, W1))]
    notes.of(pool({}), lambda: now[0])
    notes.ownership()
    notes.ownership()
    now[0] = Routing(2, (W1, W2))
    notes.batch(record(1), 1)
    notes.batch(record(2), 2)
    told = [fields["details"] for kind, fields in noted.entries if kind is EntryKind.OWNERSHIP]
    assert told == [
        {"version": 1, "workers": ["w1"], "owners": [0, 0]},
        {"version": 2, "gained": {"w2": [1]}},
    ]
    monkeypatch.setattr(journal_notes, "WHOLE_SECONDS", 0.0)
    notes.ownership()
    assert noted.entries[-1][1]["details"]["owners"] == [0, 1]


def test_load_is_not_looked_at_with_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = Noted()
    notes = JournalNotes(noted)
    asked: list[object] = []
    monkeypatch.setattr(journal_notes, "ask_all", lambda *what: asked.append(what))
    notes.of(pool({}))
    for epoch in range(100):
        notes.batch(record(epoch), epoch)
    assert not asked


def test_a_service_that_begins_says_what_it_is() -> None:
    about = about_service(3, 256, "changelog")
    assert about["text"] == "3 workers, 256 key groups"
    assert set(about["details"]) >= {"anabranch", "pyspark", "python", "checkpoint"}
