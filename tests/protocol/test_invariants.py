"""Every invariant breaks on a machine that was bent on purpose, and on no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.protocol.starting import bring_up

from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.protocol import invariants
from anabranch.protocol.coordinator import (
    CoordinatorMachine,
    GrantLane,
    LaneBegan,
    LaneFinished,
    OperatorRegistered,
    SendOrder,
    WorkerPhase,
    WriteManifest,
)
from anabranch.protocol.epochs import EpochPhase, LaneReport, TransactionReport
from anabranch.protocol.gate import Gate
from anabranch.protocol.invariants import InvariantBroken
from anabranch.protocol.move_orders import OrderKind, WorkerOrder
from anabranch.protocol.worker import (
    GroupsGranted,
    HeldGroup,
    OperatorInstalled,
    RowsComplete,
    TransactionOpened,
    TxPhase,
    WorkerMachine,
)

OP = "counts"
W1, W2 = WorkerId("w1"), WorkerId("w2")
ALL = (KeyGroup(0), KeyGroup(1))


def worker() -> WorkerMachine:
    """Transaction 1 loads, transaction 2 waits for it."""
    machine = WorkerMachine()
    machine.handle(GroupsGranted(ALL, 1))
    machine.handle(OperatorInstalled(OP))
    for tx in (1, 2):
        machine.handle(TransactionOpened(tx, OP, Epoch(1), Epoch(0), Lane(0), 1, tx, ALL, 1))
        machine.handle(RowsComplete(tx))
    invariants.check_worker(machine)
    return machine


def coordinator() -> CoordinatorMachine:
    """w1 is up, w2 is not; lane 1 of batch 0 is parked."""
    machine, _ = CoordinatorMachine.create(initial_routing(2, [W1, W2]))
    machine.handle(OperatorRegistered(OP))
    bring_up(machine.handle, W1)
    for lane in (0, 1):
        machine.handle(LaneBegan(lane, OP, "q", Epoch(0), Lane(lane), 2))
    invariants.check_coordinator(machine)
    return machine


def overlap(machine: WorkerMachine) -> None:
    machine.transactions[2].phase = TxPhase.LOADING


def stale_cache(machine: WorkerMachine) -> None:
    machine.held[OP][KeyGroup(0)] = HeldGroup(Epoch(0), outputs_of=Epoch(1))


def other_base(machine: WorkerMachine) -> None:
    machine.transactions[1].loading = ()
    machine.held[OP][KeyGroup(0)] = HeldGroup(Epoch(7))


def applied_already(machine: WorkerMachine) -> None:
    machine.transactions[1].loading = (KeyGroup(1),)
    machine.held[OP][KeyGroup(0)] = HeldGroup(Epoch(0), outputs_of=Epoch(0))


def nothing_loaded(machine: WorkerMachine) -> None:
    machine.transactions[1].phase, machine.transactions[1].loading = TxPhase.APPLYING, ()


def part_without_source(machine: WorkerMachine) -> None:
    machine.arrivals.add(OP, KeyGroup(1), W2, 1)
    machine.held[OP][KeyGroup(0)] = HeldGroup(Epoch(0), is_partial=True)


def base_too_new(machine: WorkerMachine) -> None:
    machine.transactions[2].opened = TransactionOpened(
        2, OP, Epoch(1), Epoch(1), Lane(0), 1, 2, ALL, 1
    )


def not_owned(machine: WorkerMachine) -> None:
    del machine.granted[KeyGroup(0)]


def no_reason_to_wait(machine: WorkerMachine) -> None:
    del machine.transactions[1]


@pytest.mark.parametrize(
    ("bend", "broken"),
    [
        (overlap, "one_writer"),
        (stale_cache, "cache_is_current"),
        (other_base, "applies_on_base"),
        (applied_already, "applies_on_base"),
        (nothing_loaded, "applies_on_base"),
        (base_too_new, "base_before_epoch"),
        (part_without_source, "partial_has_source"),
        (not_owned, "busy_is_owned"),
        (no_reason_to_wait, "waiting_has_reason"),
    ],
)
def test_worker_invariants(bend: Callable[[WorkerMachine], None], broken: str) -> None:
    machine = worker()
    bend(machine)
    with pytest.raises(InvariantBroken, match=broken):
        invariants.check_worker(machine)


def forgotten_base(machine: CoordinatorMachine) -> None:
    machine.operators[OP].committed = Epoch(4)


def early_commit(machine: CoordinatorMachine) -> None:
    machine.operators[OP].executions[2].phase = EpochPhase.COMMITTED


def nobody_writes(machine: CoordinatorMachine) -> None:
    report = LaneReport(())
    machine.operators[OP].waiting_commit.append(LaneFinished(9, OP, Epoch(0), Lane(0), 2, report))


def parked_for_nothing(machine: CoordinatorMachine) -> None:
    machine.workers[W2].phase = WorkerPhase.UP


def never_given_up(machine: CoordinatorMachine) -> None:
    machine.workers[W2].failed_starts = 3


def unknown_owner(machine: CoordinatorMachine) -> None:
    machine.parked.clear()
    del machine.workers[W2]


def gate_for_nothing(machine: CoordinatorMachine) -> None:
    machine.gate = Gate(None, {})


def asleep_in_a_batch(machine: CoordinatorMachine) -> None:
    machine.idle = {}


@pytest.mark.parametrize(
    ("bend", "broken"),
    [
        (asleep_in_a_batch, "idle_is_quiet"),
        (unknown_owner, "owners_are_known"),
        (gate_for_nothing, "gate_has_reason"),
        (forgotten_base, "base_chain"),
        (early_commit, "commit_is_complete"),
        (nobody_writes, "waiters_are_served"),
        (parked_for_nothing, "parked_has_reason"),
        (never_given_up, "given_up_in_time"),
    ],
)
def test_coordinator_invariants(bend: Callable[[CoordinatorMachine], None], broken: str) -> None:
    machine = coordinator()
    bend(machine)
    with pytest.raises(InvariantBroken, match=broken):
        invariants.check_coordinator(machine)


@pytest.mark.parametrize(
    ("grant", "broken"),
    [
        (GrantLane(1, 1, {W2: (1,)}, {W2: 0}, None), "grant_at_worker_up"),
        (GrantLane(1, 1, {W1: (0,)}, {W1: 1}, None), "grant_at_worker_up"),
        (GrantLane(1, 1, {W1: (1,)}, {W1: 0}, None), "grant_at_owner"),
    ],
)
def test_grants(grant: GrantLane, broken: str) -> None:
    with pytest.raises(InvariantBroken, match=broken):
        invariants.check_grant(coordinator(), grant)


@pytest.mark.parametrize("listed", [(0,), (0, 1, 1), (0, 1, 2)])
def test_manifests(listed: tuple[int, ...]) -> None:
    effect = WriteManifest(OP, Epoch(0), None, (TransactionReport("w1", listed, None),))
    with pytest.raises(InvariantBroken, match="manifest_covers_groups"):
        invariants.check_manifest(effect, 2)


@pytest.mark.parametrize(("groups", "version"), [(ALL, 1), ((), 1), (ALL[:1], 0), (ALL[:1], 2)])
def test_granted_is_routed(groups: tuple[KeyGroup, ...], version: int) -> None:
    sent = SendOrder(1, W1, 0, WorkerOrder(OrderKind.GRANT, ALL[:1], version=1))
    invariants.check_first_grant(coordinator(), sent)
    sent = SendOrder(1, W1, 0, WorkerOrder(OrderKind.GRANT, groups, version=version))
    with pytest.raises(InvariantBroken, match="granted_is_routed"):
        invariants.check_first_grant(coordinator(), sent)


def test_owner_was_told() -> None:
    grant = GrantLane(1, 1, {W1: (0, 1)}, {W1: 0}, None)
    invariants.check_told(grant, W1, worker())
    with pytest.raises(InvariantBroken, match="owner_was_told"):
        invariants.check_told(grant, W1, WorkerMachine())


def test_held_is_known() -> None:
    control, machine = coordinator(), worker()
    machine.held[OP][KeyGroup(0)] = HeldGroup(Epoch(1))
    with pytest.raises(InvariantBroken, match="held_is_known"):
        invariants.check_pair(control, W1, 0, machine)
    invariants.check_pair(control, W1, 7, machine)  # a process that was replaced
    control.handle(OperatorRegistered(OP, "q", Epoch(0)))
    invariants.check_pair(control, W1, 0, machine)
    unused, _ = CoordinatorMachine.create(initial_routing(2, [W1, W2]))
    unused.handle(OperatorRegistered(OP))
    invariants.check_pair(unused, W1, 0, machine)  # nothing is known about it yet


def test_epoch_keeps_its_meaning() -> None:
    history = invariants.History()
    history.check(WriteManifest(OP, Epoch(2), Epoch(1), ()))
    history.check(WriteManifest(OP, Epoch(2), Epoch(1), ()))
    history.check(WriteManifest("other", Epoch(2), None, ()))
    with pytest.raises(InvariantBroken, match="epoch_keeps_meaning"):
        history.check(WriteManifest(OP, Epoch(2), Epoch(0), ()))
