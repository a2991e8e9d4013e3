"""The coordinator's decisions: who may begin a batch, when an epoch exists, who replaces whom.

Events in, effects out. The runtime performs the effects and feeds their outcome back as events.
A batch can be executed several times, also with another number of lanes: each number of lanes is an
execution of its own, and the one whose lanes have all finished is written. One write at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from anabranch.errors import (
    AnabranchError,
    EpochGap,
    IncompleteBatch,
    ProtocolViolation,
    ServiceUnavailable,
    StateMismatch,
)
from anabranch.model.ids import Epoch, WorkerId
from anabranch.model.routing import Routing, lane_groups
from anabranch.protocol.coordinator_messages import (
    BindQuery,
    ConfirmFinish,
    Effect,
    Event,
    GrantLane,
    LaneBegan,
    LaneFinished,
    ManifestFailed,
    ManifestWritten,
    OperatorRegistered,
    RefuseRequest,
    StartWorker,
    WorkerDown,
    WorkerUp,
    WriteManifest,
)
from anabranch.protocol.epochs import EpochPhase, EpochProgress, TransactionReport
from anabranch.protocol.exhaustive import unhandled

__all__ = [
    "STARTS_MAX",
    "BindQuery",
    "ConfirmFinish",
    "CoordinatorMachine",
    "Effect",
    "Event",
    "GrantLane",
    "LaneBegan",
    "LaneFinished",
    "ManifestFailed",
    "ManifestWritten",
    "OperatorRegistered",
    "OperatorView",
    "RefuseRequest",
    "StartWorker",
    "WorkerDown",
    "WorkerPhase",
    "WorkerUp",
    "WorkerView",
    "WriteManifest",
]

STARTS_MAX = 3
"""Starts in a row that may fail before a worker is given up."""


class WorkerPhase(Enum):
    """A worker process as the coordinator knows it."""

    STARTING = "starting"
    UP = "up"
    FAILED = "failed"


@dataclass(slots=True)
class WorkerView:
    """One worker."""

    phase: WorkerPhase = WorkerPhase.STARTING
    incarnation: int = 0
    failed_starts: int = 0
    reason: str = ""


@dataclass(slots=True)
class OperatorView:
    """One operator."""

    query_id: str | None
    committed: Epoch | None
    before_committed: Epoch | None
    first: Epoch | None = None
    """The operator's first epoch; matters until something is committed."""
    start_empty: bool = False
    base: Epoch | None = None
    """Epoch that `current` is built on."""
    current: EpochProgress | None = None
    """The execution that began last."""
    executions: dict[int, EpochProgress] = field(default_factory=dict)
    """All executions of the current epoch, by number of lanes."""
    writing: WriteManifest | None = None
    """The write that is under way."""
    manifest: tuple[TransactionReport, ...] | None = None
    """What the manifest of `committed` lists; None: not known in this run."""
    waiting_commit: list[LaneFinished] = field(default_factory=list)


@dataclass(slots=True)
class CoordinatorMachine:
    """State of the coordinator; `handle` is the only way to change it."""

    routing: Routing
    workers: dict[WorkerId, WorkerView]
    operators: dict[str, OperatorView] = field(default_factory=dict)
    parked: list[LaneBegan] = field(default_factory=list)

    @classmethod
    def create(cls, routing: Routing) -> tuple[CoordinatorMachine, list[Effect]]:
        """A new coordinator and the effects that start its workers."""
        workers = {worker: WorkerView() for worker in dict.fromkeys(routing.owners)}
        return cls(routing, workers), [StartWorker(worker, 0) for worker in workers]

    def handle(self, event: Event) -> list[Effect]:
        """Take one event and say what to do."""
        match event:
            case OperatorRegistered():
                return self._operator_registered(event)
            case LaneBegan():
                return self._lane_began(event)
            case LaneFinished():
                return self._lane_finished(event)
            case ManifestWritten():
                return self._manifest_written(event)
            case ManifestFailed():
                return self._manifest_failed(event)
            case WorkerUp():
                return self._worker_up(event)
            case WorkerDown():
                return self._worker_down(event)
            case _:
                unhandled(event)

    # -- operators and epochs --

    def _operator_registered(self, event: OperatorRegistered) -> list[Effect]:
        old = self.operators.get(event.operator)
        view = OperatorView(
            event.query_id,
            event.committed,
            event.before_committed,
            event.first,
            event.start_empty,
        )
        self.operators[event.operator] = view
        if old is None:
            return []
        if view.first is None:
            view.first = old.first
        view.writing = old.writing  # it cannot be called back: the next write waits for its end
        error = ServiceUnavailable("The operator was defined anew; this task's result is not used.")
        return [RefuseRequest(late.request, error) for late in old.waiting_commit]

    def _lane_began(self, event: LaneBegan) -> list[Effect]:
        operator = self.operators.get(event.operator)
        if operator is None:
            return [RefuseRequest(event.request, _unknown(event.operator))]
        error = _begin_error(operator, event)
        if error is not None:
            return [RefuseRequest(event.request, error)]
        effects: list[Effect] = []
        if operator.query_id is None or (operator.committed is None and operator.first is None):
            operator.query_id, operator.first = event.query_id, event.epoch
            effects.append(BindQuery(event.operator, event.query_id, event.epoch))
        if operator.current is None or operator.current.epoch != event.epoch:
            if operator.writing is not None and operator.writing.epoch != event.epoch:
                self.parked.append(event)  # what this epoch is built on is being written again
                return effects
            operator.base = _base_of(operator, event.epoch)
            operator.executions = {}
        fresh = EpochProgress(event.epoch, event.lanes)
        operator.current = operator.executions.setdefault(event.lanes, fresh)
        return effects + self._grant_or_park(event, operator.base)

    def _grant_or_park(self, event: LaneBegan, base: Epoch | None) -> list[Effect]:
        groups = lane_groups(event.lane, event.lanes, len(self.routing.owners))
        owners = self.routing.by_owner(groups)
        views = {worker: self.workers[worker] for worker in owners}
        for worker, view in views.items():
            if view.phase is WorkerPhase.FAILED:
                error = ServiceUnavailable(
                    f"Worker {worker} could not be started {STARTS_MAX} times in a row: "
                    f"{view.reason} See the worker's messages above, mend the cause and start the "
                    "service again."
                )
                return [RefuseRequest(event.request, error)]
        if any(view.phase is not WorkerPhase.UP for view in views.values()):
            self.parked.append(event)
            return []
        incarnations = {worker: view.incarnation for worker, view in views.items()}
        plain: dict[WorkerId, tuple[int, ...]] = dict(owners)
        return [GrantLane(event.request, self.routing.version, plain, incarnations, base)]

    def _lane_finished(self, event: LaneFinished) -> list[Effect]:
        operator = self.operators.get(event.operator)
        if operator is None:
            return [RefuseRequest(event.request, _unknown(event.operator))]
        execution = operator.executions.get(event.lanes)
        if execution is None or execution.epoch != event.epoch:
            error = EpochGap(
                f"A task of batch {event.epoch} of operator '{event.operator}' finished after that "
                "batch had ended; its result is not used."
            )
            return [RefuseRequest(event.request, error)]
        execution.finished[event.lane] = event.report
        if not execution.is_complete or _is_written(operator, execution):
            return [ConfirmFinish(event.request)]
        operator.waiting_commit.append(event)
        if operator.writing is not None:
            return []
        return [_write(operator, event.operator, execution)]

    def _manifest_written(self, event: ManifestWritten) -> list[Effect]:
        operator, writing = self._written(event)
        operator.committed, operator.before_committed = writing.epoch, writing.base
        operator.manifest = writing.transactions
        for execution in operator.executions.values():
            is_written = _is_written(operator, execution)
            execution.phase = EpochPhase.COMMITTED if is_written else EpochPhase.RUNNING
        effects: list[Effect] = []
        behind: list[LaneFinished] = []  # a task ran again, or with other lanes, meanwhile
        for waiting in operator.waiting_commit:
            if operator.executions[waiting.lanes].phase is EpochPhase.COMMITTED:
                effects.append(ConfirmFinish(waiting.request))
            else:
                behind.append(waiting)
        operator.waiting_commit = behind
        if behind:
            execution = operator.executions[behind[0].lanes]
            effects.append(_write(operator, event.operator, execution))
        return effects + self._retry_parked()

    def _manifest_failed(self, event: ManifestFailed) -> list[Effect]:
        operator, _ = self._written(event)
        operator.manifest = None  # it may have been written all the same
        for execution in operator.executions.values():
            execution.phase = EpochPhase.RUNNING
        waiting, operator.waiting_commit = operator.waiting_commit, []
        refusals: list[Effect] = [RefuseRequest(late.request, event.error) for late in waiting]
        return refusals + self._retry_parked()

    def _written(
        self, event: ManifestWritten | ManifestFailed
    ) -> tuple[OperatorView, WriteManifest]:
        operator = self.operators.get(event.operator)
        writing = operator.writing if operator is not None else None
        if operator is None or writing is None or writing.epoch != event.epoch:
            raise ProtocolViolation(f"{event} without a write that is under way: {operator}")
        operator.writing = None
        return operator, writing

    # -- workers --

    def _worker_up(self, event: WorkerUp) -> list[Effect]:
        view = self.workers.get(event.worker)
        if view is None or view.incarnation != event.incarnation:
            return []  # a process that was replaced meanwhile
        if view.phase is WorkerPhase.FAILED:
            return []  # given up, and said so to lanes
        view.phase = WorkerPhase.UP
        view.failed_starts = 0
        return self._retry_parked()

    def _worker_down(self, event: WorkerDown) -> list[Effect]:
        view = self.workers.get(event.worker)
        if view is None or view.incarnation != event.incarnation:
            return []
        if view.phase is WorkerPhase.STARTING:
            view.failed_starts += 1
        view.reason = event.reason
        if view.failed_starts >= STARTS_MAX:
            view.phase = WorkerPhase.FAILED
            return self._retry_parked()
        view.incarnation += 1
        view.phase = WorkerPhase.STARTING
        return [StartWorker(event.worker, view.incarnation)]

    def _retry_parked(self) -> list[Effect]:
        parked, self.parked = self.parked, []
        return [effect for event in parked for effect in self._lane_began(event)]

    # -- observation --

    def statistics(self) -> dict[str, Any]:
        """Plain values for `status()` and tests."""
        return {
            "routing_version": self.routing.version,
            "workers": {w: (v.phase.value, v.incarnation) for w, v in self.workers.items()},
            "committed": {name: o.committed for name, o in self.operators.items()},
        }


def _unknown(operator: str) -> AnabranchError:
    return ServiceUnavailable(
        f"Operator '{operator}' is not known to this service. Start the query anew from the "
        "program that defines the operator."
    )


def _begin_error(operator: OperatorView, event: LaneBegan) -> AnabranchError | None:
    if operator.query_id is not None and operator.query_id != event.query_id:
        return StateMismatch(
            f"The state of operator '{event.operator}' belongs to query {operator.query_id}, but "
            f"query {event.query_id} asked for it. Start the query with the checkpoint it had "
            "before, or give the operator another name (or another location) to start anew."
        )
    current, committed = operator.current, operator.committed
    if current is not None:
        if event.epoch == current.epoch:
            return None
        if event.epoch < current.epoch:
            return EpochGap(
                f"Batch {event.epoch} of operator '{event.operator}' has ended: batch "
                f"{current.epoch} has begun. This task is late and its result is not used."
            )
        if committed != current.epoch:
            return _incomplete(event, current.epoch, current)
    first = operator.first
    if committed is None and first is not None and event.epoch > first:
        return _incomplete(event, first, current)  # it began before a restart
    if committed is None and first is None and event.epoch > 0 and not operator.start_empty:
        return _no_state(event)
    if committed is None or event.epoch in (committed, committed + 1):
        return None
    direction = "ahead of" if event.epoch > committed else "behind"
    return EpochGap(
        f"Spark asked for batch {event.epoch} of operator '{event.operator}', {direction} its "
        f"state, which is at batch {committed}. Checkpoint and state location must be kept, "
        "copied and restored together: restore the ones that belong together."
    )


def _no_state(event: LaneBegan) -> AnabranchError:
    return EpochGap(
        f"Spark asked for batch {event.epoch} of operator '{event.operator}', but the state "
        "location holds nothing of it. If its state is elsewhere (another location or name), "
        "point to it. If foreachBatch did not use its DataFrame in the first batch, let it, and "
        "start the query with a new checkpoint. If the operator is new in this query and shall "
        f"start empty here, say StateService(..., start_empty=['{event.operator}'])."
    )


def _incomplete(event: LaneBegan, epoch: Epoch, execution: EpochProgress | None) -> AnabranchError:
    if execution is None:
        cause = "not all tasks ran to their end"
    elif missing := execution.missing():
        cause = f"the tasks {missing} of {execution.lanes} never ran to their end"
    else:
        cause = "the state could not be saved"
    return IncompleteBatch(
        f"Batch {event.epoch} of operator '{event.operator}' cannot begin: in batch "
        f"{epoch} {cause}, so its rows are not in the state. In foreachBatch, write or "
        "count the whole DataFrame (not only head(), take() or limit()) and let errors pass. "
        "To run that batch again, stop the query, remove the files "
        f"offsets/{event.epoch} and commits/{epoch} from its checkpoint and start it."
    )


def _base_of(operator: OperatorView, epoch: Epoch) -> Epoch | None:
    # An epoch that is executed again starts from the epoch before it.
    return operator.before_committed if operator.committed == epoch else operator.committed


def _is_written(operator: OperatorView, execution: EpochProgress) -> bool:
    return operator.committed == execution.epoch and operator.manifest == execution.transactions()


def _write(operator: OperatorView, name: str, execution: EpochProgress) -> Effect:
    execution.phase = EpochPhase.COMMITTING
    operator.writing = WriteManifest(name, execution.epoch, operator.base, execution.transactions())
    return operator.writing
