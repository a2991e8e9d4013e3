"""A worker: runs the protocol's effects on real state, real rows and the real store."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark import cloudpickle

from anabranch.durability.blobs import BlobStore
from anabranch.errors import ProcessorError
from anabranch.processes.worker_config import WorkerConfig
from anabranch.protocol import worker as protocol
from anabranch.protocol.exhaustive import unhandled
from anabranch.transport.codec import different_versions
from anabranch.transport.messages import control, lanes, state
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.names import NAMES, Request, StreamRequest
from anabranch.transport.server import Item
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
from anabranch.worker.residency.snapshots import Snapshots
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.transactions.deferral import Deferral
from anabranch.worker.transactions.persist import TransactionWriter
from anabranch.worker.transactions.server import TransactionServer
from anabranch.worker.transactions.transaction import TransactionAnswer


class Worker:
    """Handler of a worker's server (transport contract: Handler, StreamHandler)."""

    def __init__(self, config: WorkerConfig, blobs: BlobStore) -> None:
        self._config = config
        self._backend = config.open_backend()
        self._core = core = WorkerCore(config, blobs)
        peers, limiter = Peers(config.token), RateLimiter()
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
            case lanes.Begin() | lanes.Finish() | lanes.Tick():
                name = NAMES[type(request)]
                raise different_versions(f"Call '{name}' is for the coordinator, not for workers")
            case _:
                return self._orders.perform(request)

    def _committed(self, request: control.Committed) -> control.CommitNotes:
        operator, epoch = request.operator, request.epoch
        self._core.note_commit(operator, epoch)
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
            case _:
                unhandled(request)

    def close(self) -> None:
        """Let user code clean up."""
        for slot in self._core.slots.values():
            with slot.apply_lock:
                slot.close()
        self._backend.close()

    def _install(self, request: control.Install) -> None:
        name, core = request.operator, self._core
        known = core.slots.get(name)
        if known is not None and known.definition_id == request.definition:
            return
        # User code is found where the driver finds it.
        sys.path.extend(path for path in request.python_path if path not in sys.path)
        load = in_background if request.in_background else lambda work: work()
        try:
            slot = OperatorSlot.open(
                name,
                request.definition,
                load(lambda: cloudpickle.loads(request.pickled)),
                self._config.keyspace,
                request.is_restored,
                self._backend,
                self._config.checkpoint == "independent",
            )
        except Exception as error:
            raise ProcessorError(
                f"Operator '{name}' cannot be loaded in a worker: {type(error).__name__}: {error}. "
                "Make the module that defines it importable there: install it, or put its folder "
                "on PYTHONPATH before the service starts."
            ) from error
        with core.changed:
            core.changed.wait_for(lambda: not core.machine.is_busy(name))
            replaced = core.slots.get(name)
            core.slots[name] = slot
            core.dispatch(protocol.OperatorInstalled(name))
        if replaced is not None:
            replaced.close()

    def exchange(
        self, header: lanes.TransactionHeader, rows: Iterator[pa.RecordBatch]
    ) -> TransactionAnswer:
        """A lane's rows in, its outputs out."""
        return self._transactions.exchange(header, rows)
