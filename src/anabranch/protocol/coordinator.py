"""The coordinator's decisions: who may begin a batch, when an epoch is committed, who replaces whom.

Events in, effects out. The runtime performs the effects and feeds their outcome back as events.
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
from anabranch.model.ids import Epoch, Lane, WorkerId
from anabranch.model.routing import Routing, lane_groups
from anabranch.protocol.epochs import EpochPhase, EpochProgress, LaneReport, TransactionReport

STARTS_MAX = 3
"""Starts in a row that may fail before a worker is given up."""


# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorRegistered:
    """An operator of this run, with what its location holds."""

    operator: str
    query_id: str | None = None
    committed: Epoch | None = None
    before_committed: Epoch | None = None
    """Epoch that `committed` was built on; None: it was the operator's first."""


@dataclass(frozen=True, slots=True)
class LaneBegan:
    """A lane asks to begin; `request` identifies the caller that waits for the answer."""

    request: int
    operator: str
    query_id: str
    epoch: Epoch
    lane: Lane
    lanes: int


@dataclass(frozen=True, slots=True)
class LaneFinished:
    """A lane has all outputs; its transactions are durable."""

    request: int
    operator: str
    epoch: Epoch
    lane: Lane
    lanes: int
    report: LaneReport


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """The epoch's manifest is durable."""

    operator: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ManifestFailed:
    """The epoch's manifest could not be written."""

    operator: str
    epoch: Epoch
    error: AnabranchError


@dataclass(frozen=True, slots=True)
class WorkerUp:
    """A worker process is ready for transactions."""

    worker: WorkerId
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerDown:
    """A worker process has ended or does not answer."""

    worker: WorkerId
    incarnation: int
    reason: str = ""


Event = (
    OperatorRegistered
    | LaneBegan
    | LaneFinished
    | ManifestWritten
    | ManifestFailed
    | WorkerUp
    | WorkerDown
)


# --- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GrantLane:
    """Answer to LaneBegan: the owners of the lane's key groups and the state to start from."""

    request: int
    version: int
    owners: dict[WorkerId, tuple[int, ...]]
    incarnations: dict[WorkerId, int]
    base: Epoch | None
    """Epoch that the state must have before this one is applied; None: empty."""


@dataclass(frozen=True, slots=True)
class ConfirmFinish:
    """Answer to LaneFinished."""

    request: int


@dataclass(frozen=True, slots=True)
class RefuseRequest:
    """Answer to any request that cannot be served."""

    request: int
    error: AnabranchError


@dataclass(frozen=True, slots=True)
class BindQuery:
    """Remember durably which Spark query the operator's state belongs to."""

    operator: str
    query_id: str


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Make the epoch exist."""

    operator: str
    epoch: Epoch
    base: Epoch | None
    transactions: tuple[TransactionReport, ...]


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a process for the worker."""

    worker: WorkerId
    incarnation: int


Effect = GrantLane | ConfirmFinish | RefuseRequest | BindQuery | WriteManifest | StartWorker


# --- the machine -------------------------------------------------------------------------------


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
    base: Epoch | None = None
    """Epoch that `current` is built on."""
    current: EpochProgress | None = None
    writing: tuple[TransactionReport, ...] = ()
    waiting_commit: list[int] = field(default_factory=list)


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

    # -- operators and epochs --

    def _operator_registered(self, event: OperatorRegistered) -> list[Effect]:
        self.operators[event.operator] = OperatorView(
            event.query_id, event.committed, event.before_committed
        )
        return []

    def _lane_began(self, event: LaneBegan) -> list[Effect]:
        operator = self.operators[event.operator]
        error = self._begin_error(operator, event)
        if error is not None:
            return [RefuseRequest(event.request, error)]
        effects: list[Effect] = []
        if operator.query_id is None:
            operator.query_id = event.query_id
            effects.append(BindQuery(event.operator, event.query_id))
        current = operator.current
        if current is None or current.epoch != event.epoch or current.lanes != event.lanes:
            if current is None or current.epoch != event.epoch:
                operator.base = self._base_of(operator, event.epoch)
            operator.current = EpochProgress(event.epoch, event.lanes)
        effects.extend(self._grant_or_park(event))
        return effects

    def _begin_error(self, operator: OperatorView, event: LaneBegan) -> AnabranchError | None:
        if operator.query_id is not None and operator.query_id != event.query_id:
            return StateMismatch(
                f"The state of operator '{event.operator}' belongs to query {operator.query_id}, but "
                f"query {event.query_id} asked for it. Start the query with the checkpoint it had "
                "before, or give the operator another name (or another location) to start anew."
            )
        current = operator.current
        if current is not None and event.epoch == current.epoch:
            return None
        if current is not None and current.phase is not EpochPhase.COMMITTED:
            missing = current.missing()
            if event.epoch > current.epoch and missing:
                return IncompleteBatch(
                    f"Batch {event.epoch} of operator '{event.operator}' cannot begin: in batch "
                    f"{current.epoch} the tasks {missing} of {current.lanes} never ran to their end, so "
                    "their rows are not in the state. In foreachBatch, write or count the whole "
                    "DataFrame (not only head(), take() or limit()). Restart the query to run the "
                    "batch again."
                )
        committed = operator.committed
        if committed is None or event.epoch in (committed, committed + 1):
            return None
        direction = "ahead of" if event.epoch > committed else "behind"
        return EpochGap(
            f"Spark asked for batch {event.epoch} of operator '{event.operator}', {direction} its "
            f"state, which is at batch {committed}. Checkpoint and state location must be kept, "
            "copied and restored together: restore the ones that belong together."
        )

    @staticmethod
    def _base_of(operator: OperatorView, epoch: Epoch) -> Epoch | None:
        # An epoch that is executed again starts from the epoch before it.
        return operator.before_committed if operator.committed == epoch else operator.committed

    def _grant_or_park(self, event: LaneBegan) -> list[Effect]:
        groups = lane_groups(event.lane, event.lanes, len(self.routing.owners))
        owners = self.routing.by_owner(groups)
        views = {worker: self.workers[worker] for worker in owners}
        for worker, view in views.items():
            if view.phase is WorkerPhase.FAILED:
                error = ServiceUnavailable(
                    f"Worker {worker} could not be started {STARTS_MAX} times in a row: {view.reason} "
                    "See the worker's messages above, mend the cause and start the service again."
                )
                return [RefuseRequest(event.request, error)]
        if any(view.phase is not WorkerPhase.UP for view in views.values()):
            self.parked.append(event)
            return []
        operator = self.operators[event.operator]
        incarnations = {worker: view.incarnation for worker, view in views.items()}
        plain: dict[WorkerId, tuple[int, ...]] = dict(owners)  # type: ignore[arg-type]
        return [
            GrantLane(event.request, self.routing.version, plain, incarnations, operator.base)
        ]

    def _lane_finished(self, event: LaneFinished) -> list[Effect]:
        operator = self.operators[event.operator]
        current = operator.current
        if current is None or current.epoch != event.epoch or current.lanes != event.lanes:
            error = EpochGap(
                f"A task of batch {event.epoch} of operator '{event.operator}' finished after that "
                "batch had ended; its result is not used."
            )
            return [RefuseRequest(event.request, error)]
        known = current.finished.get(event.lane)
        current.finished[event.lane] = event.report
        if not current.is_complete:
            return [ConfirmFinish(event.request)]
        if current.phase is EpochPhase.COMMITTED and known == event.report:
            return [ConfirmFinish(event.request)]
        operator.waiting_commit.append(event.request)
        if current.phase is EpochPhase.COMMITTING:
            return []
        return [self._write_manifest(event.operator, operator, current)]

    @staticmethod
    def _write_manifest(name: str, operator: OperatorView, current: EpochProgress) -> Effect:
        current.phase = EpochPhase.COMMITTING
        operator.writing = current.transactions()
        return WriteManifest(name, current.epoch, operator.base, operator.writing)

    def _manifest_written(self, event: ManifestWritten) -> list[Effect]:
        operator = self.operators[event.operator]
        current = operator.current
        if current is None or current.epoch != event.epoch:
            raise ProtocolViolation(f"{event} without a running epoch: {current}")
        if operator.writing != current.transactions():  # a task ran again meanwhile
            return [self._write_manifest(event.operator, operator, current)]
        current.phase = EpochPhase.COMMITTED
        operator.committed, operator.before_committed = event.epoch, operator.base
        waiting, operator.waiting_commit = operator.waiting_commit, []
        return [ConfirmFinish(request) for request in waiting]

    def _manifest_failed(self, event: ManifestFailed) -> list[Effect]:
        operator = self.operators[event.operator]
        if operator.current is not None:
            operator.current.phase = EpochPhase.RUNNING
        waiting, operator.waiting_commit = operator.waiting_commit, []
        return [RefuseRequest(request, event.error) for request in waiting]

    # -- workers --

    def _worker_up(self, event: WorkerUp) -> list[Effect]:
        view = self.workers.get(event.worker)
        if view is None or view.incarnation != event.incarnation:
            return []  # a process that was replaced meanwhile
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
        return [effect for event in parked for effect in self._grant_or_park(event)]

    # -- observation --

    def statistics(self) -> dict[str, Any]:
        """Plain values for `status()` and tests."""
        return {
            "routing_version": self.routing.version,
            "workers": {w: (v.phase.value, v.incarnation) for w, v in self.workers.items()},
            "committed": {name: o.committed for name, o in self.operators.items()},
        }
