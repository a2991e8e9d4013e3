"""Moves that wait for batches: of queries that end, that hang, and that the move itself holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.integration.counting import Counting, Full
from tests.integration.harness import FixedClock, Oracle, rows_of
from tests.integration.inprocess import NAME, InProcess
from tests.integration.streaming import MovingCluster, keys_of

from anabranch.coordinator import batch_watch as batches
from anabranch.coordinator import move_runner
from anabranch.coordinator.move_handle import MoveHandle
from anabranch.errors import AnabranchError, ReconfigurationFailed, ServiceUnavailable
from anabranch.migration.steps import Arrival
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.processor.contract import BatchTimes
from anabranch.protocol import worker as data
from anabranch.protocol.coordinator import Event, MoveRequested
from anabranch.protocol.residency import importable
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.background_import import ImportUnit
from anabranch.worker.transactions import server

WAIT = 15
"""Less than what was guessed before a query counted as ended."""


class Queries(FixedClock):
    """Knows whether queries run."""

    running = True
    errors = 0
    """So many times it cannot be told."""

    def is_running(self, operator: str, query_id: str) -> bool | None:
        if self.errors:
            self.errors -= 1
            raise RuntimeError("the gateway is busy")
        return self.running


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Queries:
    monkeypatch.setattr(move_runner, "IDLE_SECONDS", 0.1)
    return Queries()


def begin_a_batch(cluster: MovingCluster, oracle: Oracle) -> list[int]:
    """Epoch 0, and half of epoch 1, whose keys are returned."""
    assert cluster.run_batch(0, keys_of(0)) == oracle.run_batch(keys_of(0))
    keys = keys_of(1)
    cluster.run_lane(1, 0, 2, rows_of(keys))
    return keys


@pytest.mark.parametrize("strategy", ["stop-restart", "live"])
def test_a_query_that_is_stopped_in_the_middle_of_a_batch(
    tmp_path: Path, queries: Queries, strategy: str
) -> None:
    with MovingCluster(tmp_path, clock=queries) as cluster:
        oracle = Oracle()
        keys = begin_a_batch(cluster, oracle)
        queries.running, queries.errors = False, 2
        move = cluster.rescale(3, strategy=strategy)
        assert move.wait(WAIT)
        assert len(cluster.workers()) == 3
        queries.running = True  # it starts again, and runs the batch again
        assert cluster.run_batch(1, keys) == oracle.run_batch(keys)


def test_others_go_on_when_a_batch_hangs(
    tmp_path: Path, queries: Queries, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on two cores: the other query's tasks have them, one of this query's waits for a core."""
    monkeypatch.setattr(batches, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(batches, "STUCK_TIMES", 0)
    with MovingCluster(tmp_path, clock=queries) as cluster, ThreadPoolExecutor(1) as pool:
        cluster.register(Counting(), "other")
        oracle, other = Oracle(), Oracle()
        keys = begin_a_batch(cluster, oracle)
        move = cluster.rescale(3, strategy="stop-restart")
        waiting = pool.submit(cluster.run_batch, 0, keys, operator="other", query="query-2")
        with pytest.raises(ReconfigurationFailed, match="operator 'counts' did not go on"):
            move.wait(WAIT)
        assert waiting.result(WAIT) == other.run_batch(keys)
        rest = cluster.run_lane(1, 1, 2, rows_of(keys))
        expected = oracle.run_batch(keys)
        assert all(expected[row["k"]] == row["n"] for row in rest)
        assert cluster.rescale(3, strategy="stop-restart").wait(WAIT)
        assert len(cluster.workers()) == 3


def test_a_late_task_that_is_refused_changes_nothing(tmp_path: Path, queries: Queries) -> None:
    with MovingCluster(tmp_path, clock=queries) as cluster:
        keys = begin_a_batch(cluster, Oracle())
        with pytest.raises(AnabranchError, match="has ended"):
            cluster.run_lane(0, 0, 2, rows_of(keys))
        cluster.run_lane(1, 1, 2, rows_of(keys))
        found = cluster.coordinator.status()["operators"]["counts"]["batches"]
        assert [batch["epoch"] for batch in found] == [0, 1]
        assert all(batch["seconds"] for batch in found)


def test_requests_of_two_threads_are_heard_in_order(tmp_path: Path, queries: Queries) -> None:
    """The last one wins: it is the one that can be cancelled."""
    with MovingCluster(tmp_path, clock=queries) as cluster:
        moves = cluster.coordinator.moves
        dispatch = moves._dispatch
        heard: list[int] = []

        def slowly(event: Event) -> None:
            if isinstance(event, MoveRequested):
                time.sleep(0.5 if event.number == 1 else 0)
                heard.append(event.number)
            dispatch(event)

        moves._dispatch = slowly
        made: list[MoveHandle] = []

        def ask(workers: int) -> None:
            made.append(cluster.rescale(workers))

        threads = [threading.Thread(target=ask, args=(n,)) for n in (3, 4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
        assert heard == [1, 2]
        assert all(move.wait(WAIT) for move in made)
        assert {m.number: m.report().outcome == "done" for m in made}[2]
        moves.stop()  # nobody would ever end a move that is asked for now
        with pytest.raises(ServiceUnavailable, match="was stopped"):
            cluster.rescale(3)


def test_an_import_that_finds_no_memory_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Batches wait for the import under this strategy; what it cannot bring is in the store."""
    oracle, keys = Oracle(), keys_of(0)
    with ThreadPoolExecutor(1) as pool, MovingCluster(tmp_path, definition=Full()) as cluster:
        assert cluster.run_batch(0, keys) == oracle.run_batch(keys)
        move = cluster.rescale(3, strategy="order-unaware")
        assert move.wait(WAIT)
        assert not move.report().bytes, "nothing came"
        batch = pool.submit(cluster.run_batch, 1, keys)
        assert batch.result(WAIT) == oracle.run_batch(keys)


def before_each_expiry(
    monkeypatch: pytest.MonkeyPatch, core: WorkerCore, come: Callable[[], None]
) -> list[int]:
    """Call `come` when a transaction's wait is over, before the protocol hears that; its waits."""
    monkeypatch.setattr(server, "RECEIVE_SECONDS_MAX", 0.01)
    dispatch, expired = core.dispatch, list[int]()

    def watched(event: data.Event) -> None:
        if isinstance(event, data.AwaitingExpired):
            expired.append(event.tx)
            come()
        dispatch(event)

    monkeypatch.setattr(core, "dispatch", watched)
    return expired


def test_a_batch_waits_for_an_import_as_long_as_something_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = InProcess(tmp_path, Counting(), -1)
    core, groups = worker.core, (KeyGroup(0),)
    worker.version = 9
    with core.changed:
        core.dispatch(data.GroupsGranted(groups, 9, WorkerId("w2"), Arrival.BLOCK))
        core.dispatch(data.ImportBegan(groups, 9))

    def bring() -> None:
        if len(expired) > 12:
            return  # nothing comes any more
        with core.changed:
            session = core.machine.arrivals.groups[NAME][groups[0]].session
            core.dispatch(data.PartReceiving(NAME, ((groups[0], session),)))
            (tx,) = core.machine.transactions.values()
            assert tx.phase is data.TxPhase.AWAITING
            assert not tx.is_impatient
        if len(expired) == 12:
            core.dispatch(data.ImportEnded(groups))

    expired = before_each_expiry(monkeypatch, core, bring)
    worker.batch(rows_of([0]), BatchTimes(0, 0, 0))
    assert len(expired) == 13
    assert worker.arrivals.take_on_demand(groups)["waited"] == 1
    worker.close()


def test_a_batch_does_not_wait_for_what_others_get(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of another key group come in for as long as the batch waits for its own."""
    worker = InProcess(tmp_path, Counting(), -1)
    core, groups = worker.core, (KeyGroup(0), KeyGroup(1))
    worker.version = 9
    with core.changed:
        core.dispatch(data.GroupsGranted(groups, 9, WorkerId("w2"), Arrival.GROUP))
        own, other = (
            ImportUnit(NAME, request) for _, request in importable(core.machine, groups, 9)
        )
    imports = worker._worker._orders._imports
    imports._piece(own, 1)
    expired = before_each_expiry(monkeypatch, core, lambda: imports._piece(other, 1))
    times = BatchTimes(0, 0, 0)
    assert worker.transaction(rows_of([0]), times, lanes=2)  # without group 1
    assert len(expired) == 1
    worker.close()


def test_a_batch_does_not_wait_for_an_import_that_brings_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RECEIVE_SECONDS_MAX", 0.05)
    worker = InProcess(tmp_path, Counting(), -1)
    worker.version = 9
    groups = (KeyGroup(0),)
    with worker.core.changed:
        worker.core.dispatch(data.GroupsGranted(groups, 9, WorkerId("w2"), Arrival.BLOCK))
        worker.core.dispatch(data.ImportBegan(groups, 9))
    assert worker.batch(rows_of([0]), BatchTimes(0, 0, 0))
    assert worker.core.source_of(NAME, 0) is None
    worker.close()
