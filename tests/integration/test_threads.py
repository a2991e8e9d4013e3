"""Which threads of a worker do what."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration import counting
from tests.integration.harness import KEYSPACE, rows_of
from tests.integration.inprocess import InProcess
from tests.integration.watch import Watch

from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.model.keyspace import HASH
from anabranch.processor.contract import BatchTimes, OperatorStats, Transaction
from anabranch.transport.messages.orders import CopyOrder, MovePeer, ReleaseOrder
from anabranch.transport.messages.state import CopyGroups, DoneHead, SliceHead
from anabranch.transport.parcel import Parcel
from anabranch.transport.signs_of_life import Item
from anabranch.worker.moves import exports
from anabranch.worker.moves import order_handler as orders

KEYS = range(200)


def test_transactions_are_applied_by_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever thread of the server a lane meets: memory is warm where it was used before."""
    worker = InProcess(tmp_path, counting.Counting(), -1)
    appliers: set[threading.Thread] = set()
    servers: set[threading.Thread] = set()
    apply = worker.slot.engine.apply

    def noted(tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        appliers.add(threading.current_thread())
        return apply(tx, states)

    def serve(epoch: int) -> list[dict[str, Any]]:
        servers.add(threading.current_thread())
        return worker.batch(rows_of(range(9)), BatchTimes(epoch, 0, 0))

    monkeypatch.setattr(worker.slot.engine, "apply", noted)
    for epoch in range(3):
        with ThreadPoolExecutor(1) as server:
            assert {row["n"] for row in server.submit(serve, epoch).result()} == {epoch + 1}
    worker.close()
    assert len(servers) == 3
    (applier,) = appliers
    assert applier not in servers
    assert not applier.is_alive(), "it ends with the worker"


def test_a_transaction_that_comes_too_late_does_not_blame_its_operator(tmp_path: Path) -> None:
    worker = InProcess(tmp_path, counting.Counting(), -1)
    worker.close()
    with pytest.raises(ServiceUnavailable, match="was stopped"):
        worker.batch(rows_of(range(9)), BatchTimes(0, 0, 0))


def test_a_quiet_moment_is_one_without_open_transactions(tmp_path: Path) -> None:
    worker = InProcess(tmp_path, counting.Counting(), -1)
    receiving, go_on = threading.Event(), threading.Event()
    core = worker.core

    def quiet() -> bool:
        core.wait_quiet(30)
        return not core.running

    with ThreadPoolExecutor(2) as threads:
        worker.rows_come_slowly(receiving, go_on)
        batch = threads.submit(worker.batch, rows_of(range(9)), BatchTimes(0, 0, 0))
        assert receiving.wait(30)
        core.wait_quiet(0.01)  # not for ever
        waiting = threads.submit(quiet)
        assert not waiting.done()
        go_on.set()
        assert len(batch.result()) == 9
        assert waiting.result()
    worker.close()


@pytest.mark.parametrize("is_limited", [True, False])
def test_copies_with_a_rate_are_read_between_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_limited: bool
) -> None:
    """Also of key groups that no open transaction has to do with."""
    monkeypatch.setattr(exports, "QUIET_SECONDS_MAX", 30.0)
    request = CopyGroups("counts", 1, (0,), is_limited)
    with _open_transaction(tmp_path) as (worker, end, threads):
        quiet = Watch(monkeypatch, worker.core, "wait_quiet", lambda: not worker.core.running)
        copying = threads.submit(lambda: list(worker.exports.copy(request)))
        if is_limited:
            quiet.wait()
            end()
        assert [type(head) for head, _ in copying.result(30)] == [SliceHead, DoneHead]
        assert (quiet.before, quiet.after) == ([False], [is_limited])


@pytest.mark.parametrize("is_limited", [True, False])
def test_copies_with_a_rate_are_taken_in_between_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_limited: bool
) -> None:
    monkeypatch.setattr(orders, "QUIET_SECONDS_MAX", 30.0)
    source = InProcess(tmp_path / "source", counting.Counting(), -1)
    source.batch(rows_of(KEYS), BatchTimes(0, 0, 0))
    with _open_transaction(tmp_path / "target") as (worker, end, threads):
        monkeypatch.setattr(
            worker.peers, "stream", lambda peer, request: received(source.exports.copy(request))
        )
        groups, peer = (KeyGroup(0),), MovePeer(WorkerId("w2"), None)
        worker.call(ReleaseOrder(groups, peer, 2))
        rate = 1e12 if is_limited else None
        quiet = Watch(monkeypatch, worker.core, "wait_quiet", lambda: not worker.core.running)
        copying = threads.submit(worker.call, CopyOrder(groups, peer, 3, rate))
        if is_limited:
            quiet.wait()
            end()
        assert copying.result(30).counters["groups"] == 1
        assert quiet.before[:1] == [False] * is_limited
        assert quiet.after == [True] * len(quiet.before)
    source.close()


def received(items: Iterator[Item]) -> Iterator[Parcel[Any]]:
    """As they come to the other end."""
    for head, tables in items:
        yield Parcel(head, dict(tables), 0)


@contextmanager
def _open_transaction(
    folder: Path,
) -> Iterator[tuple[InProcess, Callable[[], None], ThreadPoolExecutor]]:
    """A worker with an open transaction of odd key groups, what ends it, and threads to use."""
    worker = InProcess(folder, counting.Counting(), -1)
    worker.batch(rows_of(KEYS), BatchTimes(0, 0, 0))
    receiving, go_on = threading.Event(), threading.Event()
    worker.rows_come_slowly(receiving, go_on)
    rows = rows_of(KEYS)
    rows = rows.filter(pa.array(KEYSPACE.group_of(rows.column(HASH).to_numpy()) % 2 == 1))
    with ThreadPoolExecutor(2) as threads:
        open_one = threads.submit(worker.transaction, rows, BatchTimes(1, 0, 0), lane=1, lanes=2)
        try:
            assert receiving.wait(30)
            yield worker, go_on.set, threads
        finally:
            go_on.set()
            open_one.result(30)
    worker.close()
