"""Moves while no batch runs: at once, whatever the strategy; a batch that begins gets the rest."""

from __future__ import annotations

import pytest
from tests.protocol.test_reconfiguration import AFTER, BEFORE, OP, W1, W2, W3, Fleet, commit

from anabranch.migration.strategies import ALWAYS_AS_ASKED, STANDBY, STRATEGIES
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.protocol.coordinator import (
    BatchesIdle,
    LaneBegan,
    LaneFinished,
    MoveRequested,
    OperatorRegistered,
    OrderDone,
    OrderFailed,
    WorkerStarted,
)
from anabranch.protocol.epochs import LaneReport, TransactionReport
from anabranch.protocol.move_run import MoveRun

TO_W3 = (W3, W3, W3, W2)
"""Key groups 0 and 2 of w1 and 1 of w2 move to w3."""
LARGE = BatchesIdle((), {KeyGroup(group): 40 << 20 for group in range(4)})
"""Each key group is a round, and is copied ahead."""
AT_ONCE = [name for name in STRATEGIES if name not in ALWAYS_AS_ASKED]
WORKERS = (W1, W2, W3)


def ask(fleet: Fleet, strategy: str, idle: BatchesIdle | None, **options: object) -> Fleet:
    fleet.log.clear()
    number = next(fleet.numbers)
    return fleet(MoveRequested(number, TO_W3, WORKERS, strategy, options, idle))


def begin(fleet: Fleet, epoch: int = 0, lane: int = 0, lanes: int = 1) -> None:
    fleet(LaneBegan(next(fleet.numbers), OP, "q", Epoch(epoch), Lane(lane), lanes))


def running(fleet: Fleet) -> MoveRun:
    run = fleet.machine.moves.current
    assert run is not None
    return run


def held_back(fleet: Fleet) -> frozenset[int] | None:
    gate = fleet.machine.gate
    return None if gate is None else gate.groups


def test_only_two_do_more_than_change_owners() -> None:
    assert set(ALWAYS_AS_ASKED) == {"stop-restart", STANDBY}


@pytest.mark.parametrize("strategy", AT_ONCE)
def test_one_round_without_a_wait(strategy: str) -> None:
    fleet = Fleet()
    fleet.held = {"import w3"}
    ask(fleet, strategy, BatchesIdle())
    first = ["start w3", "grant w3", "grant w3", "release w1", "release w2"]
    assert fleet.log == [*first, "import w3", "import w3"]
    assert running(fleet).counters["idle_rounds"] == 1
    assert running(fleet).counters["idle_groups"] == 3
    fleet.answer()
    assert fleet.is_over
    assert fleet.machine.routing.owners == TO_W3
    assert fleet.machine.gate is None


def test_stop_restart_makes_new_processes_all_the_same() -> None:
    fleet = ask(Fleet(), "stop-restart", BatchesIdle())
    assert {"save w1", "stop w1", "start w1", "load w3"} <= set(fleet.log)
    assert fleet.is_over


def test_replicas_are_kept_all_the_same() -> None:
    fleet = ask(Fleet(), STANDBY, BatchesIdle())
    assert fleet.log.count("copy w3") == 2
    fleet.idle(2)
    assert "grant w3" not in fleet.log
    assert not fleet.is_over


@pytest.mark.parametrize("strategy", ["live", "megaphone", "rhino", "replicate", "meces", "drrs"])
def test_a_query_that_falls_asleep_is_not_waited_for_again(strategy: str) -> None:
    """One word that nothing runs is enough for all that is left."""
    options = {"megaphone": {"batch": 1}, "live": {"wave": 1}, "meces": {"batch": 1}}
    options["drrs"] = {"subscale": 1, "concurrency": 1}
    fleet = ask(Fleet(), strategy, None, **options.get(strategy, {}))
    assert "grant w3" not in fleet.log
    fleet(BatchesIdle())
    assert fleet.is_over
    assert fleet.log.count("grant w3") == 2, "one for each source"
    assert fleet.machine.shadows == {}


def test_a_part_that_is_on_its_way_ends_first() -> None:
    """Of subscales that run together, one imports when the query falls asleep."""
    fleet = Fleet()
    commit(fleet, OP, 0)
    fleet.held = {"import w3"}
    ask(fleet, "drrs", None, subscale=1, concurrency=2)
    commit(fleet, OP, 1)
    assert fleet.log.count("grant w3") == 1
    fleet.held = {"grant w3"}
    fleet(BatchesIdle())
    assert fleet.log.count("grant w3") == 2, "the next subscale, as ever"
    imported, granted = fleet.waiting
    fleet.held, fleet.waiting = set(), []
    fleet(OrderDone(imported.number))
    fleet(OrderDone(granted.number))
    assert fleet.is_over
    assert fleet.machine.routing.owners == TO_W3


def test_what_has_not_flipped_is_left_to_the_strategy() -> None:
    """A batch begins in the second of three rounds, while it is copied."""
    fleet = Fleet()
    fleet.held = {"copy w3"}
    ask(fleet, "megaphone", LARGE, plan="fluid")
    fleet(OrderDone(fleet.waiting.pop().number))
    assert fleet.machine.routing.owners == (W3, W2, W1, W2)
    begin(fleet)
    fleet(OrderDone(fleet.waiting.pop().number))
    assert fleet.log.count("grant w3") == 1, "megaphone waits for the batch"
    assert running(fleet).counters["idle_rounds"] == 1
    for epoch, steps in ((0, 1), (1, 2)):
        assert not fleet.is_over
        assert running(fleet).counters["steps"] == steps - 1
        commit(fleet, OP, epoch)
    assert fleet.is_over
    assert fleet.log.count("copy w3") == 2
    assert fleet.machine.routing.owners == TO_W3


def test_a_round_that_has_flipped_is_the_last_one() -> None:
    fleet = Fleet()
    fleet.held = {"import w3"}
    ask(fleet, "pause", LARGE)
    assert fleet.log.count("grant w3") == 1
    assert held_back(fleet) is None, "nobody is"
    begin(fleet, lane=1, lanes=2)
    imported, fleet.waiting = fleet.waiting, []
    fleet(OrderDone(imported[0].number))
    assert imported[0].order.groups == (0,)
    assert held_back(fleet) == frozenset((1, 2)), "from now on the query has what it asked for"
    fleet.answer()
    assert fleet.is_over
    assert fleet.machine.routing.owners == TO_W3


def test_a_batch_that_begins_before_the_workers_are_up() -> None:
    fleet = Fleet()
    fleet.held = {"start w3"}
    ask(fleet, "live", BatchesIdle())
    begin(fleet)
    (start,) = fleet.starting
    fleet.held = {"copy w3"}
    fleet(WorkerStarted(start.worker, start.incarnation))
    assert running(fleet).counters["waves"] == 1
    assert running(fleet).counters["idle_rounds"] == 0


def test_it_is_not_believed_while_a_batch_runs() -> None:
    """What was seen before the batch began comes late."""
    fleet = Fleet()
    begin(fleet)
    ask(fleet, "live", BatchesIdle())
    assert fleet.machine.idle is None
    assert running(fleet).counters["waves"] == 1


def test_a_task_of_a_query_that_counted_as_ended() -> None:
    fleet = Fleet()
    for lane in (0, 1):
        begin(fleet, lane=lane, lanes=2)
    fleet(BatchesIdle((OP,)))
    assert fleet.machine.idle is not None
    report = LaneReport((TransactionReport(W1, (0, 2), None),))
    fleet(LaneFinished(next(fleet.numbers), OP, Epoch(0), Lane(0), 2, report))
    assert fleet.machine.idle is None


def test_sizes_are_remembered_until_a_batch_begins() -> None:
    fleet = Fleet()(LARGE)(BatchesIdle())
    assert fleet.machine.idle == LARGE.bytes_of
    begin(fleet)
    assert fleet.machine.idle is None


def test_a_copy_that_fails_is_not_asked_for_again() -> None:
    fleet = Fleet()
    fleet.held = {"copy w3"}
    ask(fleet, "live", LARGE)
    while fleet.waiting:
        fleet(OrderFailed(fleet.waiting.pop().number, "gone"))
    assert fleet.is_over
    assert fleet.log.count("copy w3") == 3
    assert fleet.machine.routing.owners == TO_W3


def test_a_target_that_dies_in_a_round() -> None:
    fleet = Fleet()
    fleet.held = {"grant w3"}
    ask(fleet, "megaphone", BatchesIdle())
    fleet.held = {"start w3"}
    waiting, fleet.waiting = fleet.waiting, []
    fleet.down(W3)
    for sent in waiting:
        fleet(OrderFailed(sent.number, "gone"))
    assert fleet.machine.routing.owners == BEFORE
    fleet.held = set()
    start = fleet.starting[-1]
    fleet(WorkerStarted(start.worker, start.incarnation))
    assert fleet.is_over
    assert fleet.machine.routing.owners == TO_W3
    assert fleet.log.count("grant w3") == 4


def test_another_request_in_the_middle_of_a_round() -> None:
    fleet = Fleet()
    fleet.held = {"copy w3"}
    ask(fleet, "live", LARGE)
    fleet.held = set()
    fleet(MoveRequested(next(fleet.numbers), BEFORE, (W1, W2), "live", {}, LARGE))
    assert fleet.ended == [(1, "Another request took its place."), (2, "")]
    assert fleet.machine.routing.owners == BEFORE
    assert "clean w3" in fleet.log
    assert set(fleet.machine.workers) == {W1, W2}


def test_what_cannot_be_inherited_does_not_end_the_move() -> None:
    """Both ends of an earlier move are gone: there is nothing to bring, but more to move."""
    w4 = WorkerId("w4")
    fleet = Fleet().request("pause", AFTER)
    fleet.held = {"import w4"}
    fleet.request("order-unaware", (W1, W2, w4, W2), (W1, W2, W3, w4))
    fleet.held |= {"start w3", "start w4"}
    fleet.down(W3)
    fleet.down(w4)
    fleet.request("megaphone", BEFORE, (W1, W2))
    assert not fleet.is_over
    fleet(OperatorRegistered(OP))  # anew: nobody waits for its batch
    assert fleet.machine.routing.owners == BEFORE
    assert fleet.ended[-1] == (3, "")
