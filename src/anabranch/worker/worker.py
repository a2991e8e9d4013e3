"""A worker: runs the protocol's effects on real state, real rows and the real store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from anabranch.durability.blobs import BlobStore
from anabranch.errors import AnabranchError, ProcessorError, ServiceUnavailable
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processor.contract import CodePlace
from anabranch.processor.user_code import unpacked
from anabranch.protocol import worker as protocol
from anabranch.protocol.exhaustive import unhandled
from anabranch.transport.client import Peer
from anabranch.transport.codec import different_versions
from anabranch.transport.messages import control, deaths, hosts, lanes, state
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.names import (
    NAMES,
    CoordinatorCall,
    CoordinatorStream,
    Request,
    StreamRequest,
)
from anabranch.transport.server import Reply
from anabranch.transport.signs_of_life import Item
from anabranch.worker.core import WorkerCore
from anabranch.worker.inventory import Inventory
from anabranch.worker.lookup_server import LookupServer
from anabranch.worker.low_priority import in_background
from anabranch.worker.moves.background_import import BackgroundImport
from anabranch.worker.moves.deltas import DeltaLogs
from anabranch.worker.moves.exports import Exports
from anabranch.worker.moves.forwarding import Forwarding
from anabranch.worker.moves.order_handler import OrderHandler
from anabranch.worker.moves.rate_limiter import RateLimiter
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.peers import Peers
from anabranch.worker.residency.arrival_table import ArrivalTable
from anabranch.worker.residency.eviction import Eviction
from anabranch.worker.residency.load import GroupLoader
from anabranch.worker.residency.settling import settle
from anabranch.worker.residency.snapshots import Snapshots
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.transactions.deferral import Deferral
from anabranch.worker.transactions.persist import TransactionWriter
from anabranch.worker.transactions.relay import pass_on
from anabranch.worker.transactions.server import TransactionServer
from anabranch.worker.user_code import Visit

FORMER_SECONDS_MAX = 5.0
"""How long a new definition of an operator waits for user code of the one before."""


class Worker:
    """Handler of a worker's server (transport contract: Handler, StreamHandler)."""

    def __init__(self, config: WorkerConfig, blobs: BlobStore) -> None:
        self._config = config
        self._backend = config.open_backend()
        self._core = core = WorkerCore(config, blobs)
        peers, limiter = Peers(config.credentials), RateLimiter()
        logs = DeltaLogs(config.keyspace)
        self._exports = Exports(core, logs, peers)
        arrivals = ArrivalTable(core, logs)
        self._store = StoreLoader(core, arrivals)
        loader = GroupLoader(core, arrivals, peers, self._store)
        self._snapshots = Snapshots(core, arrivals)
        self._inventory = Inventory(core, self._store)
        self._eviction = Eviction(core, arrivals, self._store)
        self._lookups = LookupServer(core)
        self._transactions = TransactionServer(
            core,
            arrivals,
            loader,
            self._store,
            Deferral(core, arrivals, self._store),
            TransactionWriter(core, logs),
            Forwarding(core, peers),
        )
        imports = BackgroundImport(core, arrivals, loader, peers, limiter)
        self._orders = OrderHandler(core, arrivals, imports, peers, limiter, self._snapshots)

    def listens_at(self, address: str) -> None:
        """Where other workers reach this one."""
        self._core.address = address

    # -- control --

    def call(self, request: Request) -> object:
        """Calls of the coordinator and of other workers."""
        match request:
            case control.Install():
                self._install(request)
                return Nothing()
            case control.Ping():
                if request.caller is not None:  # another worker
                    self._core.pass_point("connected")
                return Nothing()
            case control.SlowCalls():
                return self._core.user_code.report(request.longer_than_seconds)
            case control.Committed():
                return self._committed(request)
            case control.Status():
                return self._inventory.status()
            case control.Loads():
                return self._inventory.loads()
            case control.SetRate():
                self._orders.set_rate(request.rate)
                return Nothing()
            case state.AsOf():
                return self._exports.as_of(request)
            case state.Heat():
                return self._exports.heat(request)
            case (
                lanes.Begin()
                | lanes.Finish()
                | lanes.LaneFailed()
                | hosts.Introduce()
                | hosts.Join()
                | hosts.Prove()
                | hosts.Beat()
                | hosts.Report()
                | hosts.Leave()
            ):
                raise _misdirected(request)
            case _:
                return self._orders.perform(request)

    def _committed(self, request: control.Committed) -> control.CommitNotes:
        operator, epoch = request.operator, request.epoch
        self._core.note_commit(operator, epoch)
        if (slot := self._core.slots.get(operator)) is not None:
            settle(self._core, slot, epoch)
        self._eviction.after_commit(operator)
        snapshots = self._snapshots.after_commit(operator, epoch, request.is_moving)
        return control.CommitNotes(tuple(snapshots), self._core.heat(operator))

    def stream(self, request: StreamRequest) -> Iterator[Item]:
        """State for other workers and for lookups."""
        match request:
            case state.CopyGroups():
                return self._exports.copy(request)
            case state.Deltas():
                return self._exports.deltas(request)
            case state.Fetch():
                return self._exports.fetch(request)
            case state.LookUp():
                return self._lookups.look_up(request)
            case hosts.Orders() | deaths.WatchDeaths():
                raise _misdirected(request)
            case _:
                unhandled(request)

    def close(self) -> None:
        """Let user code clean up."""
        for slot in self._core.slots.values():
            with slot.apply_lock:
                slot.close()
        self._backend.close()
        self._core.user_code.close()

    def _install(self, request: control.Install) -> None:
        name, core = request.operator, self._core
        known = core.slots.get(name)
        if known is not None and known.definition_id >= request.definition:
            return
        if not self._config.is_remote:  # user code is found where the driver finds it
            sys.path.extend(path for path in request.python_path if path not in sys.path)
        load = in_background if request.in_background else lambda work: work()
        try:
            slot = load(lambda: self._open(request))
        except Exception as error:
            raise ProcessorError(
                f"Operator '{name}' cannot be loaded in a worker: {type(error).__name__}: {error}. "
                "Make the module that defines it importable there: install it, or put its folder "
                "on PYTHONPATH before the service, or the agent of the worker's host, starts."
            ) from error
        with core.changed:
            is_free = core.changed.wait_for(
                lambda: not core.machine.is_busy(name), FORMER_SECONDS_MAX
            )
            present = core.slots.get(name)
            # A newer one may have come while this one was opened.
            is_newest = present is None or present.definition_id < request.definition
            is_taken = is_free and is_newest
            if is_taken:
                core.slots[name] = slot
                core.dispatch(protocol.OperatorInstalled(name))
        replaced = present if is_taken else slot
        if replaced is not None:
            replaced.close()
        if is_newest and not is_free:
            raise ServiceUnavailable(
                f"Worker {self._config.worker} is still in user code of an earlier definition of "
                f"operator '{name}'. It is replaced."
            )

    def _open(self, request: control.Install) -> OperatorSlot:
        place = CodePlace("being loaded", request)
        visit = Visit(request.operator, request.definition, lambda: place)
        with self._core.user_code.watched(visit):
            return OperatorSlot.open(
                request.operator,
                request.definition,
                unpacked(request.pickled),
                self._config.keyspace,
                request.is_restored,
                self._backend,
                self._config.checkpoint == "independent",
            )

    def exchange(self, header: lanes.TransactionHeader, rows: Iterator[pa.RecordBatch]) -> Reply:
        """A lane's rows in, its outputs out."""
        if (to := header.relay_to) is not None:
            # With a lane's token: who is there is the lane's word.
            peer = Peer(to.address, self._config.credentials.for_lanes(), f"Worker {to.worker}")
            return pass_on(replace(header, relay_to=None), rows, peer)
        return self._transactions.exchange(header, rows)


def _misdirected(request: CoordinatorCall | CoordinatorStream) -> AnabranchError:
    name = NAMES[type(request)]
    return different_versions(f"Call '{name}' is for the coordinator, not for workers")
