"""The coordinator, in the Spark driver: answers lanes, commits epochs, keeps workers running."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Collection
from concurrent import futures
from typing import Any

from anabranch.coordinator import steady_clock
from anabranch.coordinator.batch_watch import BatchWatch
from anabranch.coordinator.bindings import Bindings, StatePlace, Template
from anabranch.coordinator.call_router import CallRouter
from anabranch.coordinator.declared_sites import open_operator
from anabranch.coordinator.epoch_writer import EpochWriter
from anabranch.coordinator.failure_log import FailureLog
from anabranch.coordinator.installer import Installer
from anabranch.coordinator.journal_notes import JournalNotes
from anabranch.coordinator.lane_doubts import LaneDoubts
from anabranch.coordinator.load_book import LoadBook
from anabranch.coordinator.lookup_client import LookupClient
from anabranch.coordinator.maintenance import Maintenance
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.operator_record import OperatorRecord, describe, registered
from anabranch.coordinator.query_clock import QueryClock, QuerySide, QueryWatch
from anabranch.coordinator.service_access import ServiceAccess
from anabranch.coordinator.service_hosts import HostSettings, ServiceHosts
from anabranch.coordinator.service_workers import Recycler
from anabranch.coordinator.user_code_monitor import UserCodeMonitor, ping_seconds
from anabranch.coordinator.watch_server import WatchServer
from anabranch.durability.store import StateStore
from anabranch.errors import AnabranchError, CallTimedOut, ServiceUnavailable, unexpected
from anabranch.model.ids import WorkerId
from anabranch.model.keyspace import KeySpace
from anabranch.model.routing import first_workers, initial_routing
from anabranch.processes.crash_points import crash_point
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processes.worker_pool import WorkerPool
from anabranch.processor.contract import BatchTimes, OperatorDefinition
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.epochs import LaneReport
from anabranch.protocol.exhaustive import unhandled
from anabranch.transport.messages import lanes
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.server import Server
from anabranch.transport.signs_of_life import patience_seconds

STOP_SECONDS = 5.0
"""For what runs to end by itself, while the workers are still there."""
STOP_SECONDS_MAX = 60.0

LaneAnswer = protocol.GrantLane | protocol.ConfirmFinish


class Coordinator:
    """Interpreter of the protocol: calls in as events, effects out to what performs them."""

    def __init__(
        self,
        store: StateStore,
        clock: QueryClock,
        keyspace: KeySpace,
        workers: int,
        make_config: Callable[..., WorkerConfig],
        host: str,
        start_empty: Collection[str] = (),
        checkpoint: str = "changelog",
        user_code_timeout_s: float | None = None,
        tls: bool | None = None,
        hosts: HostSettings | None = None,
        notes: JournalNotes | None = None,
    ) -> None:
        self._start_empty, self.access = frozenset(start_empty), ServiceAccess([host], tls)
        self.lane_credentials = self.access.credentials.for_lanes()
        self.keyspace, self._store, self._clock = keyspace, store, clock
        self._run_id, self.notes = secrets.token_hex(4), notes or JournalNotes()
        self._lock, self.store_lock = threading.RLock(), threading.Lock()
        """The second one guards the store."""
        self._operators: dict[str, OperatorRecord] = {}
        self._requests: dict[int, futures.Future[LaneAnswer]] = {}
        self._request_ids, self._definition_ids = itertools.count(1), itertools.count(1)
        self._stopped, self._failures = False, FailureLog(self.notes.batch_failed)
        self.hosts = ServiceHosts(
            hosts or HostSettings(), store.blobs, self._run_id, self._dispatch, self.access
        )
        self._machine, effects = protocol.CoordinatorMachine.create(
            initial_routing(keyspace.groups, first_workers(workers)), self.hosts.present
        )
        self._deaths = WatchServer(self.access.credentials.token)
        self._pool = self._make_pool(make_config, ping_seconds(user_code_timeout_s))
        self._doubts = LaneDoubts(self._pool)
        self._user_code = UserCodeMonitor(
            *(self._operators, self._is_query_running, self._pool.replace),
            *(user_code_timeout_s, self.notes),
        )
        self._installer = Installer(self._pool, self._owns_nothing, self._user_code.stack_of)
        self.recycler = Recycler(self._machine, self._lock, self._pool)
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
            self.notes.of(self._pool, lambda: self._machine.routing),
        )
        self.lookups = LookupClient(
            self._machine, self._lock, self._pool, self._operators, keyspace
        )
        self.bindings = Bindings(
            store, self.store_lock, self._machine, self._lock, self._operators, clock, self._open
        )
        registry, port, shown = self.hosts.registry, self.hosts.port, self.access.certificate
        self.calls = CallRouter(
            self._begin, self._finish, self._failures, registry, self.access, self._deaths
        )
        self._server = Server(host, self.access.known, self.calls, shown, port)
        self.address = self._server.address
        self._perform(effects)
        self.hosts.start(self.address, self._machine.fleet.waiting)

    def _make_pool(
        self, make_config: Callable[..., WorkerConfig], ping_seconds: float | None
    ) -> WorkerPool:
        return WorkerPool(
            self.hosts.launcher,
            lambda worker, incarnation: make_config(
                worker=worker,
                incarnation=f"{self._run_id}-{incarnation}",
                coordinator=self.address,
                **self.access.of_workers(),
            ),
            self._worker_started,
            self._worker_down,
            lambda *heard: self._user_code.heard(*heard),
            ping_seconds,
            self._deaths.gone,
        )

    # -- for the service --

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of those that were defined."""
        with self._lock:
            return tuple(self._operators)

    def register(
        self,
        name: str,
        definition: OperatorDefinition,
        initial: list[str],
        side: QuerySide | None = None,
    ) -> int:
        """Make an operator known to the protocol and to all workers.

        Returns the number of this definition: lanes of an earlier one of the same name are refused,
        unless `side` says that each query has state of its own.
        """
        number = next(self._definition_ids)
        template = Template(number, name, definition, tuple(initial), side)
        self._open(template, StatePlace(name), number)
        self.bindings.add(template)
        return number

    def _open(
        self, template: Template, place: StatePlace, definition_id: int | None = None
    ) -> OperatorRecord:
        """Install a definition under a name; without a number, as a new one."""
        name = place.name
        with self.store_lock:
            record = open_operator(self._store, name, template.definition, self.keyspace)
        number = definition_id or next(self._definition_ids)
        operator = template.opened(place, record, number, name in self._start_empty)
        with self._lock:
            self._operators[name] = operator
        self.announce(name, definition_id is None and record.query_id is None)
        self._installer.everywhere(operator)
        return operator

    def _owns_nothing(self, worker: WorkerId) -> bool:
        with self._lock:
            return worker not in self._machine.routing.owners

    def load_book(self, watch: QueryWatch, state_bytes_max: int | None) -> LoadBook:
        """What the autoscaler is told."""
        known = self._machine, self._lock, self._operators
        return LoadBook(*known, self.moves, watch, state_bytes_max)

    def announce(self, name: str, is_released: bool = False) -> None:
        """Tell the protocol what the location holds of an operator."""
        with self.store_lock:
            record = self._store.operator(name)
            epochs = self._store.epochs(name)
            self._operators[name].exists(self._store.last(name))
        start_empty = self._operators[name].start_empty
        self._dispatch(registered(record, epochs, start_empty, is_released))

    def has_committed(self, definition_id: int, query_id: str, epoch: int) -> bool:
        """Whether all lanes of a query's batch have ended."""
        name = self.bindings.bound(definition_id, query_id)
        with self._lock:
            view = None if name is None else self._machine.operators.get(name)
            return view is not None and view.committed is not None and view.committed >= epoch

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
        return {
            **describe(summary, routing, operators, self._pool, self._user_code.stuck),
            "hosts": self.hosts.describe(self._pool.hosts()),
            "reconfiguration": self.moves.running(),
            "moved_bytes": self.moves.moved_bytes(),
        }

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
        self._deaths.close()
        self.moves.stop()
        self._maintenance.stop(STOP_SECONDS)
        self._pool.stop()  # whoever still waits for a worker goes on
        self.hosts.stop()
        self._maintenance.stop(STOP_SECONDS_MAX)
        self.moves.wait_for_orders(STOP_SECONDS_MAX)
        self._server.stop()

    # -- calls of lanes --

    def _begin(self, request: lanes.Begin) -> lanes.LaneGrant:
        operator = self.bindings.operator_of(request)
        name, epoch = operator.name, request.epoch
        asked = steady_clock.now()
        if request.is_retry:
            operator.check_retry(request.attempt)
        else:
            operator.check_begin(epoch, request.attempt)
        unreached = self._doubts.confirmed(request.unreached)
        host = self.hosts.host_of(request.host)
        granted = self._request(
            lambda number: protocol.LaneBegan(
                number, name, request.query_id, epoch, request.lane, request.lanes, host, unreached
            )
        )
        assert isinstance(granted, protocol.GrantLane)
        times = self._times(operator, request.query_id, epoch)
        with self._lock:  # only now: what is refused, or parked, changes nothing
            operator.note_begin(epoch, request.attempt, asked, granted.version)
        return operator.lane_grant(granted, epoch, times, self._pool.address)

    def _times(self, operator: OperatorRecord, query_id: str, epoch: int) -> BatchTimes:
        with self._lock:
            if operator.times is None or operator.times[0] != epoch:
                times = self._clock.times(operator.name, query_id, epoch)
                operator.times = epoch, times
            return operator.times[1]

    def _finish(self, request: lanes.Finish) -> Nothing:
        operator = self._operators[request.operator]
        if operator.definition_id != request.definition:
            raise ServiceUnavailable(
                f"Operator '{operator.name}' was defined again; this task's result is not used."
            )
        operator.note_finish(request.lane, request.stats, request.transactions)
        if operator.traffic is not None:
            where = self.moves.places(request.host)
            operator.traffic.finish(request.lane, request.transactions, where)
        report = LaneReport(tuple(done.report for done in request.transactions))
        self._request(
            lambda number: protocol.LaneFinished(
                number, operator.name, request.epoch, request.lane, request.lanes, report
            )
        )
        stats, query_id = operator.batch_stats(request.lanes), self.query_of(operator.name)
        if stats is not None and query_id is not None:
            self._clock.note_batch(operator.name, query_id, request.epoch, request.lanes, stats)
        return Nothing()

    def _request(self, make_event: Callable[[int], protocol.Event]) -> LaneAnswer:
        number, future = next(self._request_ids), futures.Future[LaneAnswer]()
        with self._lock:
            if self._stopped:
                raise ServiceUnavailable("The state service was stopped.")
            self._requests[number] = future
        try:
            self._dispatch(make_event(number))
        except BaseException:
            self._requests.pop(number, None)
            raise
        try:
            return future.result(patience_seconds())
        except futures.TimeoutError:  # before Python 3.11, it is not the built-in one
            raise CallTimedOut("The coordinator waits, for a worker say. Ask patiently.") from None

    # -- protocol --

    def _dispatch(self, event: protocol.Event) -> None:
        if self._stopped:
            return
        with self._lock:
            effects = self._machine.handle(event)
            self.moves.look()
        self._perform(effects)

    def _perform(self, effects: list[protocol.Effect]) -> None:
        for effect in effects:
            match effect:
                case protocol.GrantLane() | protocol.ConfirmFinish():
                    self._answer(effect.request, effect)
                case protocol.RefuseRequest():
                    self._answer(effect.request, effect.error)
                case protocol.BindQuery(operator=name, query_id=query_id, first=first):
                    place = self._operators[name].place
                    with self.store_lock:
                        self._store.bind_query(name, query_id, first, place)
                case protocol.WriteManifest():
                    self._write_manifest(effect)
                case protocol.StartWorker():
                    self._pool.start(effect.worker, effect.incarnation, effect.host)
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
            return future.set_exception(answer)
        return future.set_result(answer)

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
        self.notes.batch(self._operators[name], epoch)
        self._dispatch(protocol.ManifestWritten(name, epoch))
        self.moves.batch_committed(name, seconds)
        self._maintenance.after_commit(name, epoch)

    def _worker_started(self, worker: WorkerId, incarnation: int) -> None:
        """The worker is in the pool now, so later definitions reach it; here come the earlier ones.

        One that comes both ways is installed once.
        """
        self._deaths.here(self._pool.address(worker, incarnation))
        with self._lock:
            operators = list(self._operators.values())
        if self._installer.at_start(worker, incarnation, operators):
            self.notes.worker_started(worker, incarnation)
            self._dispatch(protocol.WorkerStarted(worker, incarnation))

    def _worker_down(self, worker: WorkerId, incarnation: int, reason: str) -> None:
        self._user_code.gone(worker, incarnation)
        self.notes.worker_ended(worker, incarnation, reason)
        self._dispatch(protocol.WorkerDown(worker, incarnation, reason))

    def _is_query_running(self, name: str) -> bool | None:
        query_id = self.query_of(name)
        return None if query_id is None else self._clock.is_running(name, query_id)
