"""The journal's thread: nobody waits for it, and a store that fails costs entries only."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from anabranch.coordinator import journal as module
from anabranch.coordinator.journal import Journal
from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.journal import JournalFolder
from anabranch.model.journal_entry import EntryKind

OWNER = {"pid": 1, "host": "h1"}


def kinds(blobs: MemoryBlobStore) -> list[str]:
    """Of all entries, in their order."""
    return [row["kind"] for row in JournalFolder(blobs).read().rows()]


def until_written(blobs: MemoryBlobStore, count: int) -> list[str]:
    """Wait for so many entries."""
    deadline = time.monotonic() + 30
    while len(found := kinds(blobs)) < count:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


def test_what_is_urgent_is_there_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 3600.0)
    blobs = MemoryBlobStore()
    journal = Journal(blobs, OWNER)
    journal.note(EntryKind.BATCH, operator="a", epoch=1)
    journal.note(EntryKind.WORKER_ENDED, worker="w1", text="killed")
    assert until_written(blobs, 2) == ["batch", "worker-ended"]
    journal.stop()


def test_the_rest_is_written_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_SECONDS", 3600.0)
    blobs = MemoryBlobStore()
    journal = Journal(blobs, OWNER)
    for epoch in range(10):
        journal.note(EntryKind.BATCH, operator="a", epoch=epoch)
    journal.stop()
    assert kinds(blobs) == ["batch"] * 10


def test_segments_are_closed_when_they_are_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEGMENT_ENTRIES", 4)
    blobs = MemoryBlobStore()
    journal = Journal(blobs, OWNER)
    for epoch in range(10):
        journal.note(EntryKind.BATCH, operator="a", epoch=epoch)
    journal.stop()
    assert [row["epoch"] for row in JournalFolder(blobs).read().rows()] == list(range(10))
    assert len(JournalFolder(blobs).names()) == 2, "full ones are put together"


def test_a_store_that_fails_is_said_once_and_tried_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "URGENT_SECONDS", 0.0)
    blobs = MemoryBlobStore()
    written = threading.Event()
    content = blobs.write
    failures = 2

    def write(path: str, buffers: bytes) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError("no space left")
        content(path, buffers)
        written.set()

    monkeypatch.setattr(blobs, "write", write)
    journal = Journal(blobs, OWNER)
    for number in range(3):
        journal.note(EntryKind.SAVEPOINT, text=str(number))
        time.sleep(0.1)
    assert written.wait(30)
    journal.stop()
    assert kinds(blobs) == ["savepoint"] * 3
    assert caplog.text.count("The journal cannot be written") == 1


def test_a_store_that_hangs_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENDING_MAX", 100)
    monkeypatch.setattr(module, "STOP_SECONDS_MAX", 0.1)
    blobs = MemoryBlobStore()
    go_on = threading.Event()
    write = blobs.write

    def slow(path: str, buffers: bytes) -> None:
        go_on.wait(60)
        write(path, buffers)

    monkeypatch.setattr(blobs, "write", slow)
    journal = Journal(blobs, OWNER)
    journal.note(EntryKind.SERVICE_STARTED)
    started = time.thread_time()
    for epoch in range(1000):
        journal.note(EntryKind.BATCH, operator="a", epoch=epoch)
    journal.note(EntryKind.WORKER_ENDED, worker="w1")
    assert time.thread_time() - started < 1.0
    go_on.set()
    lost = next(row for row in iter(lambda: _lost(blobs), None) if row)
    assert lost["rows"] > 500
    journal.stop()


def _lost(blobs: MemoryBlobStore) -> dict[str, Any]:
    time.sleep(0.05)
    rows = JournalFolder(blobs).read().rows()
    return next((row for row in rows if row["kind"] == "entries-lost"), {})


def test_it_says_until_when_it_lived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALIVE_SECONDS", 0.1)
    clock = iter(range(1, 1000))
    blobs = MemoryBlobStore()
    journal = Journal(blobs, OWNER, lambda: float(next(clock)))
    journal.note(EntryKind.SERVICE_STARTED)
    deadline = time.monotonic() + 30
    while (JournalFolder(blobs).read().alive_at or 0) < 5:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    journal.stop()
    assert kinds(blobs) == ["service-started"]
