"""The worker's machine: every pair of phase and event, and every way to answer."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest

from anabranch.errors import (
    AnabranchError,
    EpochGap,
    ProcessorError,
    ProtocolViolation,
    ServiceUnavailable,
)
from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.protocol.arrivals import ArrivingGroup
from anabranch.protocol.invariants import check_worker
from anabranch.protocol.worker import (
    TRANSITIONS,
    AnswerTransaction,
    ApplyTransaction,
    AwaitingExpired,
    ChangesDurable,
    DeferralChosen,
    DropGroups,
    DropOperator,
    DropOutputs,
    Effect,
    Event,
    ForwardFailed,
    GroupsFetched,
    GroupsGranted,
    GroupsLoaded,
    GroupsReleased,
    HeldGroup,
    ImportBegan,
    LaneGone,
    LoadGroups,
    OperatorInstalled,
    PersistChanges,
    RefuseTransaction,
    RowsComplete,
    RowsForwarded,
    TransactionApplied,
    TransactionFailed,
    TransactionOpened,
    TxPhase,
    WorkerMachine,
)

OP = "counts"
ALL = tuple(KeyGroup(g) for g in range(4))
ERROR = ProcessorError("user code failed")
W2 = WorkerId("w2")


def groups(*numbers: int) -> tuple[KeyGroup, ...]:
    return tuple(KeyGroup(n) for n in numbers)


def opened(
    tx: int,
    epoch: int = 0,
    base: int | None = None,
    lane: int = 0,
    lanes: int = 2,
    attempt: int = 1,
    of: tuple[KeyGroup, ...] = ALL,
    operator: str = OP,
) -> TransactionOpened:
    return TransactionOpened(
        tx,
        operator,
        Epoch(epoch),
        None if base is None else Epoch(base),
        Lane(lane),
        lanes,
        attempt,
        of,
        version=1,
    )


class Driver:
    """Feeds a machine and checks its invariants after every event."""

    def __init__(self) -> None:
        self.machine = WorkerMachine()
        self(GroupsGranted(ALL, 1))
        assert self(OperatorInstalled(OP)) == [DropOperator(OP)]

    def __call__(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event)
        check_worker(self.machine)
        return effects

    def phase(self, tx: int) -> TxPhase | None:
        found = self.machine.transactions.get(tx)
        return None if found is None else found.phase

    def run(self, event: TransactionOpened) -> None:
        """A whole transaction that has to load or apply."""
        tx = event.tx
        self(event)
        if isinstance(self(RowsComplete(tx))[-1], LoadGroups):
            self(GroupsLoaded(tx))
        self(TransactionApplied(tx))
        assert self(ChangesDurable(tx))[0] == AnswerTransaction(tx)


@pytest.fixture
def worker() -> Driver:
    return Driver()


def bring(worker: Driver, phase: TxPhase) -> None:
    """Transaction 1 to a phase."""
    if phase is TxPhase.WAITING:
        worker(opened(9, lane=1, attempt=0))
        worker(RowsComplete(9))
    if phase is TxPhase.CHOOSING:
        worker(replace(opened(1, epoch=1, base=0), may_defer=True))
    else:
        worker(opened(1))
    if phase is TxPhase.RECEIVING:
        return
    if phase in (TxPhase.AWAITING, TxPhase.FETCHING):
        _arrives(worker)
    if phase is TxPhase.AWAITING:
        worker(ImportBegan(ALL[:1], 1))
    if phase is TxPhase.FORWARDING:
        worker(GroupsReleased(ALL, 2, W2))
    worker(RowsComplete(1))
    if phase in (TxPhase.APPLYING, TxPhase.PERSISTING):
        worker(GroupsLoaded(1))
    if phase is TxPhase.PERSISTING:
        worker(TransactionApplied(1))
    assert worker.phase(1) is phase


OF_ONE: dict[type[Event], Callable[[], Event]] = {
    TransactionOpened: lambda: opened(1, attempt=2),
    RowsComplete: lambda: RowsComplete(1),
    DeferralChosen: lambda: DeferralChosen(1),
    AwaitingExpired: lambda: AwaitingExpired(1),
    GroupsFetched: lambda: GroupsFetched(1),
    GroupsLoaded: lambda: GroupsLoaded(1),
    TransactionApplied: lambda: TransactionApplied(1),
    ChangesDurable: lambda: ChangesDurable(1),
    TransactionFailed: lambda: TransactionFailed(1, ERROR),
    LaneGone: lambda: LaneGone(1),
    RowsForwarded: lambda: RowsForwarded(1, W2),
    ForwardFailed: lambda: ForwardFailed(1, W2, ERROR),
}


@pytest.mark.parametrize("kind", OF_ONE, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("phase", TxPhase, ids=lambda phase: phase.value)
def test_every_pair_of_phase_and_event(worker: Driver, phase: TxPhase, kind: type[Event]) -> None:
    bring(worker, phase)
    event = OF_ONE[kind]()
    before = copy.deepcopy(worker.machine)
    if (phase, kind) in TRANSITIONS:
        worker(event)
        assert worker.phase(1) in TRANSITIONS[phase, kind]
    elif kind is AwaitingExpired:
        assert worker(event) == []  # what it has waited for came meanwhile
        assert worker.machine == before
    else:
        with pytest.raises(ProtocolViolation):
            worker(event)
        assert worker.machine == before


@pytest.mark.parametrize("kind", OF_ONE, ids=lambda kind: kind.__name__)
def test_events_of_an_ended_transaction(worker: Driver, kind: type[Event]) -> None:
    worker.run(opened(1))
    event = OF_ONE[kind]()
    if kind in (
        RowsComplete,
        LaneGone,
        TransactionOpened,
        RowsForwarded,
        ForwardFailed,
        AwaitingExpired,
    ):
        # Rows and the end of a stream may be on their way when the worker has refused.
        effects = worker(event)
        assert effects == []
    else:
        with pytest.raises(ProtocolViolation):
            worker(event)


def test_every_target_of_the_table_is_reached() -> None:
    reached = {
        (TxPhase.RECEIVING, RowsComplete): {
            _after_rows(lambda w: w.run(opened(8))),
            _after_rows(lambda w: bring_other(w)),
            _after_rows(lambda w: None),
            _after_rows(lambda w: w.run(opened(8, epoch=3, base=2)), epoch=4, base=3),
            _after_rows(lambda w: w(GroupsReleased(ALL, 2, W2))),
            _after_rows(_arrives),
            _after_rows(lambda w: [_arrives(w), w(ImportBegan(ALL[:1], 1))]),
            _after_rows(lambda w: None, epoch=1, base=0, may_defer=True),
        }
    }
    for pair, targets in reached.items():
        assert targets == set(TRANSITIONS[pair])


def bring_other(worker: Driver) -> None:
    worker(opened(8, lane=1))
    worker(RowsComplete(8))


def _arrives(worker: Driver) -> ArrivingGroup:
    """A worker has the first key group."""
    record = worker.machine.arrivals.add(OP, ALL[0], W2, 1)
    record.arrival = Arrival.BLOCK
    return record


def _after_rows(
    prepare: Callable[[Driver], object],
    epoch: int = 0,
    base: int | None = None,
    may_defer: bool = False,
) -> TxPhase | None:
    worker = Driver()
    prepare(worker)
    worker(replace(opened(1, epoch, base), may_defer=may_defer))
    worker(RowsComplete(1))
    return worker.phase(1)


# --- answers -----------------------------------------------------------------------------------


def test_first_batch_loads_nothing_applies_persists_answers(worker: Driver) -> None:
    assert worker(opened(1)) == []
    assert worker(RowsComplete(1)) == [DropOutputs(OP, ALL), LoadGroups(1, ALL, None)]
    assert worker(GroupsLoaded(1)) == [ApplyTransaction(1, ALL)]
    assert worker(TransactionApplied(1)) == [PersistChanges(1)]
    assert worker(ChangesDurable(1)) == [AnswerTransaction(1)]


def test_next_batch_applies_on_memory(worker: Driver) -> None:
    worker.run(opened(1))
    worker(opened(2, epoch=1, base=0))
    assert worker(RowsComplete(2)) == [DropOutputs(OP, ALL), ApplyTransaction(2, ALL)]


def test_retry_is_answered_from_the_cache(worker: Driver) -> None:
    worker.run(opened(1))
    worker(opened(2, attempt=2))
    before = copy.deepcopy(worker.machine.held)
    assert worker(RowsComplete(2)) == [AnswerTransaction(2)]
    assert worker.machine.held == before


def test_retry_with_other_lanes_applies_only_what_is_missing(worker: Driver) -> None:
    worker.run(opened(1, of=groups(0, 2)))
    worker(opened(2, lanes=1, of=ALL))
    fresh = groups(1, 3)
    assert worker(RowsComplete(2)) == [DropOutputs(OP, fresh), LoadGroups(2, fresh, None)]
    worker(GroupsLoaded(2))
    worker(TransactionApplied(2))
    assert worker(ChangesDurable(2)) == [AnswerTransaction(2)]
    assert {held.outputs_of for held in worker.machine.held[OP].values()} == {0}


def test_state_of_another_epoch_is_loaded_again(worker: Driver) -> None:
    worker.run(opened(1, epoch=3, base=2))
    worker(opened(2, epoch=5, base=4))
    assert worker(RowsComplete(2))[-1] == LoadGroups(2, ALL, Epoch(4))


def test_second_attempt_waits_and_finds_the_outputs_of_the_first(worker: Driver) -> None:
    bring(worker, TxPhase.PERSISTING)
    worker(opened(2, attempt=2))
    assert worker(RowsComplete(2)) == []
    assert worker(ChangesDurable(1)) == [AnswerTransaction(1), AnswerTransaction(2)]


def test_waiting_ones_run_one_by_one_when_the_first_fails(worker: Driver) -> None:
    bring(worker, TxPhase.APPLYING)
    for tx in (2, 3):
        worker(opened(tx, attempt=tx))
        worker(RowsComplete(tx))
    refused, dropped, applied = worker(TransactionFailed(1, ERROR))
    assert refused == RefuseTransaction(1, ERROR)
    assert (dropped, applied) == (DropOutputs(OP, ALL), ApplyTransaction(2, ALL))
    worker(TransactionApplied(2))
    assert worker(ChangesDurable(2)) == [AnswerTransaction(2), AnswerTransaction(3)]


def test_all_waiting_ones_are_answered_from_one_cache(worker: Driver) -> None:
    bring(worker, TxPhase.PERSISTING)
    for tx in (2, 3, 4):
        worker(opened(tx, attempt=tx))
        worker(RowsComplete(tx))
    assert worker(ChangesDurable(1)) == [AnswerTransaction(tx) for tx in (1, 2, 3, 4)]


def test_waiting_one_that_became_late_is_refused(worker: Driver) -> None:
    worker.run(opened(1))
    worker(opened(2, epoch=1, base=0))
    worker(opened(3, attempt=2))
    worker(RowsComplete(2))
    worker(RowsComplete(3))
    worker(TransactionApplied(2))
    answered, refused = worker(ChangesDurable(2))
    assert answered == AnswerTransaction(2)
    assert _error(refused, EpochGap)


def test_disjoint_lanes_run_side_by_side(worker: Driver) -> None:
    worker(opened(1, of=groups(0, 2)))
    worker(opened(2, lane=1, of=groups(1, 3)))
    assert worker(RowsComplete(1))
    assert worker(RowsComplete(2))
    assert worker.phase(1) is worker.phase(2) is TxPhase.LOADING


# --- failures ----------------------------------------------------------------------------------


def test_failed_load_leaves_nothing_behind(worker: Driver) -> None:
    worker.run(opened(1, of=groups(0)))
    worker(opened(2, epoch=1, base=0))
    assert worker(RowsComplete(2))[-1] == LoadGroups(2, groups(1, 2, 3), Epoch(0))
    refused = RefuseTransaction(2, ERROR)
    dropped = [DropGroups(OP, groups(1, 2, 3)), DropOutputs(OP, ALL)]
    assert worker(TransactionFailed(2, ERROR)) == [*dropped, refused]
    assert worker.machine.held[OP] == {KeyGroup(0): HeldGroup(Epoch(0))}  # as it was


@pytest.mark.parametrize("phase", [TxPhase.APPLYING, TxPhase.PERSISTING])
def test_failed_apply_or_persist_leaves_the_base(worker: Driver, phase: TxPhase) -> None:
    bring(worker, phase)
    assert worker(TransactionFailed(1, ERROR)) == [RefuseTransaction(1, ERROR)]
    assert {held.as_of for held in worker.machine.held[OP].values()} == {None}
    worker(opened(2, attempt=2))
    assert worker(RowsComplete(2))[-1] == ApplyTransaction(2, ALL)


def test_lost_lane_before_its_end_mark_is_forgotten(worker: Driver) -> None:
    worker(opened(1))
    assert worker(LaneGone(1)) == []
    assert worker.machine.transactions == {}


def test_newer_attempt_replaces_one_that_still_receives(worker: Driver) -> None:
    worker(opened(1))
    (refused,) = worker(opened(2, attempt=2))
    assert _error(refused, ServiceUnavailable)
    assert worker(RowsComplete(1)) == []
    assert worker.phase(2) is TxPhase.RECEIVING


@pytest.mark.parametrize(
    "other",
    [
        opened(2, attempt=1),
        opened(2, attempt=2, lane=1),
        opened(2, attempt=2, lanes=3),
        opened(2, attempt=2, epoch=0),
        opened(2, attempt=2, operator="other"),
    ],
    ids=["same attempt", "other lane", "other lanes", "older epoch", "other operator"],
)
def test_others_do_not_replace(worker: Driver, other: TransactionOpened) -> None:
    worker(OperatorInstalled("other"))
    worker(opened(1, epoch=1, base=0))
    assert worker(other) == []
    assert worker.phase(1) is worker.phase(2) is TxPhase.RECEIVING


def test_refusals_at_the_door(worker: Driver) -> None:
    (unknown,) = worker(opened(1, operator="unknown"))
    assert _error(unknown, ServiceUnavailable)
    (not_owned,) = worker(opened(2, of=groups(0, 7)))
    assert _error(not_owned, ServiceUnavailable)
    (doubled,) = worker(opened(3, epoch=4, base=4))
    assert _error(doubled, ProtocolViolation)
    worker.run(opened(4, epoch=5, base=4))
    (late,) = worker(opened(5, epoch=4, base=3))
    assert _error(late, EpochGap)
    assert worker.machine.transactions == {}


def test_late_attempt_is_refused_at_its_end_mark(worker: Driver) -> None:
    worker(opened(1))
    worker.run(opened(2, epoch=1, base=0, lanes=1))
    (refused,) = worker(RowsComplete(1))
    assert _error(refused, EpochGap)


def test_anything_else_is_no_event(worker: Driver) -> None:
    with pytest.raises(ProtocolViolation):
        worker("nonsense")  # type: ignore[arg-type]


# --- operators ---------------------------------------------------------------------------------


def test_new_definition_voids_what_is_held(worker: Driver) -> None:
    worker.run(opened(1))
    assert worker(OperatorInstalled(OP)) == [DropOperator(OP)]
    assert worker.machine.held[OP] == {}


def test_new_definition_refuses_rows_made_for_the_old_one(worker: Driver) -> None:
    worker(OperatorInstalled("other"))
    worker(opened(1))
    worker(opened(2, operator="other"))
    refused, dropped = worker(OperatorInstalled(OP))
    assert _error(refused, ServiceUnavailable)
    assert dropped == DropOperator(OP)
    assert worker(RowsComplete(1)) == []
    assert worker.phase(2) is TxPhase.RECEIVING


def test_new_definition_while_a_transaction_runs_is_a_bug(worker: Driver) -> None:
    bring(worker, TxPhase.APPLYING)
    assert worker.machine.is_busy(OP)
    before = copy.deepcopy(worker.machine)
    with pytest.raises(ProtocolViolation):
        worker(OperatorInstalled(OP))
    assert worker.machine == before


def test_settled_means_as_of_the_epoch_and_nothing_under_way(worker: Driver) -> None:
    machine = worker.machine
    assert not machine.is_settled(OP, KeyGroup(0), Epoch(0))
    worker.run(opened(1))
    assert machine.is_settled(OP, KeyGroup(0), Epoch(0))
    assert not machine.is_settled(OP, KeyGroup(0), Epoch(1))
    worker(opened(2, epoch=1, base=0))
    worker(RowsComplete(2))
    assert not machine.is_settled(OP, KeyGroup(0), Epoch(0))
    assert not machine.is_settled("unknown", KeyGroup(0), Epoch(0))


def _error(effect: Effect, kind: type[AnabranchError]) -> bool:
    return isinstance(effect, RefuseTransaction) and isinstance(effect.error, kind)
