"""Background work after commits: no operator is forgotten, however busy it gets."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, cast

from anabranch.runtime.maintenance import GARBAGE_EPOCHS, Maintenance
from anabranch.transport.wire import Message


class SlowWorker:
    """The only worker; each call waits until it is let go."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.go = threading.Semaphore(0)
        self.called = threading.Semaphore(0)

    def peers(self) -> dict[str, SlowWorker]:
        return {"w1": self}

    def call(self, name: str, message: Message) -> Message:
        self.calls.append((message["operator"], message["epoch"]))
        self.called.release()
        self.go.acquire()
        return {"snapshots": [], "heat": None}


class Store:
    def __init__(self) -> None:
        self.collected: Counter[str] = Counter()

    def collect_garbage(self, operator: str, retain: int) -> None:
        self.collected[operator] += 1


def test_every_operator_has_its_turn() -> None:
    worker, store = SlowWorker(), Store()
    maintenance = Maintenance(
        cast(Any, store), threading.Lock(), cast(Any, worker), lambda: False, 16
    )
    epochs = 3 * GARBAGE_EPOCHS
    for epoch in range(epochs):
        for operator in ("first", "second"):
            maintenance.after_commit(operator, epoch)
        if epoch % 2:  # it gets through with one commit in two batches
            worker.called.acquire()
            worker.go.release()
    for _ in range(4):
        worker.go.release()
    maintenance.stop()
    turns = Counter(operator for operator, _ in worker.calls)
    assert abs(turns["first"] - turns["second"]) <= 1
    assert turns["first"] >= epochs // 4
    assert worker.calls == sorted(worker.calls, key=lambda call: call[1])
    assert store.collected["first"] >= 2
    assert store.collected["second"] >= 2
