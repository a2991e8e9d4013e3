"""User code that does not come back: told of, ended, replaced; nothing is lost or waits."""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from tests.integration.harness import Cluster, Oracle
from tests.integration.streaming import MovingCluster
from tests.unit.processor.rows.support import define

from anabranch.coordinator import installer, user_code_monitor
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.errors import AnabranchError, InvalidArgument, ProcessorError, ServiceUnavailable
from anabranch.processes import worker_pool
from anabranch.transport.client import Peer
from anabranch.transport.messages.orders import SaveOrder

cloudpickle.register_pickle_by_value(sys.modules[__name__])

KEYS = [1, 2, 3, 4, 7, 7, 9]
WAIT = 60


class Counter(StatefulProcessor):
    """Counts rows; what else it does for key 7 is told by a file."""

    def __init__(self, flag: Path) -> None:
        self._flag = str(flag)

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count = (self._count.get() or (0,))[0] + sum(1 for _ in rows)
        self._count.update((count,))
        if key[0] == 7 and Path(self._flag).exists():
            self.do_for_ever(Path(self._flag).read_text())
        yield Row(k=key[0], n=count)

    def do_for_ever(self, what: str) -> None:
        if what == "sleep":
            while True:
                time.sleep(3600)
        elif what == "native":
            re.match(r"(a+)+$", "a" * 64 + "b")  # never lets go of Python's lock
        elif what == "input":
            input("Yes? ")


class LoadsForEver(Counter):
    """Hangs when a worker loads it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        if Path(self._flag).exists():
            self.do_for_ever("sleep")


def counting(processor: Counter) -> Any:
    return define(processor, "k long", ["k"], "k long, n long", "none")


@pytest.fixture
def flag(tmp_path: Path) -> Path:
    return tmp_path / "flag"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(worker_pool, "PING_SECONDS", 0.2)
    monkeypatch.setattr(worker_pool, "REPORTED_SECONDS", 0.2)
    monkeypatch.setattr(user_code_monitor, "STUCK_SECONDS", 1.0)
    caplog.set_level(logging.INFO)


def wait_until(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT
    while not (found := condition()):
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)
    return found


def stuck(cluster: Cluster) -> dict[str, Any]:
    """Calls by worker, as status() shows them."""
    workers = cluster.coordinator.status()["workers"]
    return {worker: shown["stuck"] for worker, shown in workers.items() if shown["stuck"]}


def test_a_hang_is_told_of_and_a_recycled_worker_runs_the_batch_again(
    tmp_path: Path, flag: Path, caplog: pytest.LogCaptureFixture
) -> None:
    oracle = Oracle()
    definition = counting(Counter(flag))
    with (
        Cluster(tmp_path / "state", definition=definition) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        assert cluster.run_batch(0, KEYS) == oracle.run_batch(KEYS)
        flag.write_text("sleep")
        batch = pool.submit(cluster.run_batch, 1, KEYS)
        ((worker, (call,)),) = wait_until(lambda: stuck(cluster)).items()
        assert (call["operator"], call["key"], call["epoch"]) == ("counts", "(7,)", 1)
        assert call["method"] == "Counter.handleInputRows"
        assert call["seconds"] >= 1
        assert "do_for_ever" in call["stack"]
        assert "concurrent/futures" not in call["stack"]
        said = wait_until(lambda: [m for m in caplog.messages if "has not come back" in m])[0]
        for part in (f"Worker {worker}", "'counts'", "key (7,)", "batch 1", "do_for_ever"):
            assert part in said
        with pytest.raises(InvalidArgument, match=r"There is no worker 'w9' .* only: w1, w2"):
            cluster.coordinator.recycler.recycle("w9", 1)
        with pytest.raises(ServiceUnavailable, match="not up after 1e-09 s"):
            cluster.coordinator.recycler.recycle(worker, 1e-9)
        wait_until(lambda: cluster.coordinator.status()["workers"][worker]["restarts"] == 1)
        before = cluster.coordinator.pids().get(worker)
        flag.unlink()
        cluster.coordinator.recycler.recycle(worker, WAIT)
        after = cluster.coordinator.status()["workers"][worker]
        assert after["status"] == "up"
        assert after["pid"] != before
        assert batch.result(WAIT) == oracle.run_batch(KEYS)
        assert cluster.run_batch(2, KEYS) == oracle.run_batch(KEYS)
        assert not stuck(cluster)


def test_a_limit_fails_the_batch_and_the_next_try_goes_on_from_the_last_commit(
    tmp_path: Path, flag: Path
) -> None:
    oracle = Oracle()
    with Cluster(
        tmp_path / "state", definition=counting(Counter(flag)), user_code_timeout_s=1.0
    ) as cluster:
        assert cluster.run_batch(0, KEYS) == oracle.run_batch(KEYS)
        flag.write_text("sleep")
        with pytest.raises(ProcessorError) as failed:
            cluster.run_batch(1, KEYS)
        for part in ("'counts'", "key (7,)", "batch 1", "do_for_ever", "user_code_timeout_s"):
            assert part in str(failed.value)
        flag.unlink()
        for epoch in (1, 2):
            assert cluster.run_batch(epoch, KEYS) == oracle.run_batch(KEYS)
        workers = cluster.coordinator.status()["workers"].values()
        assert sorted(worker["restarts"] for worker in workers) == [0, 1]


def test_an_operator_that_hangs_can_be_defined_again(tmp_path: Path, flag: Path) -> None:
    oracle = Oracle()
    definition = counting(Counter(flag))
    with (
        Cluster(tmp_path / "state", definition=definition) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        assert cluster.run_batch(0, KEYS) == oracle.run_batch(KEYS)
        flag.write_text("sleep")
        batch = pool.submit(cluster.run_batch, 1, KEYS)
        wait_until(lambda: stuck(cluster))
        flag.unlink()
        began = time.monotonic()
        cluster.register(counting(Counter(flag)))
        assert time.monotonic() - began < 30
        with pytest.raises(AnabranchError):
            batch.result(WAIT)
        assert cluster.run_batch(1, KEYS) == oracle.run_batch(KEYS)


def test_one_that_hangs_while_it_is_loaded_does_not_take_the_workers_with_it(
    tmp_path: Path, flag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = Oracle()
    with Cluster(tmp_path / "state", definition=counting(Counter(flag))) as cluster:
        assert cluster.run_batch(0, KEYS) == oracle.run_batch(KEYS)
        monkeypatch.setattr(installer, "INSTALL_SECONDS_MAX", 2.0)
        bad = counting(LoadsForEver(flag))
        flag.write_text("sleep")
        with pytest.raises(ProcessorError, match="'bad' was not loaded by worker") as failed:
            cluster.register(bad, "bad")
        assert "do_for_ever" in str(failed.value)
        # The others go on: whoever has hung was replaced.
        rest = [key for key in KEYS if key != 7]
        assert cluster.run_batch(1, rest) == oracle.run_batch(rest)
        flag.unlink()
        cluster.register(bad, "bad")
        assert cluster.run_batch(0, KEYS, operator="bad", query="query-2") == Oracle().run_batch(
            KEYS
        )


def test_reading_from_the_terminal_ends_at_once(tmp_path: Path, flag: Path) -> None:
    flag.write_text("input")
    with Cluster(tmp_path / "state", definition=counting(Counter(flag))) as cluster:
        with pytest.raises(ProcessorError, match="EOFError"):
            cluster.run_batch(0, KEYS)
        flag.unlink()
        assert cluster.run_batch(0, KEYS) == Oracle().run_batch(KEYS)
        assert {w["restarts"] for w in cluster.coordinator.status()["workers"].values()} == {0}


def test_native_code_that_hangs_says_where(
    tmp_path: Path, flag: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """No thread of its process can answer; the stacks come from a handler in C."""
    monkeypatch.setattr(worker_pool, "PING_SECONDS_MAX", 3.0)
    oracle = Oracle()
    definition = counting(Counter(flag))
    with (
        Cluster(tmp_path / "state", definition=definition) as cluster,
        ThreadPoolExecutor(1) as pool,
    ):
        assert cluster.run_batch(0, KEYS) == oracle.run_batch(KEYS)
        flag.write_text("native")
        batch = pool.submit(cluster.run_batch, 1, KEYS)
        said = ""

        def is_said() -> bool:
            nonlocal said
            said += capfd.readouterr().err
            return "do_for_ever" in said

        wait_until(is_said)
        flag.unlink()
        assert batch.result(WAIT) == oracle.run_batch(KEYS)


def test_stop_waits_for_orders_but_not_for_user_code(
    tmp_path: Path, flag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that comes late must not reach the store while it closes."""
    answered, go_on = threading.Event(), threading.Event()
    published: list[str] = []
    call = Peer.call_patiently

    def slowly(peer: Peer, request: Any, *timeout: float) -> Any:
        reply = call(peer, request, *timeout)
        if isinstance(request, SaveOrder):
            answered.set()
            assert go_on.wait(WAIT)
        return reply

    monkeypatch.setattr(Peer, "call_patiently", slowly)
    with MovingCluster(tmp_path / "state", definition=counting(Counter(flag))) as cluster:
        moves: MoveRunner = cluster.coordinator.moves
        monkeypatch.setattr(moves, "_publish", lambda operator, files: published.append(operator))
        cluster.run_batch(0, KEYS)
        cluster.rescale(3, strategy="stop-restart")
        assert answered.wait(WAIT)
        stopping = threading.Thread(target=cluster.coordinator.stop, daemon=True)
        stopping.start()
        wait_until(lambda: not cluster.coordinator.pids())
        stopping.join(0.5)
        assert stopping.is_alive()
        go_on.set()
        stopping.join(WAIT)
        assert not stopping.is_alive()
        assert not [t for t in threading.enumerate() if t.name.startswith("anabranch-order")]
        assert published == []


def test_stop_ends_workers_that_hang(tmp_path: Path, flag: Path) -> None:
    with Cluster(tmp_path / "state", definition=counting(Counter(flag))) as cluster:

        def run() -> None:
            with pytest.raises(AnabranchError):
                cluster.run_batch(1, KEYS)

        cluster.run_batch(0, KEYS)
        flag.write_text("sleep")
        lanes = threading.Thread(target=run)
        lanes.start()
        wait_until(lambda: stuck(cluster))
        began = time.monotonic()
    assert time.monotonic() - began < 30
    lanes.join(WAIT)
    assert not lanes.is_alive()
