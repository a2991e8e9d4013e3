"""Which threads of a worker do what."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from anabranch.processor.contract import BatchTimes, OperatorStats, Transaction
from tests.integration import counting
from tests.integration.harness import rows_of
from tests.integration.inprocess import InProcess


def test_transactions_are_applied_by_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever thread of the server a lane meets: memory is warm where it was used before."""
    worker = InProcess(tmp_path, counting.Counting(), -1)
    applied_by: list[int] = []
    apply = worker.slot.engine.apply

    def noted(tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        applied_by.append(threading.get_ident())
        return apply(tx, states)

    monkeypatch.setattr(worker.slot.engine, "apply", noted)
    for epoch in range(4):
        with ThreadPoolExecutor(1) as server:
            batch = server.submit(worker.batch, rows_of(range(9)), BatchTimes(epoch, 0, 0))
            assert {row["n"] for row in batch.result()} == {epoch + 1}
    before = threading.active_count()
    worker.close()
    assert len(applied_by) == 4
    assert len(set(applied_by)) == 1
    assert threading.active_count() < before, "it ends with the worker"
