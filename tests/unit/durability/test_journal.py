"""Segments of the journal: whole or not at all, bounded, readable after any crash."""

from __future__ import annotations

import pytest

from anabranch.durability import journal as module
from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.journal import (
    JournalFolder,
    Segment,
    SegmentName,
    decode,
    encode,
    table_of,
)
from anabranch.errors import CorruptState
from anabranch.model.journal_entry import EntryKind, JournalEntry

OWNER = {"pid": 1, "host": "h1"}


def batch(epoch: int, time: float | None = None) -> JournalEntry:
    """A batch that took a second."""
    at = float(epoch) if time is None else time
    return JournalEntry(
        EntryKind.BATCH, at, "totals", epoch=epoch, seconds=1.0, rows=10, apply_ms=7
    )


def segment(*entries: JournalEntry, alive_at: float = 0.0) -> Segment:
    """Some entries of the run that OWNER names."""
    return Segment(table_of(entries), alive_at, OWNER)


def folder_with(*runs: tuple[str, list[JournalEntry]]) -> JournalFolder:
    """A journal with one segment for each run."""
    folder = JournalFolder(MemoryBlobStore())
    for run, entries in runs:
        name = SegmentName(round(1000 * entries[0].time), run, 1)
        folder.write(name, segment(*entries, alive_at=entries[-1].time))
    return folder


def epochs(folder: JournalFolder, since: float | None = None, until: float | None = None) -> object:
    """Of the batches that are found."""
    return [row["epoch"] for row in folder.read(since, until).rows()]


def test_an_entry_comes_back_with_what_it_says() -> None:
    died = JournalEntry(
        EntryKind.WORKER_ENDED, 2.5, worker="w1", text="killed by signal 9", details={"pid": 7}
    )
    read = decode(encode(segment(batch(1), died, alive_at=9.0)), "it")
    content = JournalFolder(MemoryBlobStore())
    content.write(SegmentName(1000, "a", 1), read)
    first, second = content.read().rows()
    assert first["operator"] == "totals"
    assert first["apply_ms"] == 7
    assert "worker" not in first
    assert second["kind"] == "worker-ended"
    assert second["time"].timestamp() == 2.5
    assert second["details"] == {"pid": 7}
    assert content.read().alive_at == 9.0
    assert content.read().owner == OWNER


def test_a_span_of_time() -> None:
    folder = folder_with(("a", [batch(1), batch(2)]), ("b", [batch(5), batch(6)]))
    assert epochs(folder) == [1, 2, 5, 6]
    assert epochs(folder, since=2.0) == [2, 5, 6]
    assert epochs(folder, until=5.0) == [1, 2, 5]
    assert epochs(folder, 2.0, 5.0) == [2, 5]
    assert epochs(folder, since=7.0) == []


def test_segments_that_ended_before_are_not_read() -> None:
    blobs = MemoryBlobStore()
    folder = JournalFolder(blobs)
    for number in (1, 2, 3):
        folder.write(SegmentName(1000 * number, "a", number), segment(batch(number)))
    blobs.files[SegmentName(1000, "a", 1).path] = b"damaged"
    assert not folder.read(since=2.5).damaged
    assert folder.read(since=0.5).damaged


@pytest.mark.parametrize("cut", [0, 3, 40, -1])
def test_a_damaged_segment_is_said_and_left_out(cut: int) -> None:
    blobs = MemoryBlobStore()
    folder = JournalFolder(blobs)
    folder.write(SegmentName(1000, "a", 1), segment(batch(1)))
    folder.write(SegmentName(2000, "b", 1), segment(batch(2)))
    path = SegmentName(1000, "a", 1).path
    blobs.files[path] = blobs.files[path][:cut]
    content = folder.read()
    assert [row["epoch"] for row in content.rows()] == [2]
    assert len(content.damaged) == 1


def test_a_flipped_bit_is_found() -> None:
    content = bytearray(encode(segment(batch(1), batch(2))))
    content[len(content) // 2] ^= 1
    with pytest.raises(CorruptState, match="checksum"):
        decode(bytes(content), "it")


def test_columns_of_another_release() -> None:
    later = segment(batch(1)).entries.append_column("new", [[1]]).drop_columns(["wait_ms"])
    read = decode(encode(Segment(later, 1.0, OWNER)), "it")
    assert read.entries.column_names == segment(batch(1)).entries.column_names
    assert read.entries["wait_ms"].to_pylist() == [None]


def test_small_segments_of_earlier_runs_become_one() -> None:
    runs = [(f"r{n}", [batch(n)]) for n in range(1, 6)]
    folder = folder_with(*runs)
    before = epochs(folder)
    folder.tidy()
    assert epochs(folder) == before
    assert [name.run for name in folder.names()] == ["r1"]
    assert folder.read().alive_at == 5.0


def test_a_crash_in_the_middle_of_that_leaves_nothing_twice() -> None:
    blobs = MemoryBlobStore()
    folder = JournalFolder(blobs)
    for n in (1, 2, 3):
        folder.write(SegmentName(1000 * n, f"r{n}", 1), segment(batch(n)))
    parts = dict(blobs.files)
    folder.tidy()
    whole = SegmentName(1000, "r1", 1).path
    blobs.files.update({path: content for path, content in parts.items() if path != whole})
    assert len(folder.names()) == 3
    assert epochs(folder) == [1, 2, 3]


def test_a_damaged_segment_stays_where_it_is() -> None:
    blobs = MemoryBlobStore()
    folder = JournalFolder(blobs)
    for n in (1, 2, 3, 4, 5):
        folder.write(SegmentName(1000 * n, f"r{n}", 1), segment(batch(n)))
    path = SegmentName(3000, "r3", 1).path
    blobs.files[path] = b"?"
    folder.tidy()
    assert blobs.files[path] == b"?"
    assert epochs(folder) == [1, 2, 4, 5]


def test_large_segments_are_not_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [(f"r{n}", [batch(n)]) for n in range(1, 6)]
    folder = folder_with(*runs)
    size = folder._blobs.size(folder.names()[0].path)
    monkeypatch.setattr(module, "SMALL_BYTES", size)
    folder.tidy()
    assert len(folder.names()) == 5
    monkeypatch.setattr(module, "SMALL_BYTES", size + 1)
    folder.tidy()
    assert len(folder.names()) == 3
    assert epochs(folder) == [1, 2, 3, 4, 5]


def test_the_oldest_go_first_and_the_newest_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL_BYTES", 0)
    folder = JournalFolder(MemoryBlobStore())
    for n in range(1, 5):
        size = folder.write(SegmentName(1000 * n, "a", n), segment(batch(n)))
    folder.tidy(bytes_max=2 * size)
    assert epochs(folder) == [3, 4]
    folder.tidy(bytes_max=0)
    assert epochs(folder) == [4]


def test_foreign_files_are_left_alone() -> None:
    blobs = MemoryBlobStore()
    blobs.write("journal/notes.txt", b"mine")
    folder = JournalFolder(blobs)
    folder.tidy(bytes_max=0)
    assert folder.read().rows() == []
    assert "journal/notes.txt" in blobs.files
