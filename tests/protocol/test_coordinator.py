"""The coordinator's machine: batches, executions, commits, refusals, workers."""

from __future__ import annotations

import pytest
from tests.protocol.starting import bring_up

from anabranch.errors import (
    AnabranchError,
    EpochGap,
    IncompleteBatch,
    LocationNotWritable,
    ProtocolViolation,
    ServiceUnavailable,
    StateMismatch,
)
from anabranch.model.host import DRIVER
from anabranch.model.ids import Epoch, Lane, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.protocol.coordinator import (
    STARTS_MAX,
    BindQuery,
    ConfirmFinish,
    CoordinatorMachine,
    Effect,
    Event,
    GrantLane,
    LaneBegan,
    LaneFinished,
    ManifestFailed,
    ManifestWritten,
    OperatorRegistered,
    OrderDone,
    OrderFailed,
    RefuseRequest,
    SendOrder,
    StartWorker,
    StopWorker,
    WorkerDown,
    WorkerPhase,
    WorkerStarted,
    WriteManifest,
)
from anabranch.protocol.epochs import EpochPhase, LaneReport, TransactionReport
from anabranch.protocol.invariants import check_coordinator, check_grant, check_manifest
from anabranch.protocol.lane_admission import no_state
from anabranch.protocol.move_orders import OrderKind, WorkerOrder

OP = "counts"
W1, W2 = WorkerId("w1"), WorkerId("w2")
GROUPS = 4
DISK_FULL = LocationNotWritable("The disk is full.")


class Coordinator:
    """Feeds a machine; checks invariants, grants and manifests after every event."""

    def __init__(self, committed: int | None = None, before: int | None = None) -> None:
        self.machine, effects = CoordinatorMachine.create(initial_routing(GROUPS, [W1, W2]))
        assert effects == [StartWorker(W1, 0, DRIVER), StartWorker(W2, 0, DRIVER)]
        self.requests = 0
        self.register(committed, before)

    def register(self, committed: int | None = None, before: int | None = None) -> list[Effect]:
        return self(
            OperatorRegistered(
                OP,
                None,
                None if committed is None else Epoch(committed),
                None if before is None else Epoch(before),
            )
        )

    def __call__(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event)
        check_coordinator(self.machine)
        for effect in effects:
            if isinstance(effect, GrantLane):
                check_grant(self.machine, effect)
            if isinstance(effect, WriteManifest):
                check_manifest(effect, GROUPS)
        return effects

    def up(self) -> Coordinator:
        self.started(W1)
        self.started(W2)
        return self

    def started(self, worker: WorkerId, incarnation: int = 0) -> list[Effect]:
        """A process starts and answers its first grant."""
        return bring_up(self, worker, incarnation)

    def begin(self, epoch: int, lane: int = 0, lanes: int = 2, query: str = "q") -> list[Effect]:
        self.requests += 1
        event = LaneBegan(self.requests, OP, query, Epoch(epoch), Lane(lane), lanes)
        return [e for e in self(event) if not isinstance(e, BindQuery)]

    def finish(self, epoch: int, lane: int, lanes: int = 2, file: str = "f") -> list[Effect]:
        self.requests += 1
        groups = tuple(range(lane, GROUPS, lanes))
        report = LaneReport((TransactionReport("w1", groups, f"{file}{epoch}.{lane}/{lanes}"),))
        return self(LaneFinished(self.requests, OP, Epoch(epoch), Lane(lane), lanes, report))

    def written(self, epoch: int) -> list[Effect]:
        return self(ManifestWritten(OP, Epoch(epoch)))

    def failed(self, epoch: int) -> list[Effect]:
        return self(ManifestFailed(OP, Epoch(epoch), DISK_FULL))

    def batch(self, epoch: int, lanes: int = 2) -> None:
        """A whole batch without any trouble."""
        for lane in range(lanes):
            self.begin(epoch, lane, lanes)
        for lane in range(lanes):
            self.finish(epoch, lane, lanes)
        assert self.written(epoch) == [ConfirmFinish(self.requests)]

    @property
    def committed(self) -> int | None:
        return self.machine.operators[OP].committed


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator().up()


def refused(effects: list[Effect], kind: type[AnabranchError]) -> bool:
    (effect,) = effects
    return isinstance(effect, RefuseRequest) and isinstance(effect.error, kind)


def base_of(effects: list[Effect]) -> int | None:
    (grant,) = effects
    assert isinstance(grant, GrantLane)
    return grant.base


# --- a batch -----------------------------------------------------------------------------------


def test_begin_grants_owners_and_base(coordinator: Coordinator) -> None:
    (grant,) = coordinator.begin(0, lane=1, lanes=3)
    assert grant == GrantLane(1, 1, {W2: (1,)}, {W2: 0}, None)
    (grant,) = coordinator.begin(0, lane=0, lanes=3)
    assert grant == GrantLane(2, 1, {W1: (0,), W2: (3,)}, {W1: 0, W2: 0}, None)


def test_query_is_bound_once() -> None:
    coordinator = Coordinator().up()
    effects = coordinator(LaneBegan(1, OP, "q", Epoch(0), Lane(0), 2))
    assert effects[0] == BindQuery(OP, "q", Epoch(0))
    effects = coordinator(LaneBegan(2, OP, "q", Epoch(0), Lane(0), 2))
    assert not any(isinstance(e, BindQuery) for e in effects)


def test_last_finish_waits_for_the_manifest(coordinator: Coordinator) -> None:
    coordinator.begin(0, 0)
    coordinator.begin(0, 1)
    assert coordinator.finish(0, 1) == [ConfirmFinish(3)]
    (write,) = coordinator.finish(0, 0)
    assert isinstance(write, WriteManifest)
    assert [t.changelog for t in write.transactions] == ["f0.0/2", "f0.1/2"]
    assert coordinator.committed is None
    assert coordinator.written(0) == [ConfirmFinish(4)]
    assert coordinator.committed == 0


def test_batches_build_on_each_other(coordinator: Coordinator) -> None:
    coordinator.batch(0)
    assert base_of(coordinator.begin(1)) == 0
    coordinator.batch(1)
    assert base_of(coordinator.begin(2)) == 1


def test_an_operator_without_state_starts_with_the_query(coordinator: Coordinator) -> None:
    assert refused(coordinator.begin(7), EpochGap)
    assert base_of(coordinator.begin(0)) is None


def test_an_operator_may_start_empty_in_the_middle_if_asked(coordinator: Coordinator) -> None:
    coordinator(OperatorRegistered(OP, "q", start_empty=True))
    coordinator.begin(7)
    assert base_of(coordinator.begin(7)) is None
    coordinator.batch(7)
    assert base_of(coordinator.begin(8)) == 7


@pytest.mark.parametrize(
    ("continues", "epoch", "is_right"),
    [
        (False, 0, True),
        (False, 5, False),
        (False, 6, True),
        (False, 7, False),
        (True, 0, False),
        (True, 6, True),
        (True, 7, False),
    ],
)
def test_restored_state_goes_on_after_its_savepoint_or_with_a_new_checkpoint(
    coordinator: Coordinator, continues: bool, epoch: int, is_right: bool
) -> None:
    coordinator(OperatorRegistered(OP, "q", restored=Epoch(5), continues=continues))
    (effect,) = coordinator.begin(epoch)
    if is_right:
        assert isinstance(effect, GrantLane)
        return
    assert isinstance(effect, RefuseRequest)
    assert isinstance(effect.error, EpochGap)
    assert "savepoint as of batch 5" in str(effect.error)
    assert ("new checkpoint" in str(effect.error)) is not continues


def test_duplicate_finish_is_confirmed_without_a_write(coordinator: Coordinator) -> None:
    coordinator.batch(0)
    assert coordinator.finish(0, 1) == [ConfirmFinish(coordinator.requests)]


# --- executions --------------------------------------------------------------------------------


def test_last_batch_is_executed_again_from_its_base(coordinator: Coordinator) -> None:
    coordinator.batch(0)
    coordinator.batch(1)
    assert base_of(coordinator.begin(1)) == 0
    assert base_of(coordinator.begin(2)) == 1


def test_last_batch_is_executed_again_after_a_restart() -> None:
    coordinator = Coordinator(committed=4, before=3).up()
    assert base_of(coordinator.begin(4)) == 3
    coordinator.batch(4)
    assert base_of(coordinator.begin(5)) == 4


def test_partial_execution_of_a_committed_batch_loses_nothing(coordinator: Coordinator) -> None:
    coordinator.batch(0)
    coordinator.begin(0, 0, lanes=3)
    coordinator.finish(0, 0, lanes=3)
    assert base_of(coordinator.begin(1)) == 0


def test_other_number_of_lanes_is_an_execution_of_its_own(coordinator: Coordinator) -> None:
    coordinator.begin(0, 0)
    coordinator.finish(0, 0)
    for lane in range(4):  # the query was restarted with four lanes
        coordinator.begin(0, lane, lanes=4)
    for lane in range(3):
        coordinator.finish(0, lane, lanes=4)
    coordinator.begin(0, 1)  # a straggler of the old run changes nothing
    (write,) = coordinator.finish(0, 3, lanes=4)
    assert isinstance(write, WriteManifest)
    assert len(write.transactions) == 4


def test_task_that_ran_again_during_the_write_is_written_too(coordinator: Coordinator) -> None:
    coordinator.begin(0, 0)
    coordinator.finish(0, 0)
    coordinator.finish(0, 1)
    first = coordinator.requests
    assert coordinator.finish(0, 0, file="again") == []
    (write,) = coordinator.written(0)
    assert isinstance(write, WriteManifest)
    assert write.transactions[0].changelog == "again0.0/2"
    assert coordinator.written(0) == [ConfirmFinish(first), ConfirmFinish(first + 1)]


def test_two_executions_are_written_one_after_the_other(coordinator: Coordinator) -> None:
    coordinator.begin(0, 0)
    coordinator.begin(0, 0, lanes=1)
    coordinator.finish(0, 0)
    coordinator.finish(0, 1)
    first = coordinator.requests
    assert coordinator.finish(0, 0, lanes=1) == []
    confirmed, write = coordinator.written(0)
    assert confirmed == ConfirmFinish(first)
    assert isinstance(write, WriteManifest)
    assert [t.changelog for t in write.transactions] == ["f0.0/1"]
    phases = {n: e.phase for n, e in coordinator.machine.operators[OP].executions.items()}
    assert phases == {2: EpochPhase.COMMITTED, 1: EpochPhase.COMMITTING}
    assert coordinator.written(0) == [ConfirmFinish(first + 1)]


def test_next_batch_waits_while_the_last_one_is_written_again(coordinator: Coordinator) -> None:
    coordinator.batch(0)
    coordinator.finish(0, 1, file="again")
    assert coordinator.begin(1) == []
    confirmed, grant = coordinator.written(0)
    assert confirmed == ConfirmFinish(coordinator.requests - 1)
    assert base_of([grant]) == 0


def test_failed_rewrite_does_not_stop_the_next_batch(coordinator: Coordinator) -> None:
    coordinator.batch(0)
    coordinator.finish(0, 1, file="again")
    coordinator.begin(1)
    late, grant = coordinator.failed(0)
    assert refused([late], LocationNotWritable)
    assert base_of([grant]) == 0


def test_failed_manifest_is_written_by_the_retry(coordinator: Coordinator) -> None:
    coordinator.begin(0, 0)
    coordinator.finish(0, 0)
    coordinator.finish(0, 1)
    assert refused(coordinator.failed(0), LocationNotWritable)
    (write,) = coordinator.finish(0, 1)
    assert isinstance(write, WriteManifest)
    coordinator.written(0)
    assert coordinator.committed == 0


# --- refusals ----------------------------------------------------------------------------------


def test_incomplete_batch_is_found_by_the_next_one(coordinator: Coordinator) -> None:
    coordinator.begin(0, 0)
    coordinator.finish(0, 0)
    effects = coordinator.begin(1)
    assert refused(effects, IncompleteBatch)
    assert "tasks [1] of 2" in str(effects[0].error)  # type: ignore[union-attr]


def test_incomplete_first_batch_is_found_after_a_restart() -> None:
    coordinator = Coordinator().up()
    coordinator(OperatorRegistered(OP, "q", first=Epoch(3)))
    effects = coordinator.begin(4)
    assert refused(effects, IncompleteBatch)
    assert "not all tasks" in str(effects[0].error)  # type: ignore[union-attr]
    assert base_of(coordinator.begin(3)) is None


def test_incomplete_first_batch_is_found_after_a_registration(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.register()
    assert refused(coordinator.begin(1), IncompleteBatch)
    coordinator.batch(0)
    assert base_of(coordinator.begin(1)) == 0


def test_first_epoch_is_remembered_for_a_query_that_is_bound_already() -> None:
    coordinator = Coordinator().up()
    coordinator(OperatorRegistered(OP, "q"))
    bound, _ = coordinator(LaneBegan(1, OP, "q", Epoch(0), Lane(0), 2))
    assert bound == BindQuery(OP, "q", Epoch(0))


def test_batch_whose_manifest_failed_is_found_by_the_next_one(coordinator: Coordinator) -> None:
    coordinator.begin(0, 0)
    coordinator.finish(0, 0)
    coordinator.finish(0, 1)
    coordinator.failed(0)
    effects = coordinator.begin(1)
    assert refused(effects, IncompleteBatch)
    assert "could not be saved" in str(effects[0].error)  # type: ignore[union-attr]


@pytest.mark.parametrize("epoch", [2, 6, 9])
def test_gaps_are_refused(epoch: int) -> None:
    coordinator = Coordinator(committed=4, before=3).up()
    assert refused(coordinator.begin(epoch), EpochGap)


def test_straggler_of_the_batch_before_does_not_disturb(coordinator: Coordinator) -> None:
    coordinator.batch(0)
    coordinator.begin(1, 0)
    coordinator.finish(1, 0)
    assert refused(coordinator.begin(0, 1), EpochGap)
    assert refused(coordinator.finish(0, 1), EpochGap)
    (write,) = coordinator.finish(1, 1)
    assert isinstance(write, WriteManifest)


def test_finish_without_a_begin_is_refused(coordinator: Coordinator) -> None:
    assert refused(coordinator.finish(0, 0), EpochGap)
    coordinator.begin(0, 0)
    assert refused(coordinator.finish(0, 0, lanes=3), EpochGap)


def test_other_query_is_refused(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    assert refused(coordinator.begin(0, query="other"), StateMismatch)


def test_unknown_operator_is_refused(coordinator: Coordinator) -> None:
    event = LaneBegan(1, "unknown", "q", Epoch(0), Lane(0), 2)
    assert refused(coordinator(event), ServiceUnavailable)
    report = LaneFinished(2, "unknown", Epoch(0), Lane(0), 2, LaneReport(()))
    assert refused(coordinator(report), ServiceUnavailable)


@pytest.mark.parametrize("operator", [OP, "unknown"])
def test_answer_of_a_write_that_nobody_asked_for_is_a_bug(
    coordinator: Coordinator, operator: str
) -> None:
    with pytest.raises(ProtocolViolation):
        coordinator(ManifestWritten(operator, Epoch(0)))
    coordinator.begin(0, 0, lanes=1)
    coordinator.finish(0, 0, lanes=1)
    with pytest.raises(ProtocolViolation):
        coordinator(ManifestFailed(operator, Epoch(1), DISK_FULL))


def test_anything_else_is_no_event(coordinator: Coordinator) -> None:
    with pytest.raises(ProtocolViolation):
        coordinator("nonsense")  # type: ignore[arg-type]


# --- registration ------------------------------------------------------------------------------


def test_registration_during_a_write_answers_waiters_and_waits_for_its_end(
    coordinator: Coordinator,
) -> None:
    coordinator.begin(0, 0, lanes=1)
    coordinator.finish(0, 0, lanes=1)
    assert refused(coordinator.register(), ServiceUnavailable)
    assert base_of(coordinator.begin(0, 0, lanes=1)) is None
    assert coordinator.finish(0, 0, lanes=1, file="new") == []
    (write,) = coordinator.written(0)
    assert isinstance(write, WriteManifest)
    assert write.transactions[0].changelog == "new0.0/1"
    assert coordinator.written(0) == [ConfirmFinish(coordinator.requests)]


def test_batch_after_a_registered_one_waits_for_its_write(coordinator: Coordinator) -> None:
    coordinator.begin(0, 0, lanes=1)
    coordinator.finish(0, 0, lanes=1)
    coordinator.register(committed=0)  # the manifest has landed, its writer does not know yet
    assert coordinator.begin(1) == []
    assert base_of(coordinator.written(0)) == 0


def test_parked_lane_gets_the_base_of_the_new_registration() -> None:
    coordinator = Coordinator(committed=4, before=3)
    coordinator.begin(5, 0, lanes=4)
    coordinator.register(committed=4, before=3)
    bound, grant = coordinator.started(W1, 0)
    assert bound == BindQuery(OP, "q", Epoch(5))
    assert base_of([grant]) == 4


# --- workers -----------------------------------------------------------------------------------


def test_lanes_are_parked_until_their_owners_are_up() -> None:
    coordinator = Coordinator()
    assert coordinator.begin(0, 0) == []
    assert coordinator.begin(0, 1, lanes=4) == []
    (grant,) = coordinator.started(W1, 0)
    assert isinstance(grant, GrantLane)
    assert grant.request == 1
    (grant,) = coordinator.started(W2, 0)
    assert isinstance(grant, GrantLane)
    assert grant.request == 2


def test_parked_lane_of_an_ended_batch_is_refused(coordinator: Coordinator) -> None:
    coordinator.batch(0, lanes=4)
    coordinator.begin(1, 0, lanes=4)
    coordinator(WorkerDown(W1, 0))
    assert coordinator.begin(1, 0, lanes=4) == []  # speculative; the first attempt was served
    for lane in range(4):
        coordinator.finish(1, lane, lanes=4)
    coordinator.written(1)
    coordinator.begin(2, 1, lanes=4)
    assert refused(coordinator.started(W1, 1), EpochGap)


def test_worker_is_replaced_by_its_next_incarnation(coordinator: Coordinator) -> None:
    assert coordinator(WorkerDown(W1, 0, "killed")) == [StartWorker(W1, 1, DRIVER)]
    assert coordinator.begin(0, 0, lanes=4) == []
    assert coordinator.started(W1, 0) == []  # late news of the process that was replaced
    assert coordinator(WorkerDown(W1, 0)) == []
    (grant,) = coordinator.started(W1, 1)
    assert isinstance(grant, GrantLane)
    assert grant.incarnations == {W1: 1}


def test_news_of_a_stranger_is_ignored(coordinator: Coordinator) -> None:
    assert coordinator.started(WorkerId("w9"), 0) == []
    assert coordinator(WorkerDown(WorkerId("w9"), 0)) == []


def test_worker_is_given_up_after_three_failed_starts() -> None:
    coordinator = Coordinator()
    coordinator.begin(0, 0, lanes=4)
    for incarnation in range(STARTS_MAX - 1):
        effects = coordinator(WorkerDown(W1, incarnation, "No memory."))
        assert effects == [StartWorker(W1, incarnation + 1, DRIVER)]
    effects = coordinator(WorkerDown(W1, STARTS_MAX - 1, "No memory."))
    assert refused(effects, ServiceUnavailable)
    assert "No memory." in str(effects[0].error)  # type: ignore[union-attr]
    assert refused(coordinator.begin(0, 0, lanes=4), ServiceUnavailable)
    assert coordinator.started(W1, STARTS_MAX - 1) == []
    assert coordinator.machine.workers[W1].phase is WorkerPhase.FAILED


def test_a_process_is_told_what_it_owns_before_it_is_up() -> None:
    coordinator = Coordinator()
    assert coordinator.begin(0, 0, lanes=4) == []
    (sent,) = coordinator(WorkerStarted(W1, 0))
    assert isinstance(sent, SendOrder)
    assert (sent.worker, sent.incarnation) == (W1, 0)
    groups = coordinator.machine.routing.groups_of(W1)
    assert sent.order == WorkerOrder(OrderKind.GRANT, groups, None, version=1)
    assert coordinator(WorkerStarted(W1, 0)) == []  # said twice
    assert coordinator.machine.fleet.incarnation_up(W1) is None
    assert coordinator.machine.statistics()["workers"][W1] == ("starting", 0)
    (grant,) = coordinator(OrderDone(sent.number))
    assert isinstance(grant, GrantLane)
    assert coordinator.machine.fleet.incarnation_up(W1) == 0
    assert coordinator(WorkerStarted(W1, 0)) == []
    assert coordinator(OrderFailed(sent.number)) == []  # it has ended


def test_a_process_that_cannot_be_told_what_it_owns_is_replaced() -> None:
    coordinator = Coordinator()
    coordinator.begin(0, 0, lanes=4)
    for incarnation in range(STARTS_MAX - 1):
        (sent,) = coordinator(WorkerStarted(W1, incarnation))
        assert isinstance(sent, SendOrder)
        assert coordinator(OrderFailed(sent.number, "No reply.")) == [
            StopWorker(W1, incarnation),
            StartWorker(W1, incarnation + 1, DRIVER),
        ]
        assert coordinator(WorkerDown(W1, incarnation)) == []  # its end is no news
        assert coordinator(OrderDone(sent.number)) == []
    (sent,) = coordinator(WorkerStarted(W1, STARTS_MAX - 1))
    assert isinstance(sent, SendOrder)
    stop, *effects = coordinator(OrderFailed(sent.number, "No reply."))
    assert stop == StopWorker(W1, STARTS_MAX - 1)
    assert refused(effects, ServiceUnavailable)
    assert "No reply." in str(effects[0].error)  # type: ignore[union-attr]


def test_a_grant_of_a_process_that_has_ended_does_not_count() -> None:
    coordinator = Coordinator()
    (sent,) = coordinator(WorkerStarted(W1, 0))
    assert isinstance(sent, SendOrder)
    assert coordinator(WorkerDown(W1, 0)) == [StartWorker(W1, 1, DRIVER)]
    assert coordinator(OrderDone(sent.number)) == []
    assert coordinator.machine.fleet.incarnation_up(W1) is None
    assert coordinator.machine.fleet.incarnation_told(W1) is None


def test_success_forgives_failed_starts() -> None:
    coordinator = Coordinator()
    for incarnation in range(2 * STARTS_MAX):
        if incarnation % 2:
            coordinator.started(W1, incarnation)
        assert coordinator(WorkerDown(W1, incarnation)) == [
            StartWorker(W1, incarnation + 1, DRIVER)
        ]


def test_statistics_are_plain_values(coordinator: Coordinator) -> None:
    coordinator.batch(0)
    assert coordinator.machine.statistics() == {
        "routing_version": 1,
        "workers": {"w1": ("up", 0), "w2": ("up", 0)},
        "places": {"w1": "driver", "w2": "driver"},
        "committed": {OP: 0},
    }


def test_a_released_operator_begins_anew(coordinator: Coordinator) -> None:
    coordinator.begin(0)
    coordinator.register()  # defined again: what its query began still counts
    assert refused(coordinator.begin(3), IncompleteBatch)
    coordinator(OperatorRegistered(OP, is_released=True))
    assert refused(coordinator.begin(3, query="other"), EpochGap)
    assert base_of(coordinator.begin(0, query="other")) is None
    coordinator.begin(0, 1, query="other")


def test_an_operator_without_state_names_that_of_its_query() -> None:
    error = no_state("New", 3, ["Old", "Older"])
    assert "'Old', 'Older', which the program does not define" in str(error)
    assert "name='Old'" in str(error)
    assert "start_empty=['New']" in str(error)
    assert "holds state of this query" not in str(no_state("New", 3))
