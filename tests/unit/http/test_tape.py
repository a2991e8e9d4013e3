"""The journal as the page wants it."""

from __future__ import annotations

from typing import Any

from anabranch.durability.journal import JournalContent, table_of
from anabranch.http import tape as module
from anabranch.http.tape import tape
from anabranch.model.ids import WorkerId
from anabranch.model.journal_entry import EntryKind, JournalEntry
from anabranch.model.ownership import changes, whole
from anabranch.model.routing import Routing

W1, W2 = WorkerId("w1"), WorkerId("w2")
FIRST, SECOND = Routing(1, (W1, W1)), Routing(2, (W1, W2))


def told(since: float, *entries: JournalEntry) -> dict[str, Any]:
    return tape(JournalContent(table_of(entries), alive_at=99.0), since)


def batch(time: float, epoch: int, operator: str = "totals") -> JournalEntry:
    return JournalEntry(EntryKind.BATCH, time, operator, epoch=epoch, seconds=0.5, rows=7)


def test_batches_are_columns() -> None:
    found = told(10, batch(9, 1), batch(10, 2), batch(11, 3, "others"))["batches"]
    assert found["operators"] == ["others", "totals"]
    assert found["operator"] == [1, 0]
    assert (found["time"], found["epoch"], found["rows"]) == ([10, 11], [2, 3], [7, 7])
    assert found["apply_ms"] == [None, None]
    assert found["left_out"] == 0


def test_what_spark_took_is_put_to_its_batches() -> None:
    columns = {"epoch": [2, 4], "run_ms": [300, 1], "plan_ms": [20, 1], "commit_ms": [40, 1]}
    spark = JournalEntry(EntryKind.SPARK, 12, "totals", details=columns)
    found = told(10, batch(10, 2), batch(11, 3), batch(12, 2, "others"), spark)["batches"]
    assert found["run_ms"] == [300, None, None]
    assert found["commit_ms"] == [40, None, None]


def test_too_many_batches_are_cut_and_that_is_said(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "BATCHES_MAX", 2)
    found = told(0, *(batch(10 + at, at) for at in range(5)))["batches"]
    assert (found["epoch"], found["left_out"]) == ([3, 4], 3)


def test_owners_begin_with_the_last_whole_picture_before() -> None:
    noted = [
        JournalEntry(EntryKind.OWNERSHIP, 1, details=whole(FIRST)),
        JournalEntry(EntryKind.OWNERSHIP, 2, details=whole(FIRST)),
        JournalEntry(EntryKind.OWNERSHIP, 3, details=changes(FIRST, SECOND)),
        JournalEntry(EntryKind.OWNERSHIP, 20, details=whole(SECOND)),
    ]
    assert [each["time"] for each in told(10, *noted)["ownership"]] == [2, 3, 20]
    assert [each["time"] for each in told(0, *noted)["ownership"]] == [1, 2, 3, 20]
    assert told(0, noted[2])["ownership"] == []


def test_moves_have_their_beginning_and_their_end() -> None:
    about = {"number": 1, "cause": "page"}
    entries = [
        JournalEntry(EntryKind.MOVE_STARTED, 1, details=about),
        JournalEntry(EntryKind.MOVE_ENDED, 3, details={**about, "outcome": "done"}),
        JournalEntry(EntryKind.MOVE_STARTED, 12, details=about),  # of the next service
        JournalEntry(EntryKind.MOVE_ENDED, 15, details={**about, "outcome": "cancelled"}),
        JournalEntry(EntryKind.MOVE_STARTED, 16, details={**about, "number": 2}),
    ]
    found = told(0, *entries)["moves"]
    assert [(each["started"], each["ended"], each.get("outcome")) for each in found] == [
        (1, 3, "done"),
        (12, 15, "cancelled"),
        (16, None, None),
    ]
    assert [each["started"] for each in told(10, *entries)["moves"]] == [12, 16]


def test_loads_are_added_up_over_operators() -> None:
    operator = {"rows": 2, "bytes": 10, "busy_seconds": {"applying": 1.5}}
    worker = {"resident_bytes": 77, "operators": {"a": operator, "b": operator}}
    (load,) = told(0, JournalEntry(EntryKind.LOAD, 5, details={"w1": worker}))["loads"]
    assert (load["time"], load["workers"], load["rows"], load["bytes"]) == (5, ["w1"], [4], [20])
    assert (load["applying"], load["sending"], load["resident_bytes"]) == ([3.0], [0.0], [77])


def test_marks_are_what_happened_else_in_the_order_of_time() -> None:
    found = told(
        0,
        JournalEntry(EntryKind.WORKER_ENDED, 5, worker="w1", text="signal 9"),
        JournalEntry(EntryKind.SERVICE_STARTED, 1),
        batch(3, 1),
    )
    assert [mark["kind"] for mark in found["marks"]] == ["service-started", "worker-ended"]
    assert found["marks"][1]["text"] == "signal 9"
    assert found["alive_at"] == 99.0
