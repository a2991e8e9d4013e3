"""The coordinator, in the Spark driver: answers lanes, commits epochs, keeps workers running."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import asdict
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
    packed,
    registered,
)
from anabranch.coordinator.query_clock import QueryClock
from anabranch.durability.store import StateStore
from anabranch.errors import AnabranchError, InvalidArgument, ServiceUnavailable, unexpected
from anabranch.model.ids import Epoch, Lane, WorkerId
from anabranch.model.keyspace import KeySpace
from anabranch.model.routing import initial_routing
from anabranch.processes.crash_points import crash_point
from anabranch.processes.launcher import Launcher
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processes.worker_pool import WorkerPool
from anabranch.processor.contract import BatchTimes, OperatorDefinition
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.epochs import LaneReport, TransactionReport
from anabranch.transport.auth import new_token
from anabranch.transport.client import Peer
from anabranch.transport.server import Reply, Server
from anabranch.transport.wire import Message, decode

_log = logging.getLogger("anabranch.coordinator")


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
        self._requests: dict[int, Future[Message]] = {}
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
            self._prepare_worker,
            self._worker_up,
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
        pickled = packed(name, definition_id, definition, is_restored)
        if is_restored:
            initial = []  # it is in the savepoint's state
        with self._lock:
            self._operators[name] = OperatorRecord(
                name, definition, pickled, initial, definition_id, is_restored
            )
        self.announce(name)
        for worker, peer in self._pool.peers().items():
            try:
                peer.send("install", pickled)
            except ServiceUnavailable as error:  # its replacement gets the operator when it starts
                _log.info("Worker %s went away while it was prepared: %s", worker, error)
        return definition_id

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

    def action(self, name: str, body: bytes) -> Message:
        """Calls of lanes and of the tick source."""
        message = decode(body)
        match name:
            case "begin":
                return self._begin(message)
            case "finish":
                return self._finish(message)
            case "tick":
                return {"tick": self._tick(message["operator"])}
        raise AnabranchError(f"Unknown call '{name}': service and task versions differ.")

    def exchange(self, header: Message, rows: Iterator[pa.RecordBatch]) -> Reply:
        """Lanes send rows to workers only."""
        raise InvalidArgument("Rows go to a worker, not to the coordinator.")

    def _begin(self, message: Message) -> Message:
        name = message["operator"]
        if name not in self._operators:
            raise ServiceUnavailable(f"Operator '{name}' is not registered in this service.")
        operator, epoch = self._operators[name], message["epoch"]
        if operator.definition_id != message["definition"]:
            raise InvalidArgument(
                f"Operator '{name}' was defined again after this query was built. Start a query "
                "from the newest DataFrame, and give operators of one query names of their own."
            )
        asked, is_first = steady_clock.now(), not message["is_retry"]
        if is_first:
            operator.check_begin(epoch, message["attempt"])
        grant = self._request(
            lambda request: protocol.LaneBegan(
                request,
                name,
                message["query_id"],
                Epoch(epoch),
                Lane(message["lane"]),
                message["lanes"],
            )
        )
        times = self._times(operator, message["query_id"], epoch)
        if is_first:
            with self._lock:  # only now: what is refused, or parked, changes nothing
                operator.note_begin(epoch, message["attempt"], asked)
        waits = operator.waits(epoch, bool(grant["shadows"]))
        return {**grant, "times": asdict(times), "initial": operator.initial, "waits": waits}

    def _times(self, operator: OperatorRecord, query_id: str, epoch: int) -> BatchTimes:
        with self._lock:
            if operator.times is None or operator.times[0] != epoch:
                times = self._clock.times(operator.name, query_id, epoch)
                operator.times = epoch, times
            return operator.times[1]

    def _finish(self, message: Message) -> Message:
        operator = self._operators[message["operator"]]
        operator.note_finish(message["lane"], message["stats"])
        report = LaneReport(
            tuple(
                TransactionReport(
                    tx["worker"], tuple(tx["groups"]), tx["changelog"], tuple(tx["deferred"])
                )
                for tx in message["transactions"]
            )
        )
        return self._request(
            lambda request: protocol.LaneFinished(
                request,
                operator.name,
                Epoch(message["epoch"]),
                Lane(message["lane"]),
                message["lanes"],
                report,
            )
        )

    def _tick(self, name: str) -> bool:
        query_id = self.query_of(name)
        return query_id is not None and self._clock.wants_batch(name, query_id)

    def _request(self, make_event: Callable[[int], protocol.Event]) -> Message:
        request, future = next(self._request_ids), Future[Message]()
        with self._lock:
            if self._stopped:
                raise ServiceUnavailable("The state service was stopped.")
            self._requests[request] = future
        try:
            self._dispatch(make_event(request))
        except BaseException:
            self._requests.pop(request, None)
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
                case protocol.GrantLane():
                    self._grant(effect)
                case protocol.ConfirmFinish():
                    self._answer(effect.request, {})
                case protocol.RefuseRequest():
                    self._answer(effect.request, effect.error)
                case protocol.BindQuery():
                    with self.store_lock:
                        self._store.bind_query(effect.operator, effect.query_id, effect.first)
                case protocol.WriteManifest():
                    self._write_manifest(effect)
                case protocol.StartWorker():
                    self._pool.start(effect.worker, effect.incarnation)
                case _:
                    self.moves.perform(effect)

    def _answer(self, request: int, answer: Message | AnabranchError) -> None:
        future = self._requests.pop(request, None)
        if future is None:
            return
        if isinstance(answer, AnabranchError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def _grant(self, effect: protocol.GrantLane) -> None:
        def members(groups_of: dict[WorkerId, tuple[int, ...]]) -> list[Message]:
            return [
                {
                    "worker": worker,
                    "address": self._pool.address(worker, effect.incarnations[worker]),
                    "groups": groups,
                }
                for worker, groups in groups_of.items()
            ]

        grant = {
            "version": effect.version,
            "base": effect.base,
            "owners": members(effect.owners),
            "shadows": members(effect.shadows),
        }
        self._answer(effect.request, grant)

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

    def _prepare_worker(self, worker: WorkerId, peer: Peer) -> None:
        with self._lock:
            routing = self._machine.routing
        peer.call("grant", {"groups": routing.groups_of(worker), "version": routing.version})

    def _worker_up(self, worker: WorkerId, incarnation: int) -> None:
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
                peer.send("install", operator.pickled)
            except ServiceUnavailable as error:  # its end is reported by the pool
                _log.info("Worker %s went away while it was prepared: %s", worker, error)
                return
            except AnabranchError as error:  # the other operators need the worker all the same
                _log.error("Worker %s: %s", worker, error)
        self._dispatch(protocol.WorkerUp(worker, incarnation))
