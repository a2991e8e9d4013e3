"""Real processes are rescaled while no batch runs: at once, whatever the strategy."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from tests.integration.harness import FixedClock, Oracle
from tests.integration.streaming import MovingCluster, Stream, keys_of

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.rate_controller import MOST_BYTES_PER_SECOND, START_BYTES_PER_SECOND
from anabranch.migration.steps import NextEpoch
from anabranch.migration.strategies import ALWAYS_AS_ASKED, STRATEGIES
from anabranch.model.ids import WorkerId
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.move_orders import OrderKind

WAIT = 60
EPOCHS_MAX = 100
AT_ONCE = import_module("anabranch.migration.strategies.at_once")


class SleepingClock(FixedClock):
    """Says what the cluster says."""

    running = False

    def is_running(self, operator: str, query_id: str) -> bool | None:
        return self.running


class SleepingCluster(MovingCluster):
    """The query ends after each batch, so nobody waits to see whether another one comes."""

    def __init__(self, folder: Path) -> None:
        self._sleeping = SleepingClock()
        super().__init__(folder, clock=self._sleeping)

    def run_batch(self, epoch: int, keys: Iterable[int], *args: Any, **more: Any) -> dict[int, int]:
        self._sleeping.running = True
        try:
            return super().run_batch(epoch, keys, *args, **more)
        finally:
            self._sleeping.running = False


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> list[protocol.Event]:
    """What ended a wait of a move for batches: nothing, if none waited."""
    heard: list[protocol.Event] = []
    handle = protocol.CoordinatorMachine.handle

    def listen(self: protocol.CoordinatorMachine, event: protocol.Event) -> list[protocol.Effect]:
        tasks = [] if self.moves.current is None else self.moves.current.tasks
        if any(isinstance(task.current, NextEpoch) for task in tasks):
            heard.append(event)
        return handle(self, event)

    monkeypatch.setattr(protocol.CoordinatorMachine, "handle", listen)
    return heard


def moved_at_once(move: MoveHandle) -> None:
    assert move.wait(WAIT)
    report = move.report()
    assert report.outcome == "done"
    if report.strategy not in ALWAYS_AS_ASKED and report.groups:
        assert report.counters["idle_groups"] == report.groups
        assert report.counters["idle_rounds"] == 1
        assert "in 1 round: no batch ran" in str(report)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nobody_waits_where_no_batch_runs(
    tmp_path: Path, strategy: str, words: list[protocol.Event]
) -> None:
    """First without an operator that has run, then with a few keys of a query that has ended."""
    oracle = Oracle()
    with SleepingCluster(tmp_path) as cluster:
        moved_at_once(cluster.rescale(3, strategy=strategy))
        keys = list(range(8))
        assert cluster.run_batch(0, keys) == oracle.run_batch(keys)
        moved_at_once(cluster.rescale(2, strategy=strategy))
        moved_at_once(cluster.move([0, 1, 2, 3], to="w2", strategy=strategy))
        moved_at_once(cluster.rebalance(strategy=strategy))
        moved_at_once(cluster.drain("w1", strategy=strategy))
        assert set(cluster.workers()) == {"w2"}
        assert not words, "a move waited for batches"
        assert cluster.run_batch(1, keys) == oracle.run_batch(keys)


@pytest.mark.slow
def test_a_query_that_sleeps_and_wakes_up_again_and_again(tmp_path: Path) -> None:
    """Requests meet a query between two of its batches, and in them."""
    with MovingCluster(tmp_path) as cluster, Stream(cluster, pause_seconds=1.3) as stream:
        moves, strategies = [], [s for s in STRATEGIES if s not in ALWAYS_AS_ASKED]
        for number, strategy in enumerate(strategies):
            stream.batches(1)
            moves.append(cluster.rescale(2 + number % 2, strategy=strategy))
            assert moves[-1].wait(WAIT)
        assert {move.report().outcome for move in moves} == {"done"}
        assert any(move.report().counters.get("idle_rounds") for move in moves)
        stream.batches(1)


class Halted:
    """An idle move of large key groups that stands still in the second of its rounds."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(AT_ONCE, "SMALL_BYTES", 100)
        patch.setattr(AT_ONCE, "WAVE_BYTES", 3_000)
        self.rates: list[int | None] = []
        self.reached, self.go_on = threading.Event(), threading.Event()
        send = MoveRunner._send

        def halt(runner: MoveRunner, effect: protocol.SendOrder) -> None:
            if effect.order.kind is OrderKind.COPY:
                self.rates.append(runner.rate.now)
                if len(self.rates) == 2:
                    self.reached.set()
                    assert self.go_on.wait(WAIT)
            send(runner, effect)

        patch.setattr(MoveRunner, "_send", halt)
        self.cluster = SleepingCluster(folder)
        self.oracle, self.epoch = Oracle(), 0
        self.batch()

    def batch(self) -> None:
        keys = keys_of(self.epoch)
        assert self.cluster.run_batch(self.epoch, keys) == self.oracle.run_batch(keys)
        self.epoch += 1

    def halfway(self, **how: Any) -> MoveHandle:
        """The first round is there, the second is about to be copied."""
        move: MoveHandle = self.cluster.move(range(32), to="w2", **how)
        assert self.reached.wait(WAIT)
        return move


@pytest.fixture
def halted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    halted = Halted(tmp_path, monkeypatch)
    with halted.cluster:
        yield halted
        halted.go_on.set()


@pytest.mark.parametrize(("strategy", "own"), [("live", "waves"), ("megaphone", "steps")])
def test_a_query_that_wakes_up_in_the_middle(halted: Halted, strategy: str, own: str) -> None:
    """It gets what the strategy does for it; and copies go back to the rate of before."""
    move = halted.halfway(strategy=strategy)
    halted.batch()
    rate = halted.cluster.coordinator.moves.rate.now
    assert move.report().counters["idle_rounds"] == 1
    halted.go_on.set()
    while not move.is_done:
        assert halted.epoch < EPOCHS_MAX
        halted.batch()
    counters = move.report().counters
    assert counters[own] >= 1
    assert 0 < counters["idle_groups"] <= counters["flips"] == 16
    if strategy == "live":
        assert halted.rates[0] == MOST_BYTES_PER_SECOND
        assert rate == START_BYTES_PER_SECOND
    halted.batch()


def test_cancelled_and_retargeted_in_the_middle(halted: Halted) -> None:
    before = halted.cluster.coordinator.moves.plan()
    move = halted.halfway()
    assert halted.cluster.coordinator.moves.plan() != before
    back = move.cancel()
    halted.go_on.set()
    assert back.wait(WAIT)
    assert halted.cluster.coordinator.moves.plan() == before
    other = halted.cluster.rescale(4).retarget(3)
    assert other.wait(WAIT)
    assert len(halted.cluster.workers()) == 3
    halted.batch()


@pytest.mark.parametrize("worker", ["w1", "w2"])
def test_a_worker_that_dies_in_the_middle(halted: Halted, worker: str) -> None:
    move = halted.halfway()
    os.kill(halted.cluster.coordinator.pids()[WorkerId(worker)], signal.SIGKILL)
    halted.go_on.set()
    assert move.wait(WAIT)
    assert move.report().outcome == "done"
    assert set(halted.cluster.coordinator.moves.plan().owners) == {"w2"}
    halted.batch()
