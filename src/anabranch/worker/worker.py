"""A worker: runs the protocol's effects on real state, real rows and the real store."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pyarrow as pa
from pyspark import cloudpickle

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import decode_changelog
from anabranch.errors import AnabranchError, ProcessorError
from anabranch.model.stats import ROWS_DEFERRED, ROWS_FORWARDED
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processor.contract import INITIAL_ROWS, RowChunk
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
from anabranch.worker.transactions.row_buffer import RowBuffer
from anabranch.worker.transactions.transaction import (
    RunningTransaction,
    TransactionAnswer,
    TransactionOutput,
    rows_of_groups,
)

_log = logging.getLogger("anabranch.worker")

Attempt = protocol.LoadGroups | protocol.ApplyTransaction | protocol.PersistChanges
"""Effects that may fail: what was done is undone."""


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
        self._arriving = ArrivalTable(core, self._logs)
        self._stored = StoreLoader(core, self._arriving)
        self._arrivals = GroupLoader(core, self._arriving, peers, self._stored)
        self._forwarding = Forwarding(core, peers)
        self._snapshots = Snapshots(core, self._arriving)
        self._inventory = Inventory(core, self._stored)
        self._eviction = Eviction(core, self._arriving, self._stored)
        self._answers = LookupServer(core)
        self._checkpoints = TransactionWriter(core)
        self._deferral = Deferral(core, self._arriving, self._stored)
        imports = BackgroundImport(core, self._arriving, self._arrivals, peers, limiter)
        self._orders = OrderHandler(core, self._arriving, imports, peers, limiter, self._snapshots)

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
                return self._answers.look_up(request)
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

    # -- transactions --

    def exchange(
        self, header: lanes.TransactionHeader, rows: Iterator[pa.RecordBatch]
    ) -> TransactionAnswer:
        """A lane's rows in, its outputs out."""
        if header.is_shadow:
            return self._shadow(header, rows)
        run = self._open(header)
        self._core.pass_point("opened")
        try:
            self._receive(run, rows)
            self._core.pass_point("rows-received")
            answer = self._serve(run)
            self._core.pass_point("answered")
            return answer
        finally:
            self._close(run)

    def _shadow(
        self, header: lanes.TransactionHeader, rows: Iterator[pa.RecordBatch]
    ) -> TransactionAnswer:
        """Nobody waits for what it does, or for its failure."""
        nothing = TransactionAnswer(pa.schema([]), lanes.TransactionReports(), ())
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
                self._serve(run)
            except AnabranchError as error:
                _log.info("A shadow transaction failed: %s", error)
            finally:
                self._close(run)

        threading.Thread(target=work, name=f"anabranch-shadow-{run.opened.tx}", daemon=True).start()
        return nothing

    def _open(self, header: lanes.TransactionHeader) -> RunningTransaction:
        opened = protocol.TransactionOpened(
            tx=next(self._tx_ids),
            operator=header.operator,
            epoch=header.epoch,
            base=header.base,
            lane=header.lane,
            lanes=header.lanes,
            attempt=header.attempt,
            groups=header.groups,
            version=header.version,
            is_shadow=header.is_shadow,
        )
        # All lanes may be here at once, each with rows and with outputs.
        limit = self._config.memory_bytes // (2 * opened.lanes)
        buffer = RowBuffer(opened.groups, self._config.keyspace, limit)
        schema = self._core.slot(opened.operator, header.definition).output_schema
        run = RunningTransaction(opened, header, buffer, schema, limit)
        self._core.running[opened.tx] = run
        self._core.dispatch(opened)
        return run

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

    def _serve(self, run: RunningTransaction) -> TransactionAnswer:
        """Perform this transaction's effects until the protocol answers or refuses."""
        while True:
            effect = run.todo.get()
            match effect:
                case TransactionAnswer():
                    return effect
                case protocol.RefuseTransaction():
                    raise effect.error
                case protocol.ForwardRows():
                    self._forwarding.start(run, effect)
                case _:
                    self._attempt(run, effect)

    def _attempt(self, run: RunningTransaction, effect: Attempt) -> None:
        slot = self._core.slots[run.opened.operator]
        try:
            match effect:
                case protocol.LoadGroups():
                    rest, deferred, later = self._deferral.of_state(slot, run, effect)
                    partial, stored = self._arrivals.load(slot, run, rest)
                    self._core.pass_point("loaded")
                    done: protocol.Event = protocol.GroupsLoaded(
                        effect.tx, (*partial, *deferred), (*stored, *later)
                    )
                case protocol.ApplyTransaction():
                    run.groups = effect.groups
                    run.initial_rows = self._initial_rows(run.header, effect.groups)
                    self._apply(slot, run)
                    self._core.pass_point("applied")
                    done = protocol.TransactionApplied(effect.tx)
                case protocol.PersistChanges():
                    self._persist(slot, run)
                    self._core.pass_point("changelog-written")
                    done = protocol.ChangesDurable(effect.tx)
                case _:
                    unhandled(effect)
        except AnabranchError as error:
            self._undo(slot, run)
            done = protocol.TransactionFailed(effect.tx, error)
        except BaseException as error:  # also sys.exit() in user code: the lane waits for an answer
            self._undo(slot, run)
            detail = "".join(traceback.format_exception(error))
            message = f"Operator '{slot.name}' failed; nothing was changed.\n{detail}"
            done = protocol.TransactionFailed(effect.tx, ProcessorError(message))
        self._core.dispatch(done)
        if isinstance(done, protocol.GroupsLoaded) and done.stored:
            self._stored.start()

    def _apply(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        with ExitStack() as turn:
            with run.timed("wait_ms"):
                if slot.pins:  # another worker still reads what was its own
                    with self._core.changed:
                        self._core.changed.wait_for(lambda: slot.pins.keys().isdisjoint(run.groups))
                self._arriving.applied(slot.name, run.groups)
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

    def _initial_rows(
        self, header: lanes.TransactionHeader, groups: tuple[int, ...]
    ) -> list[RowChunk]:
        if header.base is not None:
            return []
        chunks = []
        for path in header.initial:
            rows = decode_changelog(self._core.blobs.read(path), path).get(INITIAL_ROWS)
            if rows is not None:
                chunks.append(rows_of_groups(rows, groups, self._config.keyspace))
        rows = pa.concat_tables(chunks) if chunks else None
        return [RowChunk(groups, rows)] if rows is not None and rows.num_rows else []

    def _answer(self, run: RunningTransaction) -> TransactionAnswer:
        slot = self._core.slots[run.opened.operator]
        if run.opened.is_shadow:
            self._arriving.note_shadow(run.applied)
            return TransactionAnswer(slot.output_schema, lanes.TransactionReports(), ())
        forwarded = {group for answer in run.forwarded for group in answer.groups}
        parts: dict[int, tuple[TransactionOutput, list[int]]] = {}
        for group in run.opened.groups:
            if group not in forwarded:
                output = slot.outputs[group]
                parts.setdefault(id(output), (output, []))[1].append(group)
        reports = [output.report(self._config.worker, groups) for output, groups in parts.values()]
        for answer in run.forwarded:
            first, *others = answer.reports
            stats = {**first.stats, ROWS_FORWARDED: answer.sent}
            reports += [replace(first, stats=stats), *others]
        answered = tuple((output, tuple(groups)) for output, groups in parts.values())
        report = lanes.TransactionReports(tuple(reports))
        return TransactionAnswer(slot.output_schema, report, answered, tuple(run.forwarded))
