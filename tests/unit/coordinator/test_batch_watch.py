"""Which batches a move waits for."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from tests.integration.counting import Counting
from tests.protocol.starting import bring_up

from anabranch.coordinator import batch_watch as batches
from anabranch.coordinator import steady_clock
from anabranch.coordinator.batch_watch import BatchWatch, Observed
from anabranch.coordinator.operator_record import OperatorRecord
from anabranch.model.ids import Epoch, Lane, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.protocol.coordinator import (
    CoordinatorMachine,
    LaneBegan,
    MoveRequested,
    OperatorRegistered,
)

W1, W2 = WorkerId("w1"), WorkerId("w2")
IDLE = Observed(True, (), "")
RUNNING = Observed(False, (), "")


class Watched:
    """A coordinator of two operators, and what it knows of their batches."""

    def __init__(self) -> None:
        self.machine, _ = CoordinatorMachine.create(initial_routing(4, [W1, W2]))
        self.operators = {}
        self.is_running: bool | None = True
        for worker in (W1, W2):
            bring_up(self.machine.handle, worker)
        for name in ("a", "b"):
            self.machine.handle(OperatorRegistered(name))
            self.operators[name] = OperatorRecord(name, Counting(), cast(Any, None), [], 1)
        self.batches = BatchWatch(
            self.machine, threading.RLock(), self.operators, lambda *_: self.is_running
        )

    def begin(self, operator: str, lane: int, epoch: int = 0) -> None:
        event = LaneBegan(lane, operator, f"query-{operator}", Epoch(epoch), Lane(lane), 2)
        effects = self.machine.handle(event)
        if effects:
            self.operators[operator].note_begin(epoch, lane, steady_clock.now())

    def observe(self, since: float = 0.0) -> Observed:
        return self.batches.observe(since)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that have passed since."""
    now, passed = steady_clock.now, [0.0]
    monkeypatch.setattr(steady_clock, "now", lambda: now() + passed[0])
    return passed


def test_a_batch_that_has_begun_runs() -> None:
    watched = Watched()
    assert watched.observe() == IDLE
    watched.begin("a", 0)
    assert watched.observe() == RUNNING


def test_a_query_that_has_ended_in_a_batch() -> None:
    watched = Watched()
    watched.begin("a", 0)
    watched.is_running = False
    assert watched.observe() == Observed(True, ("a",), "")


def test_nobody_knows_whether_the_query_runs(later: list[float]) -> None:
    watched = Watched()
    watched.is_running = None
    watched.begin("a", 0)
    assert watched.observe() == RUNNING
    later[0] = batches.GIVEN_UP_SECONDS
    assert watched.observe() == Observed(True, ("a",), "")


def test_a_batch_without_a_sign_of_life(later: list[float]) -> None:
    watched = Watched()
    watched.begin("a", 0)
    later[0] = batches.STUCK_SECONDS - 1
    assert watched.observe() == RUNNING
    later[0] += 2
    seen = watched.observe()
    assert not seen.is_idle
    assert "operator 'a'" in seen.stuck
    assert watched.observe(since=steady_clock.now()) == RUNNING, "nobody has waited yet"
    watched.operators["a"].note_finish(0, {})
    assert watched.observe() == RUNNING


def test_batches_that_always_take_long_are_not_stuck(later: list[float]) -> None:
    watched = Watched()
    usual = batches.STUCK_SECONDS
    watched.operators["a"].note_begin(0, 0, steady_clock.now() - usual)
    watched.operators["a"].note_commit(0)
    watched.machine.operators["a"].committed = Epoch(0)
    watched.begin("a", 0, epoch=1)
    later[0] = 2 * usual
    assert watched.observe() == RUNNING
    later[0] = 4 * usual
    assert watched.observe().stuck


def test_a_batch_that_the_move_itself_holds_back_does_not_run() -> None:
    watched = Watched()
    owners = (W1, W2, W2, W2)  # key group 2 moves; it belongs to lane 0
    request = MoveRequested(1, owners, (W1, W2), "pause")
    watched.machine.handle(request)
    watched.begin("a", 1)
    assert watched.observe() == RUNNING
    watched.begin("a", 0)
    assert watched.observe() == IDLE
    watched.begin("b", 1)
    assert watched.observe() == RUNNING


def test_how_long_one_waits_for_a_batch(later: list[float]) -> None:
    watched = Watched()
    assert watched.batches.usual_wait(1.0) == 1.0
    known = watched.operators["a"]
    for epoch in range(4):  # a second of work every five
        known.note_begin(epoch, 0, steady_clock.now() - 1)
        known.note_commit(epoch)
        later[0] += 5
    assert watched.batches.usual_wait(1.0) == pytest.approx(2.0, abs=0.1)
    assert watched.batches.usual_wait(60.0) == pytest.approx(5.0, abs=0.1)
    assert watched.batches.is_busy()
    later[0] += batches.LATELY_SECONDS
    assert watched.batches.usual_wait(1.0) == 1.0
    assert not watched.batches.is_busy()


def test_a_query_without_a_sign_of_life_is_silent(later: list[float]) -> None:
    watched = Watched()
    assert watched.batches.is_silent(1.0), "no batch ever ran"
    watched.begin("a", 0)
    assert not watched.batches.is_silent(1.0)
    watched.is_running = None
    assert not watched.batches.is_silent(1.0), "nobody knows whether it goes on"
    watched.is_running = False
    assert watched.batches.is_silent(1.0), "nothing will come of it"
    watched.is_running = True
    later[0] = 2.0
    assert watched.batches.is_silent(1.0)
    watched.operators["b"].note_begin(0, 0, steady_clock.now())  # which query it is, is not known
    watched.is_running = False
    assert not watched.batches.is_silent(1.0)
