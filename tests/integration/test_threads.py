"""Which threads of a worker do what."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import ServiceUnavailable
from anabranch.processor.contract import BatchTimes, OperatorStats, Transaction
from tests.integration import counting
from tests.integration.harness import rows_of
from tests.integration.inprocess import InProcess


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
