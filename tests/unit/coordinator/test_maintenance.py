"""Background work after commits: no operator and no worker is forgotten, however busy it gets."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, cast

import pytest
from tests.unit.durability.test_store import commit, opened

from anabranch.coordinator.maintenance import GARBAGE_EPOCHS, RETAINED_EPOCHS, Maintenance
from anabranch.durability import names
from anabranch.durability.blobs import MemoryBlobStore
from anabranch.errors import ServiceUnavailable
from anabranch.transport.messages.control import CommitNotes, Committed

WAIT = 20


class SlowWorker:
    """The only worker; each call waits until it is let go."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.go = threading.Semaphore(0)
        self.called = threading.Semaphore(0)

    def peers(self) -> dict[str, Any]:
        return {"w1": self}

    def call_patiently(self, request: Committed, timeout_seconds: float) -> CommitNotes:
        self.calls.append((request.operator, request.epoch))
        self.called.release()
        self.go.acquire()
        return CommitNotes((), None)


class Store:
    def __init__(self) -> None:
        self.collected: Counter[str] = Counter()

    def expire(self, operator: str, retain: int) -> Store:
        self.collected[operator] += 1
        return self

    def sweep(self) -> None:
        pass


def maintenance_of(store: Any, workers: Any) -> Maintenance:
    return Maintenance(store, threading.Lock(), workers, lambda: False, 16)


def test_every_operator_has_its_turn() -> None:
    worker, store = SlowWorker(), Store()
    maintenance = maintenance_of(store, worker)
    epochs = 3 * GARBAGE_EPOCHS
    for epoch in range(epochs):
        for operator in ("first", "second"):
            maintenance.after_commit(operator, epoch)
        if epoch % 2:  # it gets through with one commit in two batches
            worker.called.acquire()
            worker.go.release()
    for _ in range(4):
        worker.go.release()
    maintenance.stop(20)
    turns = Counter(operator for operator, _ in worker.calls)
    assert abs(turns["first"] - turns["second"]) <= 1
    assert turns["first"] >= epochs // 4
    assert worker.calls == sorted(worker.calls, key=lambda call: call[1])
    assert store.collected["first"] >= 2
    assert store.collected["second"] >= 2


class Several:
    """Workers of which the first is slow and the second fails."""

    def __init__(self, error: Exception) -> None:
        self.slow, self.quick = SlowWorker(), SlowWorker()
        self._error = error

    def peers(self) -> dict[str, Any]:
        return {"w1": self.slow, "w2": self, "w3": self.quick}

    def call_patiently(self, request: Committed, timeout_seconds: float) -> CommitNotes:
        raise self._error


@pytest.mark.parametrize("error", [ServiceUnavailable("It is gone."), ValueError("a bug")])
def test_no_worker_waits_for_another(error: Exception) -> None:
    workers, store = Several(error), Store()
    maintenance = maintenance_of(store, workers)
    for epoch in (GARBAGE_EPOCHS, 2 * GARBAGE_EPOCHS):
        maintenance.after_commit("counts", epoch)
        assert workers.slow.called.acquire(timeout=WAIT)
        # The first one has not answered yet.
        assert workers.quick.called.acquire(timeout=WAIT)
        workers.quick.go.release()
        workers.slow.go.release()
    maintenance.stop(20)
    assert store.collected["counts"] == 2


class Deleting(MemoryBlobStore):
    """Commits while state files are being deleted."""

    def __init__(self, during: Any) -> None:
        super().__init__()
        self._during = during
        self._is_during = False
        self.deleted: list[str] = []

    def delete(self, path: str) -> None:
        if not self._is_during and not path.startswith(names.manifest_folder("op")):
            self._is_during = True
            self._during()
        self.deleted.append(path)
        super().delete(path)


def test_a_commit_does_not_wait_while_files_are_deleted() -> None:
    lock, last = threading.Lock(), RETAINED_EPOCHS + GARBAGE_EPOCHS
    done, held = threading.Event(), list[bool]()

    def commit_another() -> None:
        is_free = lock.acquire(timeout=1)
        held.append(not is_free)
        if is_free:
            commit(store, last)
            lock.release()
        done.set()

    blobs = Deleting(commit_another)
    store = opened(blobs)
    for epoch in range(last):
        commit(store, epoch)
    unlisted = names.changelog_path("op", 3, 0, "w9", "late", 1)
    blobs.write(unlisted, b"1")
    maintenance = Maintenance(store, lock, cast(Any, Nobody()), lambda: False, 16)
    maintenance.after_commit("op", last - 1)
    assert done.wait(WAIT)
    maintenance.stop(20)
    assert unlisted in blobs.deleted
    assert held == [False]
    # Whatever the new epoch needs is there.
    store.verify(store.manifest("op", last))
    assert store.epochs("op")[0] == last - RETAINED_EPOCHS


class Nobody:
    """No worker is up."""

    def peers(self) -> dict[str, Any]:
        return {}
