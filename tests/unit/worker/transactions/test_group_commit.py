"""Who writes what together with whom, and that nobody waits for those that have not ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from tests.unit.durability.test_pack import parts

from anabranch.durability import names
from anabranch.durability.blobs import MemoryBlobStore
from anabranch.durability.file_refs import FileRef
from anabranch.durability.pack import PackPart
from anabranch.errors import LocationNotWritable
from anabranch.worker.transactions import group_commit
from anabranch.worker.transactions.group_commit import GroupCommit


class HeldBlobs(MemoryBlobStore):
    """Writes wait until they are let go, one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def write(self, path: str, buffers: object) -> None:
        self.begun.release()
        assert self.may_end.acquire(timeout=20)
        super().write(path, buffers)  # type: ignore[arg-type]


Write = Callable[[PackPart], "Future[FileRef]"]


@contextmanager
def writing(blobs: MemoryBlobStore, operator: str = "op") -> Iterator[tuple[GroupCommit, Write]]:
    commits = GroupCommit(blobs, lambda point: None)
    with ThreadPoolExecutor(16) as pool:
        yield commits, lambda part: pool.submit(commits.write, operator, part)


def wait_ready(commits: GroupCommit, count: int) -> None:
    """Until so many wait for the write that is under way."""
    with commits._changed:
        pass
    deadline = threading.Event()
    for _ in range(2000):
        if sum(map(len, commits._ready.values())) == count:
            return
        deadline.wait(0.005)
    raise AssertionError(f"not {count} transactions wait: {commits._ready}")


def test_what_ends_during_a_write_goes_into_the_next_one_together() -> None:
    blobs = HeldBlobs()
    with writing(blobs) as (commits, write):
        first = write(parts(0)[0])
        assert blobs.begun.acquire(timeout=20)  # it waits for nobody
        others = [write(part) for part in parts(0)[1:]]
        wait_ready(commits, 3)
        assert not blobs.begun.acquire(timeout=0.05)
        blobs.may_end.release()
        assert first.result(20).offset is None
        assert blobs.begun.acquire(timeout=20)
        assert not any(other.done() for other in others)
        blobs.may_end.release()
        refs = [other.result(20) for other in others]
        assert len({ref.path for ref in refs}) == 1
        assert sorted(ref.start for ref in refs)[0] == 0
        assert len({ref.start for ref in refs}) == 3
        assert [ref.groups for ref in refs] == [part.groups for part in parts(0)[1:]]
    assert len(blobs.files) == 2
    assert not commits._ready
    assert not commits._writing


def test_another_epoch_and_large_changelogs_wait_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blobs = HeldBlobs()
    with writing(blobs) as (_, write):
        running = [write(parts(0)[0]), write(parts(1)[0])]
        for _ in running:
            assert blobs.begun.acquire(timeout=20)
        monkeypatch.setattr(group_commit, "ALONE_BYTES", 1)
        running.append(write(parts(0)[1]))
        assert blobs.begun.acquire(timeout=20)
        for _ in running:
            blobs.may_end.release()
        assert all(one.result(20).offset is None for one in running)
    assert {names.epoch_of(path) for path in blobs.files} == {0, 1}


def test_a_pack_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "PACK_BYTES_MAX", 2 * parts(0)[0].bytes)
    blobs = HeldBlobs()
    with writing(blobs) as (commits, write):
        running = [write(parts(0, 8)[0])]
        assert blobs.begun.acquire(timeout=20)
        running += [write(part) for part in parts(0, 8)[1:]]
        wait_ready(commits, 7)
        for _ in range(8):
            blobs.may_end.release()
        refs = [one.result(20) for one in running]
    assert len({ref.key for ref in refs}) == 8
    assert len(blobs.files) == 1 + 4


def test_a_write_that_fails_fails_for_all_and_the_next_one_goes_on() -> None:
    blobs = HeldBlobs()
    with writing(blobs) as (commits, write):
        first = write(parts(0)[0])
        assert blobs.begun.acquire(timeout=20)
        blobs.faults.fail_next(after=1)
        others = [write(part) for part in parts(0)[1:3]]
        wait_ready(commits, 2)
        blobs.may_end.release()
        blobs.may_end.release()
        assert first.result(20).offset is None
        for other in others:
            with pytest.raises(LocationNotWritable):
                other.result(20)
        again = write(parts(0)[3])
        blobs.may_end.release()
        assert again.result(20).offset is None
    assert len(blobs.files) == 2


def test_the_process_can_die_before_anybody_hears_of_a_pack() -> None:
    blobs, passed = MemoryBlobStore(), list[str]()
    GroupCommit(blobs, passed.append).write("op", parts(0)[0])
    assert passed == ["pack-written"]
