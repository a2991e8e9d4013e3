"""A worker: runs the protocol's effects on real state, real rows and the real store."""

from __future__ import annotations

import itertools
import logging
import queue
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import decode_changelog
from anabranch.errors import AnabranchError, ProcessorError
from anabranch.model.ids import Epoch, KeyGroup, Lane
from anabranch.model.stats import ROWS_DEFERRED, ROWS_FORWARDED
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processor.contract import INITIAL_ROWS, BatchTimes, RowChunk
from anabranch.protocol import worker as protocol
from anabranch.transport.server import Item
from anabranch.transport.wire import Message, decode
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
from anabranch.worker.transactions.row_buffer import RowBuffer
from anabranch.worker.transactions.transaction import (
    RunningTransaction,
    TransactionAnswer,
    TransactionOutput,
    rows_of_groups,
)

_log = logging.getLogger("anabranch.worker")

RECEIVE_SECONDS_MAX = 60.0
"""How long a transaction waits for an import that brings nothing before it asks for itself."""


class Worker:
    """Handler of a worker's server (transport contract: Handler, StreamHandler)."""

    def __init__(self, config: WorkerConfig, blobs: BlobStore) -> None:
        self._config = config
        self._backend = config.open_backend()
        self._core = core = WorkerCore(config, blobs)
        core.answer = self._answer
        self._tx_ids = itertools.count(1)
        peers, limiter = Peers(config.token), RateLimiter()
        self._logs = DeltaLogs(config.keyspace)
        self._exports = Exports(core, self._logs, peers)
        self._arrivals = ArrivalTable(core, self._logs)
        self._store = StoreLoader(core, self._arrivals)
        self._loader = GroupLoader(core, self._arrivals, peers, self._store)
        self._forwarding = Forwarding(core, peers)
        self._snapshots = Snapshots(core, self._arrivals)
        self._inventory = Inventory(core, self._store)
        self._eviction = Eviction(core, self._arrivals, self._store)
        self._answers = LookupServer(core)
        self._checkpoints = TransactionWriter(core)
        self._deferral = Deferral(core, self._arrivals, self._store)
        imports = BackgroundImport(core, self._arrivals, self._loader, peers, limiter)
        self._orders = OrderHandler(core, self._arrivals, imports, peers, limiter, self._snapshots)

    def listens_at(self, address: str) -> None:
        """Where other workers reach this one."""
        self._core.address = address

    # -- control --

    def action(self, name: str, body: bytes) -> Message:
        """Calls of the coordinator and of other workers."""
        if name == "install":
            return self._install(body)
        message = decode(body)
        if self._orders.knows(name):
            return self._orders.perform(name, message)
        match name:
            case "ping":
                if "peer" in message:  # another worker's, not the coordinator's
                    self._core.pass_point("connected")
                return {}
            case "committed":
                operator, epoch = message["operator"], message["epoch"]
                self._core.note_commit(operator, epoch)
                self._eviction.after_commit(operator)
                is_moving = message.get("moving", False)
                snapshots = self._snapshots.after_commit(operator, epoch, is_moving)
                return {"snapshots": snapshots, "heat": self._core.heat(operator)}
            case "status":
                return self._inventory.status()
            case "groups":
                return {"groups": self._inventory.groups()}
            case "as-of":
                return self._exports.as_of(message)
            case "heat":
                return self._exports.heat(message)
        raise AnabranchError(f"Unknown call '{name}': coordinator and worker versions differ.")

    def stream(self, name: str, message: Message) -> Iterator[Item]:
        """State for other workers."""
        match name:
            case "copy":
                return self._exports.copy(message)
            case "deltas":
                return self._exports.deltas(message)
            case "fetch":
                return self._exports.fetch(message)
            case "look-up":
                return self._answers.look_up(message)
        raise AnabranchError(f"Unknown call '{name}': the versions of two workers differ.")

    def close(self) -> None:
        """Let user code clean up."""
        for slot in self._core.slots.values():
            with slot.apply_lock:
                slot.close()
        self._backend.close()

    def _install(self, body: bytes) -> Message:
        head, pickled = body.split(b"\n", 1)
        header = decode(head)
        name, core = header["operator"], self._core
        known = core.slots.get(name)
        if known is not None and known.definition_id == header["definition"]:
            return {}
        # User code is found where the driver finds it.
        sys.path.extend(path for path in header["python_path"] if path not in sys.path)
        # A worker that a rescale has added imports its libraries beside batches of the others.
        load = (lambda work: work()) if core.machine.granted else in_background
        try:
            slot = OperatorSlot.open(
                name,
                header["definition"],
                load(lambda: cloudpickle.loads(pickled)),
                self._config.keyspace,
                header.get("restored", False),
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
        return {}

    # -- transactions --

    def exchange(self, header: Message, rows: Iterator[pa.RecordBatch]) -> TransactionAnswer:
        """A lane's rows in, its outputs out."""
        if header.get("is_shadow"):
            return self._shadow(header, rows)
        run = self._open(header)
        self._core.pass_point("opened")
        try:
            self._receive(run, rows)
            self._core.pass_point("rows-received")
            answer = self._serve(run, header)
            self._core.pass_point("answered")
            return answer
        finally:
            self._close(run)

    def _shadow(self, header: Message, rows: Iterator[pa.RecordBatch]) -> TransactionAnswer:
        """Nobody waits for what it does, or for its failure."""
        nothing = TransactionAnswer(pa.schema([]), {"transactions": []}, ())
        try:
            run = self._open(header)
        except AnabranchError as error:
            _log.info("No shadow transaction: %s", error)
            return nothing
        try:
            self._receive(run, rows)
        except BaseException:
            self._close(run)
            raise

        def work() -> None:
            try:
                self._serve(run, header)
            except AnabranchError as error:
                _log.info("A shadow transaction failed: %s", error)
            finally:
                self._close(run)

        threading.Thread(target=work, name=f"anabranch-shadow-{run.opened.tx}", daemon=True).start()
        return nothing

    def _open(self, header: Message) -> RunningTransaction:
        opened = protocol.TransactionOpened(
            tx=next(self._tx_ids),
            operator=header["operator"],
            epoch=Epoch(header["epoch"]),
            base=header["base"],
            lane=Lane(header["lane"]),
            lanes=header["lanes"],
            attempt=header["attempt"],
            groups=tuple(KeyGroup(g) for g in header["groups"]),
            version=header["version"],
            is_shadow=bool(header.get("is_shadow")),
            may_defer=self._may_defer(header),
        )
        # All lanes may be here at once, each with rows and with outputs.
        limit = self._config.memory_bytes // (2 * opened.lanes)
        buffer = RowBuffer(opened.groups, self._config.keyspace, limit)
        schema = self._core.slot(opened.operator, header["definition"]).output_schema
        run = RunningTransaction(opened, BatchTimes(**header["times"]), buffer, schema, limit)
        if header.get("waits") is not None:
            run.waits = frozenset(header["waits"])
        self._core.running[opened.tx] = run
        self._core.dispatch(opened)
        return run

    def _may_defer(self, header: Message) -> bool:
        """Whether it is decided here and now which rows wait.

        Not if the coordinator has settled it (`OperatorRecord.waits`), nor in the first epoch:
        initial rows come with it, and are not kept in channels.
        """
        is_open = header.get("waits") is None and header["base"] is not None
        return is_open and self._config.checkpoint == "unaligned"

    def _close(self, run: RunningTransaction) -> None:
        with self._core.changed:
            self._core.running.pop(run.opened.tx, None)
            self._core.changed.notify_all()
        run.rows.clear()

    def _receive(self, run: RunningTransaction, rows: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in rows:
                if not run.todo.empty():  # refused or replaced meanwhile
                    return
                run.rows.append(batch)
        except BaseException:  # the lane has gone, or there is no room for its rows
            self._core.dispatch(protocol.LaneGone(run.opened.tx))
            raise
        if run.todo.empty():
            counts = run.rows.rows_of(run.opened.groups)
            self._core.dispatch(protocol.RowsComplete(run.opened.tx, counts))

    def _serve(self, run: RunningTransaction, header: Message) -> TransactionAnswer:
        """Perform this transaction's effects until the protocol answers or refuses."""
        while True:
            effect = run.todo.get()
            while isinstance(effect, protocol.AwaitArrivals):
                effect = self._next_after(run, effect)
            match effect:
                case TransactionAnswer():
                    return effect
                case protocol.RefuseTransaction():
                    raise effect.error
                case protocol.ForwardRows():
                    self._forwarding.start(run, header, effect)
                case _:
                    self._attempt(run, header, effect)

    def _attempt(self, run: RunningTransaction, header: Message, effect: Any) -> None:
        slot = self._core.slots[run.opened.operator]
        try:
            match effect:
                case protocol.ChooseDeferred():
                    done: protocol.Event = self._deferral.choose(slot, run, effect)
                case protocol.FetchGroups():
                    done = self._loader.fetch(slot, run, effect)
                case protocol.LoadGroups():
                    done = self._loader.load(slot, run, effect)
                    self._core.pass_point("loaded")
                case protocol.ApplyTransaction():
                    run.groups = effect.groups
                    run.initial_rows = self._initial_rows(header, effect.groups)
                    self._apply(slot, run)
                    self._core.pass_point("applied")
                    done = protocol.TransactionApplied(effect.tx)
                case protocol.PersistChanges():
                    self._persist(slot, run)
                    self._core.pass_point("changelog-written")
                    done = protocol.ChangesDurable(effect.tx)
        except AnabranchError as error:
            self._undo(slot, run)
            done = protocol.TransactionFailed(effect.tx, error)
        except BaseException as error:  # also sys.exit() in user code: the lane waits for an answer
            self._undo(slot, run)
            detail = "".join(traceback.format_exception(error))
            message = f"Operator '{slot.name}' failed; nothing was changed.\n{detail}"
            done = protocol.TransactionFailed(effect.tx, ProcessorError(message))
        self._core.dispatch(done)
        is_left = isinstance(done, protocol.GroupsLoaded) and done.stored
        if is_left or (isinstance(done, protocol.DeferralChosen) and done.groups):
            self._store.start()

    def _next_after(self, run: RunningTransaction, effect: protocol.AwaitArrivals) -> Any:
        """The effect that ends the wait for what is coming in; as long as it comes, it goes on."""
        for group in effect.groups:
            self._arrivals.note_on_demand(group, {"waited": 1})
        self._core.count({"waited": len(effect.groups)})
        pieces = self._arrivals.pieces
        with run.timed("load_ms"):
            while True:
                try:
                    return run.todo.get(timeout=RECEIVE_SECONDS_MAX)
                except queue.Empty:
                    if pieces == self._arrivals.pieces:
                        self._core.dispatch(protocol.AwaitingExpired(effect.tx))
                    pieces = self._arrivals.pieces

    def _apply(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        with ExitStack() as turn:
            with run.timed("wait_ms"):
                if slot.pins:  # another worker still reads what was its own
                    with self._core.changed:
                        self._core.changed.wait_for(lambda: slot.pins.keys().isdisjoint(run.groups))
                has_turn = not self._deferral.of_turn(slot, run)
                if has_turn:
                    turn.callback(slot.apply_lock.release)
                    slot.is_applying = True
                    turn.callback(setattr, slot, "is_applying", False)
            turn.enter_context(run.timed("apply_ms"))
            if has_turn:
                slot.in_apply_thread(lambda: self._deferral.apply(slot, run))
            else:  # rows are only put aside, while another transaction is applied
                self._deferral.apply(slot, run)

    def _undo(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        with slot.apply_lock:
            for group in run.applied:
                if group in slot.states:
                    slot.states[group].undo()
                    slot.views.pop(group, None)
        run.reset()

    def _persist(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        groups = run.applied
        changes = run.changes()
        changelog = None
        if changes:
            changelog = self._checkpoints.write(slot, run, changes)
            self._logs.note(slot.name, run.opened.epoch, groups, changes)
        slot.note_heat(run.rows.sample())
        slot.note_load(groups, run.rows.rows_of(groups))
        spent = run.spent
        if run.deferred:
            spent[ROWS_DEFERRED] = sum(run.rows.rows_of(run.deferred))
        waits = frozenset(run.deferred)
        output = TransactionOutput(groups, run.output, changelog, run.stats, spent, waits)
        with self._core.changed:
            slot.outputs.update(dict.fromkeys(groups, output))

    def _initial_rows(self, header: Message, groups: tuple[int, ...]) -> list[RowChunk]:
        if header["base"] is not None:
            return []
        chunks = []
        for path in header["initial"]:
            rows = decode_changelog(self._core.blobs.read(path), path).get(INITIAL_ROWS)
            if rows is not None:
                chunks.append(rows_of_groups(rows, groups, self._config.keyspace))
        rows = pa.concat_tables(chunks) if chunks else None
        return [RowChunk(groups, rows)] if rows is not None and rows.num_rows else []

    def _answer(self, run: RunningTransaction) -> TransactionAnswer:
        slot = self._core.slots[run.opened.operator]
        if run.opened.is_shadow:
            self._arrivals.note_shadow(run.applied)
            return TransactionAnswer(slot.output_schema, {"transactions": []}, ())
        forwarded = {group for answer in run.forwarded for group in answer.groups}
        parts: dict[int, tuple[TransactionOutput, list[int]]] = {}
        for group in run.opened.groups:
            if group not in forwarded:
                output = slot.outputs[group]
                parts.setdefault(id(output), (output, []))[1].append(group)
        reports = [output.report(self._config.worker, groups) for output, groups in parts.values()]
        for answer in run.forwarded:
            first, *others = answer.reports
            stats = {**first["stats"], ROWS_FORWARDED: answer.sent}
            reports += [{**first, "stats": stats}, *others]
        answered = tuple((output, tuple(groups)) for output, groups in parts.values())
        report = {"transactions": reports}
        return TransactionAnswer(slot.output_schema, report, answered, tuple(run.forwarded))
