"""Workers that come and go, and the gate in front of batches."""

from __future__ import annotations

import itertools

from anabranch.model.host import DRIVER
from anabranch.model.ids import Epoch, Lane, WorkerId
from anabranch.protocol.coordinator import LaneBegan, OperatorView
from anabranch.protocol.coordinator_messages import (
    StartWorker,
    StopWorker,
    WorkerDown,
    WorkerStarted,
)
from anabranch.protocol.epochs import EpochProgress
from anabranch.protocol.fleet import STARTS_MAX, Fleet, WorkerPhase
from anabranch.protocol.gate import Gate
from anabranch.protocol.placement import HostView

NUMBERS = itertools.count(1)
W1, W2, W3 = WorkerId("w1"), WorkerId("w2"), WorkerId("w3")


def fleet(*up: WorkerId) -> Fleet:
    found = Fleet(hosts={DRIVER: HostView()})
    assert found.start(up) == [StartWorker(worker, 0, DRIVER) for worker in up]
    for worker in up:
        assert bring_up(found, worker)
    return found


def bring_up(found: Fleet, worker: WorkerId, incarnation: int = 0) -> bool:
    """A process starts and answers its first grant; False: it was replaced or given up."""
    number = next(NUMBERS)
    if not found.started(WorkerStarted(worker, incarnation), number):
        return False
    assert found.granted_by(number) == worker
    assert found.incarnation_up(worker) is None
    assert found.incarnation_told(worker) == incarnation
    found.up(worker)
    assert found.granted_by(number) is None
    assert found.incarnation_told(worker) == incarnation
    return found.incarnation_up(worker) == incarnation


def give_up(found: Fleet, worker: WorkerId) -> None:
    while not found.is_given_up(worker):
        found.down(WorkerDown(worker, found.workers[worker].incarnation))


def test_start_only_what_is_not_there() -> None:
    found = fleet(W1)
    assert found.start([W1, W2]) == [StartWorker(W2, 0, DRIVER)]
    assert found.incarnation_up(W1) == 0
    assert found.incarnation_up(W2) is None
    assert found.incarnation_up(W3) is None
    assert not found.is_given_up(W3)


def test_replacement_has_the_next_number() -> None:
    found = fleet(W1)
    assert found.down(WorkerDown(W1, 0)) == [StartWorker(W1, 1, DRIVER)]
    assert found.down(WorkerDown(W1, 0)) == []  # said twice
    assert not bring_up(found, W1, 0)
    assert bring_up(found, W1, 1)
    assert found.workers[W1].failed_starts == 0


def test_given_up_and_another_chance() -> None:
    found = fleet(W1)
    give_up(found, W1)
    assert found.workers[W1].incarnation == STARTS_MAX
    assert not bring_up(found, W1, STARTS_MAX)
    assert found.start([W1]) == [StartWorker(W1, STARTS_MAX + 1, DRIVER)]
    assert not found.is_given_up(W1)


def test_a_name_that_comes_back_is_another_process() -> None:
    found = fleet(W1, W2)
    assert found.stop(W2) == [StopWorker(W2, 0)]
    assert not bring_up(found, W2, 0)
    assert found.down(WorkerDown(W2, 0)) == []
    assert found.start([W2]) == [StartWorker(W2, 1, DRIVER)]
    give_up(found, W2)
    assert found.stop(W2) == []  # nothing runs


def test_restart() -> None:
    found = fleet(W1, W2, W3)
    give_up(found, W3)
    assert found.restart([W1, W3]) == [
        StopWorker(W1, 0),
        StopWorker(W2, 0),
        StartWorker(W1, 1, DRIVER),
        StartWorker(W3, STARTS_MAX + 1, DRIVER),
    ]
    assert set(found.workers) == {W1, W3}
    assert {view.phase for view in found.workers.values()} == {WorkerPhase.STARTING}


def begin(epoch: int, lane: int = 0, lanes: int = 2, operator: str = "counts") -> LaneBegan:
    return LaneBegan(1, operator, "q", Epoch(epoch), Lane(lane), lanes)


def test_gate_lets_pass_what_has_begun() -> None:
    view = OperatorView("q", Epoch(3), None)
    gate = Gate.close(None, {"counts": view})
    assert not gate.holds(begin(3), 4)
    assert gate.holds(begin(4), 4)
    assert gate.holds(begin(0, operator="other"), 4)  # it came after the gate was closed
    view.current = EpochProgress(Epoch(4), 2)
    gate = Gate.close(None, {"counts": view})
    assert not gate.holds(begin(4), 4)
    assert gate.holds(begin(5), 4)


def test_gate_for_some_key_groups() -> None:
    gate = Gate.close(frozenset({1, 3}), {"counts": OperatorView("q", None, None)})
    assert not gate.holds(begin(0, lane=0), 4)
    assert gate.holds(begin(0, lane=1), 4)
    assert gate.holds(begin(0, lane=0, lanes=1), 4)
