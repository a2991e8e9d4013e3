"""The coordinator's decisions: who may begin a batch, when an epoch exists, who replaces whom.

Events in, effects out. The runtime performs the effects and feeds their outcome back as events.
A batch can be executed several times, also with another number of lanes: each number of lanes is an
execution of its own, and the one whose lanes have all finished is written. One write at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import EpochGap, ProtocolViolation, ServiceUnavailable
from anabranch.model.host import DRIVER
from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.model.routing import Routing, lane_groups
from anabranch.protocol.coordinator_messages import (
    BatchesIdle,
    BatchesStuck,
    BindQuery,
    ConfirmFinish,
    Effect,
    Event,
    GrantLane,
    HostJoined,
    HostLost,
    HostsAwaited,
    LaneBegan,
    LaneFinished,
    ManifestFailed,
    ManifestWritten,
    MoveEnded,
    MoveRequested,
    OperatorRegistered,
    OrderDone,
    OrderFailed,
    RefuseRequest,
    SendOrder,
    StartWorker,
    StopWorker,
    Unreached,
    WorkerDown,
    WorkerStarted,
    WriteManifest,
)
from anabranch.protocol.epochs import EpochPhase, EpochProgress, TransactionReport
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.fleet import STARTS_MAX, Fleet, WorkerPhase, WorkerView
from anabranch.protocol.gate import Gate
from anabranch.protocol.lane_admission import begin_error, no_host, not_reached, unknown
from anabranch.protocol.move_context import MoveContext
from anabranch.protocol.move_orders import OrderKind, WorkerOrder
from anabranch.protocol.move_queue import MoveQueue
from anabranch.protocol.reachability import Reachability

__all__ = [
    "STARTS_MAX",
    "BatchesIdle",
    "BatchesStuck",
    "BindQuery",
    "ConfirmFinish",
    "CoordinatorMachine",
    "Effect",
    "Event",
    "GrantLane",
    "HostJoined",
    "HostLost",
    "HostsAwaited",
    "LaneBegan",
    "LaneFinished",
    "ManifestFailed",
    "ManifestWritten",
    "MoveEnded",
    "MoveRequested",
    "OperatorRegistered",
    "OperatorView",
    "OrderDone",
    "OrderFailed",
    "RefuseRequest",
    "SendOrder",
    "StartWorker",
    "StopWorker",
    "Unreached",
    "WorkerDown",
    "WorkerPhase",
    "WorkerStarted",
    "WorkerView",
    "WriteManifest",
]


@dataclass(slots=True)
class OperatorView:
    """One operator."""

    query_id: str | None
    committed: Epoch | None
    before_committed: Epoch | None
    first: Epoch | None = None
    """The operator's first epoch; matters until something is committed."""
    start_empty: bool = False
    restored: Epoch | None = None
    continues: bool = False
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
    has_ended: bool = False
    """Whether its query has ended since a lane began last."""

    @property
    def is_in_batch(self) -> bool:
        """Whether a batch runs: it has begun and does not exist yet."""
        if self.writing is not None:
            return True
        if self.current is None or self.has_ended:
            return False
        return self.current.epoch != self.committed

    def is_due(self, query_id: str | None, epoch: Epoch) -> bool:
        """Whether it works on a batch of the query, or will: it is further down than others."""
        if self.query_id != query_id or self.current is None or self.has_ended:
            return False
        if self.current.epoch >= epoch:  # else it has been left behind, by a query without it
            return self.is_in_batch
        return self.committed is not None and self.committed == epoch - 1


@dataclass(slots=True)
class CoordinatorMachine:
    """State of the coordinator; `handle` is the only way to change it."""

    routing: Routing
    fleet: Fleet = field(default_factory=Fleet)
    operators: dict[str, OperatorView] = field(default_factory=dict)
    parked: list[LaneBegan] = field(default_factory=list)
    missing: dict[int, WorkerId] = field(default_factory=dict)
    """By request of parked lanes: an owner that is not up. Others wait for something else."""
    gate: Gate | None = None
    shadows: dict[KeyGroup, WorkerId] = field(default_factory=dict)
    """Key groups whose rows go to a future owner too."""
    moves: MoveQueue = field(init=False)
    order_ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    reachability: Reachability = field(default_factory=Reachability)
    idle: Mapping[KeyGroup, int] | None = None
    """Bytes of key groups since it was said that no batch runs; None: one has begun since."""

    def __post_init__(self) -> None:
        self.moves = MoveQueue(MoveContext(self), self.order_ids)

    @classmethod
    def create(
        cls, routing: Routing, hosts: Iterable[HostJoined] = (HostJoined(DRIVER, None, {}),)
    ) -> tuple[CoordinatorMachine, list[Effect]]:
        """A new coordinator and the effects that start its workers, if there are hosts already."""
        machine = cls(routing)
        for host in hosts:
            machine.fleet.joined(host)  # no worker is there yet
        return machine, machine.fleet.start(dict.fromkeys(routing.owners))

    @property
    def workers(self) -> dict[WorkerId, WorkerView]:
        """Every worker as it is known here."""
        return self.fleet.workers

    def handle(self, event: Event) -> list[Effect]:
        """Take one event and say what to do."""
        match event:
            case OperatorRegistered():
                return self._operator_registered(event)
            case LaneBegan():
                # First what it says: no lane is sent to a worker that is about to be replaced.
                return self._replace_unreached(event) + self._lane_began(event)
            case LaneFinished():
                return self._lane_finished(event)
            case ManifestWritten():
                return self._manifest_written(event)
            case ManifestFailed():
                return self._manifest_failed(event)
            case WorkerStarted():
                return self._worker_started(event)
            case WorkerDown():
                return self._worker_down(event)
            case HostJoined():
                return self._hosts_changed(self.fleet.joined(event))
            case HostLost():
                return self._hosts_changed(self.fleet.host_lost(event))
            case HostsAwaited():
                return self._hosts_awaited(event)
            case MoveRequested():
                return self._move_requested(event)
            case OrderDone() | OrderFailed():
                return self._order_ended(event)
            case BatchesIdle():
                return self._idle(event)
            case BatchesStuck():
                return self.moves.stuck(event.reason)
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
            event.restored,
            event.continues,
        )
        self.operators[event.operator] = view
        if old is None:
            return []
        if view.first is None and not event.is_released:
            view.first = old.first
        view.writing = old.writing  # it cannot be called back: the next write waits for its end
        error = ServiceUnavailable(
            "The operator was defined again; this task's result is not used."
        )
        refusals: list[Effect] = [RefuseRequest(t.request, error) for t in old.waiting_commit]
        return refusals + self.moves.epoch_passed()  # nobody waits for its batch any more

    def _lane_began(self, event: LaneBegan) -> list[Effect]:
        operator = self.operators.get(event.operator)
        if operator is None:
            return [RefuseRequest(event.request, unknown(event.operator))]
        error = begin_error(operator, event)
        if error is not None:
            return [RefuseRequest(event.request, error)]
        self.idle = None
        if self.gate is not None and self.gate.holds(event, len(self.routing.owners)):
            if event.request not in self.gate.held:
                self.gate.held.add(event.request)
                self.moves.count("begins_held")
            self.parked.append(event)
            return []
        operator.has_ended = False
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

    def _replace_unreached(self, event: LaneBegan) -> list[Effect]:
        """Processes that most lanes do not reach get successors on other hosts."""
        lost = self.reachability.heard(event, self.fleet)
        return [*self.fleet.leave_hosts(lost), *self.moves.poll()] if lost else []

    def _grant_or_park(self, event: LaneBegan, base: Epoch | None) -> list[Effect]:
        groups = lane_groups(event.lane, event.lanes, len(self.routing.owners))
        owners = self.routing.by_owner(groups)
        views = {worker: self.workers[worker] for worker in owners}
        for worker, view in views.items():
            if view.phase is WorkerPhase.FAILED:
                error = ServiceUnavailable(
                    f"Worker {worker} could not be started {STARTS_MAX} times in a row: "
                    f"{view.reason} See the worker's messages above, fix the cause and start the "
                    "service again."
                )
                return [RefuseRequest(event.request, error)]
        missing = next((w for w, v in views.items() if v.phase is not WorkerPhase.UP), None)
        if missing is not None:
            self.parked.append(event)
            self.missing[event.request] = missing
            return []
        incarnations = {worker: view.incarnation for worker, view in views.items()}
        plain: dict[WorkerId, tuple[int, ...]] = dict(owners)
        shadows: dict[WorkerId, tuple[int, ...]] = {}
        for group in groups if self.shadows else ():
            future = self.shadows.get(group)
            incarnation = None if future is None else self.fleet.incarnation_up(future)
            if future is not None and incarnation is not None:
                shadows[future] = (*shadows.get(future, ()), group)
                incarnations[future] = incarnation
        version = self.routing.version
        relays, stranded = self.reachability.ways(event.host, owners, self.fleet)
        if stranded:
            return [RefuseRequest(event.request, not_reached(self.fleet, event.host, stranded))]
        for relay in relays.values():
            incarnations[relay] = self.workers[relay].incarnation
        return [GrantLane(event.request, version, plain, incarnations, base, shadows, relays)]

    def _lane_finished(self, event: LaneFinished) -> list[Effect]:
        operator = self.operators.get(event.operator)
        if operator is None:
            return [RefuseRequest(event.request, unknown(event.operator))]
        execution = operator.executions.get(event.lanes)
        if execution is None or execution.epoch != event.epoch:
            error = EpochGap(
                f"A task of batch {event.epoch} of operator '{event.operator}' finished after that "
                "batch had ended; its result is not used."
            )
            return [RefuseRequest(event.request, error)]
        self.idle = None  # a task of a query that counted as ended
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
        self.reachability.committed()
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
        effects.extend(self.retry_parked())
        is_over = not any(
            o.is_due(operator.query_id, writing.epoch) for o in self.operators.values()
        )
        return effects + (self.moves.epoch_passed() if is_over else self.moves.poll())

    def _manifest_failed(self, event: ManifestFailed) -> list[Effect]:
        operator, _ = self._written(event)
        operator.manifest = None  # it may have been written all the same
        for execution in operator.executions.values():
            execution.phase = EpochPhase.RUNNING
        waiting, operator.waiting_commit = operator.waiting_commit, []
        refusals: list[Effect] = [RefuseRequest(late.request, event.error) for late in waiting]
        return refusals + self.retry_parked()

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

    def _worker_started(self, event: WorkerStarted) -> list[Effect]:
        """Tell a process what it owns; what flips from now on is released like anywhere else."""
        number, worker = next(self.order_ids), event.worker
        if not self.fleet.started(event, number):
            return []
        groups, version = self.routing.groups_of(worker), self.routing.version
        grant = WorkerOrder(OrderKind.GRANT, groups, version=version)
        return [SendOrder(number, worker, event.incarnation, grant)]

    def _order_ended(self, event: OrderDone | OrderFailed) -> list[Effect]:
        worker = self.fleet.granted_by(event.order)
        if worker is None:
            return self.moves.order_ended(event)
        if isinstance(event, OrderFailed):
            return self._not_granted(worker, event)
        self.fleet.up(worker)
        return [*self._retry_without(worker), *self.moves.poll()]

    def _not_granted(self, worker: WorkerId, event: OrderFailed) -> list[Effect]:
        """Perhaps it knows what it owns, perhaps not: another process takes its place."""
        incarnation = self.workers[worker].incarnation
        reason = f"It was not told which key groups it owns: {event.reason}"
        down = WorkerDown(worker, incarnation, reason)
        return [StopWorker(worker, incarnation), *self._worker_down(down)]

    def _worker_down(self, event: WorkerDown) -> list[Effect]:
        effects = self.fleet.down(event)
        if self.fleet.is_given_up(event.worker):
            effects.extend(self.retry_parked())
        return effects + self.moves.poll()

    def _hosts_changed(self, effects: list[Effect]) -> list[Effect]:
        return effects + self.moves.poll()

    def _hosts_awaited(self, event: HostsAwaited) -> list[Effect]:
        """Lanes that begin later wait again; so do moves that are asked for later."""
        error = no_host(self.fleet, event.reason)
        parked, self.parked = self.parked, []
        effects: list[Effect] = []
        for lane in parked:
            groups = lane_groups(lane.lane, lane.lanes, len(self.routing.owners))
            owners = self.routing.by_owner(groups)
            if any(self.fleet.is_waiting(worker) for worker in owners):
                effects.append(RefuseRequest(lane.request, error))
                self.missing.pop(lane.request, None)
            else:
                self.parked.append(lane)
        return effects + self.moves.hosts_awaited(event.reason)

    # -- moves --

    def _move_requested(self, event: MoveRequested) -> list[Effect]:
        if event.idle is not None:
            self._note_idle(event.idle)
        return self.moves.request(event)

    def _idle(self, event: BatchesIdle) -> list[Effect]:
        self._note_idle(event)
        return self.moves.epoch_passed()

    def _note_idle(self, event: BatchesIdle) -> None:
        for name in event.ended:
            if name in self.operators:
                self.operators[name].has_ended = True
        if not any(operator.is_in_batch for operator in self.operators.values()):
            self.idle = {**(self.idle or {}), **event.bytes_of}

    def retry_parked(self) -> list[Effect]:
        """Judge lanes anew that were held back."""
        parked, self.parked, self.missing = self.parked, [], {}
        return [effect for event in parked for effect in self._lane_began(event)]

    def _retry_without(self, worker: WorkerId) -> list[Effect]:
        """Judge lanes anew, except those that wait for another worker.

        When workers start, each of them is looked at by few lanes only.
        """
        parked, self.parked = self.parked, []
        effects: list[Effect] = []
        for event in parked:
            if self.missing.get(event.request, worker) == worker:
                self.missing.pop(event.request, None)
                effects.extend(self._lane_began(event))
            else:
                self.parked.append(event)
        return effects

    # -- observation --

    def statistics(self) -> dict[str, Any]:
        """Plain values for `status()` and tests."""
        return {
            "routing_version": self.routing.version,
            "workers": {w: (v.phase.value, v.restarts) for w, v in self.workers.items()},
            "places": {worker: view.place for worker, view in self.workers.items()},
            "committed": {name: o.committed for name, o in self.operators.items()},
        }


def _base_of(operator: OperatorView, epoch: Epoch) -> Epoch | None:
    # An epoch that is executed again starts from the epoch before it.
    return operator.before_committed if operator.committed == epoch else operator.committed


def _is_written(operator: OperatorView, execution: EpochProgress) -> bool:
    return operator.committed == execution.epoch and operator.manifest == execution.transactions()


def _write(operator: OperatorView, name: str, execution: EpochProgress) -> Effect:
    execution.phase = EpochPhase.COMMITTING
    operator.writing = WriteManifest(name, execution.epoch, operator.base, execution.transactions())
    return operator.writing
