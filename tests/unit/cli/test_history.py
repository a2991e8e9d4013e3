"""What `anabranch status` and `anabranch history` say of a location, without any service."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.main import main
from anabranch.cli.status import EXIT_NOT_RUNNING
from anabranch.coordinator.journal import Journal
from anabranch.durability import names
from anabranch.durability.blobs import BlobStore
from anabranch.durability.journal import JournalFolder, Segment, SegmentName, table_of
from anabranch.durability.locks import is_held
from anabranch.durability.store import StateStore
from anabranch.model.journal_entry import EntryKind, JournalEntry


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StateStore]:
    """A location that is in use."""
    with StateStore(str(tmp_path / "state")) as opened:
        yield opened


def noted(store: StateStore) -> Journal:
    """A journal in which something has happened."""
    journal = Journal(store.blobs, store.owner.to_json())
    journal.note(EntryKind.SERVICE_STARTED, text="2 workers, 256 key groups")
    for epoch in range(3):
        batch = {"epoch": epoch, "seconds": 0.25, "rows": 1000, "apply_ms": 7}
        journal.note(EntryKind.BATCH, operator="totals", **batch)
    journal.note(EntryKind.WORKER_ENDED, worker="w2", text="killed by signal 9\nlast words")
    return journal


def out(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    code = main(list(words))
    return code, capsys.readouterr().out


def entries(capsys: pytest.CaptureFixture[str], where: str, *words: str) -> list[dict[str, Any]]:
    """What `history --json` says."""
    code, text = out(capsys, "history", where, "--json", *words)
    assert code == 0
    return [json.loads(row) for row in text.splitlines()]


def test_history_line_by_line(store: StateStore, capsys: pytest.CaptureFixture[str]) -> None:
    noted(store).stop()
    code, text = out(capsys, "history", store.blobs.location)
    assert code == 0
    lines = text.splitlines()
    assert len(lines) == 5
    assert "2 workers" in lines[0]
    assert lines[1].endswith("totals batch 0, 0.250 s, 1,000 rows, apply 7 ms")
    assert lines[4].endswith("w2 killed by signal 9 last words")


def test_history_of_a_part(store: StateStore, capsys: pytest.CaptureFixture[str]) -> None:
    noted(store).stop()
    where = store.blobs.location
    assert [row["kind"] for row in entries(capsys, where, "--worker", "w2")] == ["worker-ended"]
    assert len(entries(capsys, where, "--kind", "batch", "--kind", "service-started")) == 4
    assert [row["epoch"] for row in entries(capsys, where, "--operator", "totals", "-n", "1")] == [
        2
    ]
    assert len(entries(capsys, where, "--since", "1h")) == 5
    assert entries(capsys, where, "--until", "2020-01-01T00:00") == []
    last = out(capsys, "history", where, "-n", "2")[1].splitlines()[-1]
    assert last == "... the last 2 of 5 entries (-n N shows more)"


def test_a_moment_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["history", "x", "--since", "yesterday"])
    assert "2026-05-01T03:00" in capsys.readouterr().err


def test_a_location_without_a_journal(
    store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert out(capsys, "history", store.blobs.location) == (0, "nothing is written down yet\n")
    code, text = out(capsys, "status", store.blobs.location)
    assert code == EXIT_NOT_RUNNING
    assert "no service has written a journal here" in text


def test_a_folder_that_is_no_location(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("history", "status"):
        assert main([command, str(tmp_path)]) == 2
        assert "holds no state" in capsys.readouterr().err


def test_status_of_a_service_that_runs(
    store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = noted(store)
    journal.stop()
    code, text = out(capsys, "status", store.blobs.location)
    assert code == 0
    assert "running (process" in text
    assert "3 batches, 3,000 rows, median 0.25 s" in text
    assert "killed by signal 9" in text


def test_status_says_what_hangs_while_the_service_runs(
    store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = noted(store)
    told = {"number": 5, "method": "Slow.handleInputRows", "key": "(7,)", "stack": "..."}
    call = {"operator": "totals", "epoch": 3, "seconds": 11.0, "details": told}
    journal.note(EntryKind.USER_CODE_STUCK, worker="w1", text="It hangs", **call)
    journal.stop()
    said = "operator 'totals', Slow.handleInputRows, key (7,), batch 3"
    code, text = out(capsys, "status", store.blobs.location)
    assert code == 0
    assert "w1: user code has not come back since" in text
    assert said in text
    store.close()
    assert "died at" in out(capsys, "status", store.blobs.location)[1]
    assert said not in out(capsys, "status", store.blobs.location)[1]


def test_status_of_one_that_was_stopped(
    store: StateStore, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = noted(store)
    journal.note(EntryKind.SERVICE_STOPPED)
    journal.stop()
    store.close()
    code, text = out(capsys, "status", store.blobs.location, "--json")
    assert code == EXIT_NOT_RUNNING
    found = json.loads(text)
    assert "stopped in order" in found["how"]
    assert found["batches"]["p99_seconds"] == 0.25


def test_status_of_one_that_died(store: StateStore, capsys: pytest.CaptureFixture[str]) -> None:
    noted(store).stop()
    store.close()  # as the kernel does for a process that is gone
    code, text = out(capsys, "status", store.blobs.location)
    assert code == EXIT_NOT_RUNNING
    assert "died at" in text


@pytest.mark.parametrize(("silent", "is_running"), [(60, True), (600, False)])
def test_a_service_of_another_machine_counts_while_it_is_heard_of(
    store: StateStore, capsys: pytest.CaptureFixture[str], silent: float, is_running: bool
) -> None:
    heard = time.time() - silent
    started = JournalEntry(EntryKind.SERVICE_STARTED, heard)
    owner = {"pid": 1, "host": "elsewhere", "since": "?"}
    name = SegmentName(round(1000 * heard), "a", 1)
    JournalFolder(store.blobs).write(name, Segment(table_of([started]), heard, owner))
    code, text = out(capsys, "status", store.blobs.location)
    assert (code == 0) is is_running
    assert ("running, heard of" if is_running else "died at") in text


def test_whether_a_file_is_held(tmp_path: Path) -> None:
    blobs = BlobStore(str(tmp_path))
    path = blobs.full_name(names.LOCK_FILE)
    assert is_held(path) is False
    hold = blobs.hold(names.LOCK_FILE, b"me")
    assert hold is not None
    assert is_held(path) is True
    hold.release()
    assert is_held(path) is False
