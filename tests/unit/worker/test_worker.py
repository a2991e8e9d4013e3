"""What a worker does with definitions that come out of order, and with lookups in a hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.counting import Counting
from tests.integration.inprocess import NAME, InProcess

from anabranch.coordinator.operator_record import install_message
from anabranch.errors import CallTimedOut
from anabranch.model.keyspace import HASH
from anabranch.transport.messages.state import LookUp
from anabranch.transport.packing import pack_keys
from anabranch.worker import lookup_server

OPENING, MAY_OPEN = threading.Event(), threading.Event()


class OpensWhenTold(Counting):
    """A definition whose libraries take long."""

    def open(self, *args: Any, **more: Any) -> Any:
        OPENING.set()
        assert MAY_OPEN.wait(60)
        return super().open(*args, **more)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[InProcess]:
    process = InProcess(tmp_path / "state", Counting(), -1)
    OPENING.clear()
    MAY_OPEN.clear()
    yield process
    MAY_OPEN.set()
    process._worker.close()


def test_a_slow_install_does_not_replace_a_newer_one(worker: InProcess) -> None:
    inner = worker._worker
    older = install_message(NAME, 2, OpensWhenTold())
    late = threading.Thread(target=inner.call, args=(older,))
    late.start()
    assert OPENING.wait(60)
    inner.call(install_message(NAME, 3, Counting()))
    MAY_OPEN.set()
    late.join(60)
    assert worker.core.slots[NAME].definition_id == 3
    inner.call(install_message(NAME, 2, Counting()))  # too late altogether
    assert worker.core.slots[NAME].definition_id == 3


def test_a_lookup_says_that_a_batch_does_not_end(
    worker: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_server, "APPLY_SECONDS_MAX", 0.05)
    slot = worker.core.slots[NAME]
    keys = pack_keys(pa.table({HASH: pa.array([1], pa.int64()), "k": pa.array([1], pa.int64())}))
    request = LookUp(NAME, slot.definition_id, "counts", -1, keys)
    with slot.apply_lock, pytest.raises(CallTimedOut, match="'stuck'"):
        list(worker._worker._lookups.look_up(request))
