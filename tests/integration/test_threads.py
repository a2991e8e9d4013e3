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
from anabranch.model.keyspace import HASH
from anabranch.processor.contract import BatchTimes, OperatorStats, Transaction
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


@pytest.mark.parametrize("paced", [True, False])
def test_copies_with_a_pace_are_read_between_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paced: bool
) -> None:
    """Also of key groups that no open transaction has to do with."""
    monkeypatch.setattr(exports, "QUIET_SECONDS_MAX", 30.0)
    head = {"operator": "counts", "definition": 1, "groups": [0], "paced": paced}
    with _open_transaction(tmp_path) as (worker, end, threads):
        quiet = Watch(monkeypatch, worker.core, "wait_quiet", lambda: not worker.core.running)
        copying = threads.submit(lambda: list(worker.exports.copy(head)))
        if paced:
            quiet.wait()
            end()
        assert [item["kind"] for item, _ in copying.result(30)] == ["slice", "done"]
        assert (quiet.before, quiet.after) == ([False], [paced])


@pytest.mark.parametrize("paced", [True, False])
def test_copies_with_a_pace_are_taken_in_between_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paced: bool
) -> None:
    monkeypatch.setattr(orders, "QUIET_SECONDS_MAX", 30.0)
    source = InProcess(tmp_path / "source", counting.Counting(), -1)
    source.batch(rows_of(KEYS), BatchTimes(0, 0, 0))
    with _open_transaction(tmp_path / "target") as (worker, end, threads):
        monkeypatch.setattr(
            worker.peers, "stream", lambda peer, name, head: source.exports.copy(head)
        )
        worker.call("pace", rate=1e12 if paced else None)
        worker.call("release", groups=[0], version=2, peer="w2")
        quiet = Watch(monkeypatch, worker.core, "wait_quiet", lambda: not worker.core.running)
        copying = threads.submit(worker.call, "copy", groups=[0], version=3, peer="w2")
        if paced:
            quiet.wait()
            end()
        assert copying.result(30)["counters"]["groups"] == 1
        assert quiet.before[:1] == [False] * paced
        assert quiet.after == [True] * len(quiet.before)
    source.close()


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
