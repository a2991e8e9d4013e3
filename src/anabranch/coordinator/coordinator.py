"""The coordinator, in the Spark driver: answers lanes, commits epochs, keeps workers running."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa

from anabranch.coordinator import steady_clock
from anabranch.coordinator.batch_watch import BatchWatch
from anabranch.coordinator.epoch_writer import EpochWriter
from anabranch.coordinator.lookup_client import LookupClient
from anabranch.coordinator.maintenance import Maintenance
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.operator_record import (
    OperatorRecord,
    describe,
    install_message,
    registered,
)
from anabranch.coordinator.query_clock import QueryClock
from anabranch.durability.store import StateStore
from anabranch.errors import AnabranchError, InvalidArgument, ServiceUnavailable, unexpected
from anabranch.model.ids import WorkerId
from anabranch.model.keyspace import KeySpace
from anabranch.model.routing import initial_routing
from anabranch.processes.crash_points import crash_point
from anabranch.processes.launcher import Launcher
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processes.worker_pool import WorkerPool
from anabranch.processor.contract import BatchTimes, OperatorDefinition
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.epochs import LaneReport
from anabranch.protocol.exhaustive import unhandled
from anabranch.transport.auth import new_token
from anabranch.transport.client import Peer
from anabranch.transport.codec import different_versions
from anabranch.transport.messages import lanes
from anabranch.transport.messages.control import Install
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.names import NAMES, Request, WorkerCall
from anabranch.transport.server import Reply, Server

_log = logging.getLogger("anabranch.coordinator")

LaneAnswer = protocol.GrantLane | protocol.ConfirmFinish


class Coordinator:
    """Handler of the driver's server (transport: Handler) and interpreter of the protocol."""

    def __init__(
        self,
        store: StateStore,
        launcher: Launcher,
        clock: QueryClock,
        keyspace: KeySpace,
        workers: int,
        make_config: Callable[..., WorkerConfig],
        host: str,
        start_empty: Collection[str] = (),
        checkpoint: str = "changelog",
    ) -> None:
        self._start_empty = frozenset(start_empty)
        self.token = new_token()
        self.keyspace = keyspace
        self._store = store
        self._clock = clock
        self._run_id = secrets.token_hex(4)
        self._lock = threading.RLock()
        self.store_lock = threading.Lock()
        """Guards the store."""
        self._operators: dict[str, OperatorRecord] = {}
        self._requests: dict[int, Future[LaneAnswer]] = {}
        self._request_ids = itertools.count(1)
        self._definition_ids = itertools.count(1)
        self._stopped = False
        names = [WorkerId(f"w{n}") for n in range(1, workers + 1)]
        self._machine, effects = protocol.CoordinatorMachine.create(
            initial_routing(keyspace.groups, names)
        )
        self._pool = WorkerPool(
            launcher,
            lambda worker, incarnation: make_config(
                worker=worker, incarnation=f"{self._run_id}-{incarnation}", token=self.token
            ),
            self._worker_started,
            lambda worker, incarnation, reason: self._dispatch(
                protocol.WorkerDown(worker, incarnation, reason)
            ),
        )
        bins = keyspace.groups * keyspace.bins
        self._maintenance = Maintenance(
            store, self.store_lock, self._pool, lambda: self.moves.is_moving, bins
        )
        self._epochs = EpochWriter(
            store, self._maintenance, self._machine, self._operators, keyspace, checkpoint
        )
        self.moves = MoveRunner(
            self._machine,
            self._lock,
            self._dispatch,
            self._pool,
            BatchWatch(self._machine, self._lock, self._operators, clock.is_running),
            self._maintenance.publish,
        )
        self.lookups = LookupClient(
            self._machine, self._lock, self._pool, self._operators, keyspace
        )
        self._server = Server(host, self.token, self)
        self.address = self._server.address
        self._perform(effects)

    # -- for the service --

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of those that were defined."""
        with self._lock:
            return tuple(self._operators)

    def register(self, name: str, definition: OperatorDefinition, initial: list[str]) -> int:
        """Make an operator known to the protocol and to all workers.

        Returns the number of this definition: lanes of an earlier one of the same name are refused.
        """
        with self.store_lock:
            record = self._store.open_operator(
                name, definition.description, self.keyspace, definition.unreadable
            )
        definition_id = next(self._definition_ids)
        is_restored = record.restored_epoch is not None
        install = install_message(name, definition_id, definition, is_restored)
        if is_restored:
            initial = []  # it is in the savepoint's state
        with self._lock:
            self._operators[name] = OperatorRecord(
                name, definition, install, initial, definition_id, is_restored
            )
        self.announce(name)
        for worker, peer in self._pool.peers().items():
            try:
                self._install(worker, peer, install)
            except ServiceUnavailable as error:  # its replacement gets the operator when it starts
                _log.info("Worker %s went away while it was started: %s", worker, error)
        return definition_id

    def _install(self, worker: WorkerId, peer: Peer, install: Install) -> None:
        """A worker that a rescale has added imports its libraries beside batches of the others."""
        with self._lock:
            owns_nothing = worker not in self._machine.routing.owners
        peer.call(replace(install, in_background=owns_nothing))

    def announce(self, name: str) -> None:
        """Tell the protocol what the location holds of an operator."""
        with self.store_lock:
            record = self._store.operator(name)
            epochs = self._store.epochs(name)
            self._operators[name].exists(self._store.last(name))
        self._dispatch(registered(record, epochs, name in self._start_empty))

    def has_begun(self, name: str) -> bool:
        """Whether a batch of the operator's present definition has begun."""
        with self._lock:
            operator = self._operators.get(name)
            return operator is not None and operator.begun_epoch >= 0

    def query_of(self, name: str) -> str | None:
        """The query that an operator of this run belongs to, once it is known."""
        with self._lock:
            view = self._machine.operators.get(name)
            return view.query_id if view is not None else None

    def status(self) -> dict[str, Any]:
        """Plain values about workers and operators."""
        with self._lock:
            summary = self._machine.statistics()
            routing = self._machine.routing
            operators = dict(self._operators)
        picture = describe(summary, routing, operators, self._pool)
        return {**picture, "reconfiguration": self.moves.running()}

    def pids(self) -> dict[WorkerId, int]:
        """Process ids of the workers."""
        return self._pool.pids()

    def stop(self) -> None:
        """End workers, threads and the server."""
        self._stopped = True
        with self._lock:
            waiting, self._requests = self._requests, {}
        for future in waiting.values():
            future.set_exception(ServiceUnavailable("The state service was stopped."))
        self.moves.stop()
        self._maintenance.stop()
        self._pool.stop()
        self._server.stop()

    # -- calls --

    def call(self, request: Request) -> object:
        """Calls of lanes and of the tick source."""
        match request:
            case lanes.Begin():
                return self._begin(request)
            case lanes.Finish():
                return self._finish(request)
            case lanes.Tick():
                return lanes.TickDue(self._is_tick_due(request.operator))
            case _:
                raise _misdirected(request)

    def exchange(self, header: lanes.TransactionHeader, rows: Iterator[pa.RecordBatch]) -> Reply:
        """Lanes send rows to workers only."""
        raise InvalidArgument("Rows go to a worker, not to the coordinator.")

    def _begin(self, request: lanes.Begin) -> lanes.LaneGrant:
        name, epoch = request.operator, request.epoch
        if name not in self._operators:
            raise ServiceUnavailable(f"Operator '{name}' is not registered in this service.")
        operator = self._operators[name]
        if operator.definition_id != request.definition:
            raise InvalidArgument(
                f"Operator '{name}' was defined again after this query was built. Start a query "
                "from the newest DataFrame, and give operators of one query names of their own."
            )
        asked, is_first = steady_clock.now(), not request.is_retry
        if is_first:
            operator.check_begin(epoch, request.attempt)
        granted = self._request(
            lambda number: protocol.LaneBegan(
                number, name, request.query_id, epoch, request.lane, request.lanes
            )
        )
        assert isinstance(granted, protocol.GrantLane)
        times = self._times(operator, request.query_id, epoch)
        if is_first:
            with self._lock:  # only now: what is refused, or parked, changes nothing
                operator.note_begin(epoch, request.attempt, asked)
        waits = operator.waits(epoch, bool(granted.shadows))
        return lanes.LaneGrant(
            granted.version,
            granted.base,
            self._addresses(granted, granted.owners),
            self._addresses(granted, granted.shadows),
            times,
            tuple(operator.initial),
            None if waits is None else tuple(waits),
        )

    def _addresses(
        self, granted: protocol.GrantLane, groups_of: dict[WorkerId, tuple[int, ...]]
    ) -> tuple[lanes.LaneOwner, ...]:
        return tuple(
            lanes.LaneOwner(
                worker, self._pool.address(worker, granted.incarnations[worker]), groups
            )
            for worker, groups in groups_of.items()
        )

    def _times(self, operator: OperatorRecord, query_id: str, epoch: int) -> BatchTimes:
        with self._lock:
            if operator.times is None or operator.times[0] != epoch:
                times = self._clock.times(operator.name, query_id, epoch)
                operator.times = epoch, times
            return operator.times[1]

    def _finish(self, request: lanes.Finish) -> Nothing:
        operator = self._operators[request.operator]
        operator.note_finish(request.lane, request.stats)
        report = LaneReport(tuple(done.report for done in request.transactions))
        self._request(
            lambda number: protocol.LaneFinished(
                number, operator.name, request.epoch, request.lane, request.lanes, report
            )
        )
        return Nothing()

    def _is_tick_due(self, name: str) -> bool:
        query_id = self.query_of(name)
        return query_id is not None and self._clock.wants_batch(name, query_id)

    def _request(self, make_event: Callable[[int], protocol.Event]) -> LaneAnswer:
        number, future = next(self._request_ids), Future[LaneAnswer]()
        with self._lock:
            if self._stopped:
                raise ServiceUnavailable("The state service was stopped.")
            self._requests[number] = future
        try:
            self._dispatch(make_event(number))
        except BaseException:
            self._requests.pop(number, None)
            raise
        return future.result()

    # -- protocol --

    def _dispatch(self, event: protocol.Event) -> None:
        if self._stopped:
            return
        with self._lock:
            effects = self._machine.handle(event)
            self.moves.gate.look(self._machine.gate is not None)
        self._perform(effects)

    def _perform(self, effects: list[protocol.Effect]) -> None:
        for effect in effects:
            match effect:
                case protocol.GrantLane() | protocol.ConfirmFinish():
                    self._answer(effect.request, effect)
                case protocol.RefuseRequest():
                    self._answer(effect.request, effect.error)
                case protocol.BindQuery():
                    with self.store_lock:
                        self._store.bind_query(effect.operator, effect.query_id, effect.first)
                case protocol.WriteManifest():
                    self._write_manifest(effect)
                case protocol.StartWorker():
                    self._pool.start(effect.worker, effect.incarnation)
                case protocol.StopWorker():
                    self._pool.retire(effect.worker, effect.incarnation)
                case protocol.SendOrder():
                    self.moves.send(effect)
                case protocol.MoveEnded():
                    self.moves.ended(effect)
                case _:
                    unhandled(effect)

    def _answer(self, request: int, answer: LaneAnswer | AnabranchError) -> None:
        future = self._requests.pop(request, None)
        if future is None:
            return
        if isinstance(answer, AnabranchError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _write_manifest(self, effect: protocol.WriteManifest) -> None:
        name, epoch = effect.operator, effect.epoch
        try:
            with self.store_lock:
                manifest = self._epochs.write(effect)
                self._operators[name].exists(manifest)
                crash_point("coordinator", "after-manifest")
        except Exception as error:  # whatever it is, lanes wait for the end of it
            self._dispatch(protocol.ManifestFailed(name, epoch, unexpected(error)))
            return
        seconds = self._operators[name].note_commit(epoch)
        self._dispatch(protocol.ManifestWritten(name, epoch))
        self.moves.batch_committed(name, seconds)
        self._maintenance.after_commit(name, epoch)

    def _worker_started(self, worker: WorkerId, incarnation: int) -> None:
        """The worker is in the pool now, so later definitions reach it; here come the earlier ones.

        One that comes both ways is installed once.
        """
        peer = self._pool.peers().get(worker)
        if peer is None:
            return  # it has ended already; the pool says so
        with self._lock:
            operators = list(self._operators.values())
        for operator in operators:
            try:
                self._install(worker, peer, operator.install)
            except ServiceUnavailable as error:  # its end is reported by the pool
                _log.info("Worker %s went away while it was started: %s", worker, error)
                return
            except AnabranchError as error:  # the other operators need the worker all the same
                _log.error("Worker %s: %s", worker, error)
        self._dispatch(protocol.WorkerStarted(worker, incarnation))


def _misdirected(request: WorkerCall) -> AnabranchError:
    name = NAMES[type(request)]
    return different_versions(f"Call '{name}' is for workers, not for the coordinator")
