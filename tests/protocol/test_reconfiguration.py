"""Each strategy against a scripted fleet: its orders in sequence; overlap, failures, ends."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.model.host import DRIVER
from anabranch.model.ids import Epoch, HostId, Lane, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.protocol.coordinator import (
    BatchesIdle,
    BatchesStuck,
    CoordinatorMachine,
    Effect,
    Event,
    GrantLane,
    HostJoined,
    LaneBegan,
    LaneFinished,
    ManifestWritten,
    MoveEnded,
    MoveRequested,
    OperatorRegistered,
    OrderDone,
    OrderFailed,
    SendOrder,
    StartWorker,
    StopWorker,
    WorkerDown,
    WorkerStarted,
)
from anabranch.protocol.epochs import LaneReport, TransactionReport
from anabranch.protocol.invariants import check_coordinator, check_first_grant, check_grant
from anabranch.protocol.move_orders import OrderKind
from anabranch.protocol.move_parts import MovePhase

OP = "counts"
W1, W2, W3 = WorkerId("w1"), WorkerId("w2"), WorkerId("w3")
HERE = HostJoined(DRIVER, None, {})
BEFORE = (W1, W2, W1, W2)
AFTER = (W1, W2, W3, W2)
"""Key group 2 moves from w1 to w3."""


class Fleet:
    """Two workers that are up; orders are answered at once unless they are held back."""

    def __init__(self, *hosts: HostJoined) -> None:
        start = initial_routing(4, [W1, W2])
        self.machine, effects = CoordinatorMachine.create(start, hosts or [HERE])
        self.log: list[str] = []
        self.held: set[str] = set()
        """Orders ("grant w3") that are not answered, and workers that do not start."""
        self.waiting: list[SendOrder] = []
        self.starting: list[StartWorker] = []
        self.ended: list[tuple[int, str]] = []
        self.phases: dict[int, Mapping[str, int]] = {}
        self.grants: list[GrantLane] = []
        self.counters: dict[str, int] = {}
        self.numbers = itertools.count(1)
        self(OperatorRegistered(OP))
        self.perform(effects)

    def __call__(self, event: Event) -> Fleet:
        effects = self.machine.handle(event)
        check_coordinator(self.machine)
        self.perform(effects)
        return self

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, GrantLane):
                check_grant(self.machine, effect)
                self.grants.append(effect)
            elif isinstance(effect, MoveEnded):
                self.ended.append((effect.number, effect.reason))
                self.phases[effect.number] = effect.phases
                self.log.append(f"end {effect.number}")
        for effect in effects:
            if isinstance(effect, StartWorker):
                self.start(effect)
            elif isinstance(effect, StopWorker):
                self.log.append(f"stop {effect.worker}")
            elif isinstance(effect, SendOrder):
                self.order(effect)

    def start(self, effect: StartWorker) -> None:
        self.log.append(f"start {effect.worker}")
        if f"start {effect.worker}" in self.held:
            self.starting.append(effect)
        else:
            self(WorkerStarted(effect.worker, effect.incarnation))

    def order(self, effect: SendOrder) -> None:
        name = f"{effect.order.kind.value} {effect.worker}"
        if effect.order.is_first_grant:
            check_first_grant(self.machine, effect)
            name = f"first {name}"
        else:
            self.log.append(name)
        if name in self.held:
            self.waiting.append(effect)
        else:
            counters = self.counters if effect.order.kind is OrderKind.LAG else {}
            self(OrderDone(effect.number, counters))

    def answer(self) -> None:
        waiting, self.waiting, self.held = self.waiting, [], set()
        for effect in waiting:
            self(OrderDone(effect.number))

    def request(
        self,
        strategy: str,
        owners: tuple[WorkerId, ...] = AFTER,
        workers: tuple[WorkerId, ...] = (W1, W2, W3),
        drained_hosts: frozenset[HostId] = frozenset(),
        **options: Any,
    ) -> Fleet:
        self.log.clear()
        number = next(self.numbers)
        event = MoveRequested(
            number, owners, workers, strategy, options, drained_hosts=drained_hosts
        )
        return self(event)

    def idle(self, times: int = 30) -> Fleet:
        for _ in range(times):
            self(BatchesIdle())
        return self

    @property
    def is_over(self) -> bool:
        return self.machine.moves.current is None

    def down(self, worker: WorkerId) -> None:
        self(WorkerDown(worker, self.machine.workers[worker].incarnation))


FLIP = "grant w3, release w1"


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("order-unaware", f"{FLIP}, import w3, end 1, clean w1"),
        ("pause", f"{FLIP}, import w3, end 1, clean w1"),
        ("megaphone", f"{FLIP}, import w3, end 1, clean w1"),
        ("lazy", f"connect w3, {FLIP}, import w3, clean w1, end 1, clean w1"),
        ("meces", f"connect w3, {FLIP}, import w3, clean w1, end 1, clean w1"),
        ("drrs", f"{FLIP}, import w3, end 1, clean w1"),
        ("rhino", f"copy w3, catch-up w3, {FLIP}, import w3, end 1, clean w1"),
        ("replicate", f"copy w3, catch-up w3, lag w3, {FLIP}, import w3, end 1, clean w1"),
        (
            "live",
            f"copy w3, catch-up w3, catch-up w3, {FLIP}, import w3, clean w1, end 1, clean w1",
        ),
        (
            "stop-restart",
            "save w1, save w2, stop w1, stop w2, stop w3, start w1, start w2, start w3, "
            "load w1, load w2, load w3, end 1, clean w1",
        ),
    ],
)
def test_orders_of_a_strategy(strategy: str, expected: str) -> None:
    fleet = Fleet().request(strategy)
    for epoch in range(5):
        if not fleet.is_over:
            commit(fleet, OP, epoch)
    assert ", ".join(fleet.log) == f"start w3, {expected}"
    assert fleet.is_over
    assert fleet.ended == [(1, "")]
    assert fleet.machine.routing.owners == AFTER
    assert fleet.machine.gate is None
    assert fleet.machine.shadows == {}


def test_versions_grow() -> None:
    fleet = Fleet()
    fleet.held = {"grant w3"}
    fleet.request("order-unaware")
    granted = fleet.waiting[0].order.version
    fleet.answer()
    assert fleet.machine.routing.version > granted > 1


def test_nothing_to_move() -> None:
    fleet = Fleet().request("live", BEFORE, (W1, W2))
    assert fleet.ended == [(1, "")]
    assert fleet.log == ["end 1"]


def test_workers_that_are_not_needed_are_stopped() -> None:
    fleet = Fleet().request("pause", (W1,) * 4, (W1,))
    assert fleet.log[-1] == "clean w2" or "stop w2" in fleet.log
    assert set(fleet.machine.workers) == {W1}


def test_shadows_until_the_flip() -> None:
    fleet = Fleet()
    fleet.counters = {"behind": 1}
    fleet.request("replicate")
    fleet(LaneBegan(1, OP, "q", Epoch(0), Lane(0), 1))
    assert fleet.grants[-1].shadows == {W3: (2,)}
    assert fleet.grants[-1].incarnations[W3] == 0
    fleet.counters = {}
    fleet.idle()
    assert fleet.machine.shadows == {}
    assert fleet.is_over


def test_gate_holds_batches_back() -> None:
    fleet = Fleet()
    fleet.held = {"import w3"}
    fleet.request("pause")
    fleet(LaneBegan(1, OP, "q", Epoch(0), Lane(0), 2))  # carries key group 2
    fleet(LaneBegan(2, OP, "q", Epoch(0), Lane(1), 2))
    assert [grant.request for grant in fleet.grants] == [2]
    fleet.answer()
    assert [grant.request for grant in fleet.grants] == [2, 1]


# --- batches that never end ---------------------------------------------------------------------


def in_the_middle_of_a_batch() -> Fleet:
    """One of two lanes has begun when everything is stopped; another query waits."""
    fleet = Fleet()
    fleet(OperatorRegistered("other"))
    fleet(LaneBegan(1, OP, "q", Epoch(0), Lane(0), 2))
    fleet.request("stop-restart")
    fleet(LaneBegan(2, "other", "p", Epoch(0), Lane(0), 1))
    assert fleet.idle().log == ["start w3"], "a batch runs"
    assert [grant.request for grant in fleet.grants] == [1]
    return fleet


def test_a_query_that_has_ended_is_not_waited_for() -> None:
    fleet = in_the_middle_of_a_batch()
    fleet(BatchesIdle((OP, "unknown")))
    assert fleet.ended == [(1, "")]
    assert fleet.grants[-1].request == 2
    fleet(LaneBegan(3, OP, "q", Epoch(0), Lane(0), 2))  # it has started again
    fleet.request("stop-restart", BEFORE, (W1, W2)).idle()
    assert not fleet.is_over


def test_an_operator_that_is_defined_anew_is_not_waited_for() -> None:
    fleet = in_the_middle_of_a_batch()
    fleet(OperatorRegistered(OP))
    assert fleet.ended == [(1, "")]


def test_a_batch_that_does_not_go_on_ends_the_wait_of_all() -> None:
    fleet = in_the_middle_of_a_batch()
    fleet(BatchesStuck("It hangs."))
    assert fleet.ended == [(1, "It hangs.")]
    assert fleet.grants[-1].request == 2
    assert fleet.machine.routing.owners == BEFORE
    fleet(BatchesStuck("It hangs."))  # nobody waits


def test_a_move_that_holds_nobody_back_goes_on_without_the_batch() -> None:
    fleet = Fleet()
    fleet(LaneBegan(1, OP, "q", Epoch(0), Lane(0), 2))
    fleet.request("megaphone")
    assert not fleet.is_over
    fleet(BatchesStuck("It hangs."))
    assert fleet.ended == [(1, "")]


# --- queries with several operators -------------------------------------------------------------


def commit(fleet: Fleet, operator: str, epoch: int) -> None:
    """One lane's batch, from begin to manifest."""
    fleet(LaneBegan(next(fleet.numbers), operator, "q", Epoch(epoch), Lane(0), 1))
    report = LaneReport((TransactionReport(W1, (0, 1, 2, 3), None),))
    fleet(LaneFinished(next(fleet.numbers), operator, Epoch(epoch), Lane(0), 1, report))
    fleet(ManifestWritten(operator, Epoch(epoch)))


def test_owners_change_when_the_last_operator_of_a_query_has_committed() -> None:
    fleet = Fleet()
    fleet(OperatorRegistered("second"))
    for operator in (OP, "second"):
        commit(fleet, operator, 0)
    fleet(LaneBegan(next(fleet.numbers), OP, "q", Epoch(1), Lane(0), 1))
    fleet.request("live")
    commit(fleet, OP, 1)
    assert "grant w3" not in fleet.log, "the second operator's part of the batch is to come"
    commit(fleet, "second", 1)
    assert "grant w3" in fleet.log
    assert fleet.is_over


def test_an_operator_that_is_no_longer_part_of_the_query_is_not_waited_for_twice() -> None:
    fleet = Fleet()
    fleet(OperatorRegistered("gone"))
    for operator in (OP, "gone"):
        commit(fleet, operator, 0)
    fleet.request("live")
    commit(fleet, OP, 1)
    assert not fleet.is_over
    commit(fleet, OP, 2)
    assert fleet.is_over


def test_an_operator_that_is_stuck_in_an_old_batch_is_not_waited_for() -> None:
    fleet = Fleet()
    fleet(OperatorRegistered("stuck"))
    for operator in (OP, "stuck"):
        commit(fleet, operator, 0)
    fleet(LaneBegan(next(fleet.numbers), "stuck", "q", Epoch(1), Lane(0), 1))
    fleet.request("live")
    commit(fleet, OP, 1)
    assert not fleet.is_over
    commit(fleet, OP, 2)
    assert fleet.is_over


# --- overlap -----------------------------------------------------------------------------------


def test_a_request_takes_the_place_of_another() -> None:
    fleet = Fleet()
    fleet.held = {"copy w3"}
    fleet.request("live")
    fleet.held = set()
    fleet.request("order-unaware", (W1, W2, W1, W1), (W1, W2))
    assert fleet.ended == [(1, "Another request took its place."), (2, "")]
    assert fleet.phases == {1: {"planned": 1}, 2: {"settled": 1}}
    assert "clean w3" in fleet.log  # the replica of key group 2
    assert fleet.machine.routing.owners == (W1, W2, W1, W1)
    fleet(OrderDone(fleet.waiting[0].number))  # of a step that was given up
    assert set(fleet.machine.workers) == {W1, W2}


def test_replicas_that_the_next_one_needs_stay() -> None:
    fleet = Fleet().request("standby").idle(2)
    assert not fleet.is_over
    fleet.request("rhino")
    assert "clean w3" not in fleet.log
    assert fleet.idle().ended[-1] == (2, "")


def test_replicas_are_not_forgotten_when_the_next_one_never_starts() -> None:
    fleet = Fleet().request("standby").idle(2)
    w4 = WorkerId("w4")
    fleet.held = {"start w4"}
    fleet.request("rhino", AFTER, (W1, W2, W3, w4))  # waits for w4
    fleet.request("pause", BEFORE, (W1, W2, W3))
    assert fleet.ended[-2:] == [(2, "Another request took its place."), (3, "")]
    assert {"clean w1", "clean w3"} <= set(fleet.log)  # the delta and the replica


def test_a_request_that_waits_is_replaced_too() -> None:
    fleet = Fleet()
    fleet.held = {"grant w3"}
    fleet.request("order-unaware")
    fleet.request("live", BEFORE, (W1, W2))
    fleet.request("pause", BEFORE, (W1, W2))
    assert fleet.ended == [(2, "Another request took its place.")]
    fleet.answer()
    assert fleet.ended[1:] == [(1, "Another request took its place."), (3, "")]
    assert fleet.machine.routing.owners == BEFORE


def test_a_flip_under_way_is_finished_and_its_import_inherited() -> None:
    fleet = Fleet()
    fleet.held = {"grant w3"}
    fleet.request("order-unaware")
    fleet.request("pause", (W2, W2, W3, W2))  # key group 0 moves, 2 stays where it flips to
    fleet.answer()
    assert fleet.log.count("import w3") == 1  # what the first one had left
    assert fleet.log.count("import w2") == 1
    assert fleet.machine.routing.owners == (W2, W2, W3, W2)
    assert fleet.is_over


def test_there_and_back_and_there_again_while_state_is_on_its_way() -> None:
    """An import of the first way is not one of the third, whose owners have not changed yet."""
    fleet = Fleet()
    fleet.held = {"import w3", "import w1"}
    fleet.request("order-unaware")
    fleet.request("order-unaware", BEFORE)
    fleet.held.add("grant w3")
    fleet.request("order-unaware")
    first_way = [s for s in fleet.waiting if (s.order.kind, s.worker) == (OrderKind.IMPORT, W3)][-1]
    fleet(OrderDone(first_way.number))
    current = fleet.machine.moves.current
    assert current is not None
    assert current.phases == {2: MovePhase.PLANNED}
    fleet.answer()
    assert fleet.machine.routing.owners == AFTER
    assert fleet.ended[-1] == (3, "")


# --- failures ----------------------------------------------------------------------------------


def test_orders_that_fail_count_as_done() -> None:
    fleet = Fleet()
    fleet.held = {"copy w3"}
    fleet.request("rhino")
    fleet(OrderFailed(fleet.waiting[0].number, "gone"))
    assert fleet.idle().ended == [(1, "")]


def test_source_that_is_down() -> None:
    fleet = Fleet()
    fleet.held = {"start w1"}
    fleet.down(W1)
    fleet.request("order-unaware", (W1, W2, W2, W2), (W2, W1))
    assert not fleet.machine.moves.current.is_started  # type: ignore[union-attr]
    fleet(WorkerStarted(W1, 1))
    assert fleet.ended == [(1, "")]


def test_source_that_starts_after_it_has_lost_key_groups() -> None:
    fleet = Fleet()
    fleet.held = {"grant w3", "start w1"}
    fleet.request("order-unaware")
    fleet.down(W1)
    fleet(LaneBegan(7, OP, "q", Epoch(0), Lane(2), 4))  # waits for w1, the owner of key group 2
    assert fleet.grants == []
    fleet.answer()
    assert fleet.grants[-1].owners == {W3: (2,)}
    fleet.held = {"first grant w1"}
    fleet(WorkerStarted(W1, 1))
    assert "release w1" not in fleet.log
    assert fleet.waiting[0].order.groups == (0,)
    assert fleet.waiting[0].order.version == fleet.machine.routing.version


def test_source_that_is_told_what_it_owns_while_it_loses_key_groups() -> None:
    fleet = Fleet()
    fleet.held = {"grant w3", "first grant w1"}
    fleet.request("order-unaware")
    fleet.down(W1)
    grant, first = fleet.waiting
    assert first.order.groups == (0, 2)
    fleet(OrderDone(grant.number))  # w3 has answered
    assert fleet.machine.routing.owners == AFTER
    assert fleet.log.count("release w1") == 1
    assert fleet.machine.fleet.incarnation_up(W1) is None
    fleet(OrderDone(first.number))
    assert fleet.machine.fleet.incarnation_up(W1) == 1
    assert fleet.is_over


def test_target_dies_between_its_answer_and_the_change() -> None:
    fleet = Fleet()
    fleet.held = {"grant w2", "start w3"}
    fleet(WorkerStarted(W3, 0))
    fleet.held = {"grant w2"}
    fleet.request("order-unaware", (W2, W2, W3, W2))  # 0 to w2, 2 to w3
    assert fleet.log == ["start w3", "grant w2", "grant w3"]
    fleet.held.add("start w3")
    fleet.down(W3)  # it had answered
    fleet.held.discard("grant w2")
    fleet(OrderDone(fleet.waiting[0].number))
    assert fleet.machine.routing.owners == BEFORE  # its answer does not count any more
    fleet(WorkerStarted(W3, 1))
    assert fleet.log.count("grant w3") == 2
    assert fleet.machine.routing.owners == (W2, W2, W3, W2)
    assert fleet.is_over


def test_revoked_when_the_target_is_not_there() -> None:
    fleet = Fleet()
    fleet.held = {"grant w3"}
    fleet.request("order-unaware", (W2, W2, W3, W2))
    fleet.held = {"start w3"}
    fleet.down(W3)
    fleet(OrderFailed(fleet.waiting[0].number))  # w2 had answered; w3 is awaited
    assert fleet.machine.routing.owners == BEFORE
    fleet.held = {"release w2", "start w3"}
    fleet.waiting.clear()
    fleet.request("pause", BEFORE, (W1, W2))
    assert fleet.log == ["release w2"]  # w2 learns that nothing has changed
    assert fleet.waiting[0].order.peer == W1
    assert not fleet.is_over  # a clean-up must not overtake it
    fleet.answer()
    assert fleet.ended == [(1, "Another request took its place."), (2, "")]


def test_a_target_whose_answer_was_lost_learns_that_nothing_changed() -> None:
    fleet = Fleet()
    fleet.held = {"grant w2", "grant w3"}
    fleet.request("order-unaware", (W2, W2, W3, W2))
    lost, died = fleet.waiting
    fleet.held = {"start w3", "grant w2"}
    fleet.down(W3)
    fleet.request("pause", BEFORE, (W1, W2))
    fleet(OrderFailed(died.number))
    assert fleet.log == []
    fleet(OrderFailed(lost.number))  # w2 has carried it out, or not: nobody knows
    assert fleet.log[0] == "release w2"
    assert fleet.ended == [(1, "Another request took its place."), (2, "")]


def test_what_was_ended_does_not_begin_any_more() -> None:
    fleet = Fleet()
    fleet.held = {"start w3"}
    fleet.request("live")
    run = fleet.machine.moves.current
    assert run is not None
    fleet.request("pause", BEFORE, (W1, W2))
    assert run.is_ended
    assert not run.is_started
    (start,) = fleet.starting
    fleet(WorkerStarted(start.worker, start.incarnation))
    assert run.poll() == run.epoch_passed() == []
    assert not run.is_started


def test_what_happens_while_nothing_moves_is_in_no_report() -> None:
    fleet = Fleet()
    fleet.machine.moves.count("begins_held")
    fleet.held = {"import w3"}
    fleet.request("pause")
    assert fleet.machine.moves.current is not None
    assert fleet.machine.moves.current.counters["begins_held"] == 0
    fleet.machine.moves.count("begins_held")
    assert fleet.machine.moves.current.counters["begins_held"] == 1


def test_target_cannot_be_started() -> None:
    fleet = Fleet()
    fleet.held = {"start w3"}
    fleet.request("live")
    for _ in range(3):
        fleet.down(W3)
    assert fleet.ended == [(1, "Worker w3 could not be started.")]
    assert fleet.machine.routing.owners == BEFORE


def test_restart_ends_when_a_worker_is_given_up() -> None:
    fleet = Fleet()
    fleet.held = {"save w1"}
    fleet.request("stop-restart")
    fleet.held = {"start w2"}
    waiting, fleet.waiting = fleet.waiting, []
    fleet(OrderDone(waiting[0].number))
    for _ in range(3):
        fleet.down(W2)
    assert fleet.ended == [(1, "Worker w2 could not be started.")]
    assert fleet.machine.gate is None


def test_a_restart_that_gives_way_ends_when_a_worker_is_given_up() -> None:
    fleet = Fleet()
    fleet.held = {"save w1"}
    fleet.request("stop-restart")
    fleet.held = {"start w2"}
    fleet(OrderDone(fleet.waiting.pop().number))
    fleet.request("pause", BEFORE, (W1, W2))
    assert not fleet.ended, "workers are being started again"
    for _ in range(3):
        fleet.down(W2)
    assert fleet.ended == [(1, "Another request took its place.")]
    # The next one tries to start it again.
    start = fleet.starting[-1]
    fleet(WorkerStarted(start.worker, start.incarnation)).idle()
    assert fleet.ended[1:] == [(2, "")]
    assert fleet.machine.gate is None
