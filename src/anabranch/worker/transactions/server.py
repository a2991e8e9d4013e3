"""Serves transactions: rows in, the protocol's effects carried out in their order, answers out."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import traceback
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from anabranch.errors import AnabranchError, ProcessorError
from anabranch.model.stats import ROWS_FORWARDED
from anabranch.protocol import worker as protocol
from anabranch.protocol.exhaustive import unhandled
from anabranch.transport.messages import lanes
from anabranch.transport.server import IncomingRows
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.forwarding import Forwarding
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.residency.arrival_table import ArrivalTable
from anabranch.worker.residency.load import GroupLoader
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.transactions.apply import Applier
from anabranch.worker.transactions.deferral import Deferral
from anabranch.worker.transactions.persist import TransactionWriter
from anabranch.worker.transactions.row_buffer import RowBuffer
from anabranch.worker.transactions.transaction import (
    RunningTransaction,
    TransactionAnswer,
    TransactionEffect,
    TransactionOutput,
)

_log = logging.getLogger("anabranch.worker")

RECEIVE_SECONDS_MAX = 60.0
"""How long a transaction waits for an import that brings nothing before it asks for itself."""

Attempt = (
    protocol.ChooseDeferred
    | protocol.FetchGroups
    | protocol.LoadGroups
    | protocol.ApplyTransaction
    | protocol.PersistChanges
)
"""Effects that may fail: what was done is undone."""


class TransactionServer:
    """One thread of the server for each transaction; the protocol says what it does next."""

    def __init__(
        self,
        core: WorkerCore,
        arrivals: ArrivalTable,
        loader: GroupLoader,
        store: StoreLoader,
        deferral: Deferral,
        writer: TransactionWriter,
        forwarding: Forwarding,
    ) -> None:
        self._core = core
        self._arrivals = arrivals
        self._loader = loader
        self._store = store
        self._deferral = deferral
        self._applier = Applier(core, deferral)
        self._writer = writer
        self._forwarding = forwarding
        self._numbers = itertools.count(1)
        core.answer = self._answer

    # -- rows in --

    def exchange(
        self, header: lanes.TransactionHeader, rows: Iterator[pa.RecordBatch]
    ) -> TransactionAnswer:
        """A lane's rows in, its outputs out."""
        if header.is_shadow:
            return self._shadow(header, rows)
        run = self._open(header)
        if isinstance(rows, IncomingRows):
            run.is_abandoned = rows.is_abandoned
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
            tx=next(self._numbers),
            operator=header.operator,
            epoch=header.epoch,
            base=header.base,
            lane=header.lane,
            lanes=header.lanes,
            attempt=header.attempt,
            groups=header.groups,
            version=header.version,
            is_shadow=header.is_shadow,
            may_defer=self._may_defer(header),
        )
        # All lanes may be here at once, each with rows and with outputs.
        limit = self._core.config.memory_bytes // (2 * opened.lanes)
        buffer = RowBuffer(opened.groups, self._core.config.keyspace, limit)
        schema = self._core.slot(opened.operator, header.definition).output_schema
        run = RunningTransaction(
            opened, header, buffer, schema, limit, self._core.busy_with(opened.operator)
        )
        self._core.running[opened.tx] = run
        self._core.dispatch(opened)
        return run

    def _may_defer(self, header: lanes.TransactionHeader) -> bool:
        """Whether it is decided here and now which rows wait.

        Not if the coordinator has settled it (`OperatorRecord.waits`), nor in the first epoch:
        initial rows come with it, and are not kept in channels.
        """
        is_open = header.waits is None and header.base is not None
        return is_open and self._core.config.checkpoint == "unaligned"

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

    # -- effects, in the order of the protocol --

    def _serve(self, run: RunningTransaction) -> TransactionAnswer:
        """Perform this transaction's effects until the protocol answers or refuses."""
        while True:
            effect = run.todo.get()  # no limit: every effect ends in an event, and so in the next
            while isinstance(effect, protocol.AwaitArrivals):
                effect = self._next_after(run, effect)
            match effect:
                case TransactionAnswer():
                    return effect
                case protocol.RefuseTransaction():
                    raise effect.error
                case protocol.ForwardRows():
                    self._forwarding.start(run, effect)
                case _:
                    self._attempt(run, effect)

    def _next_after(
        self, run: RunningTransaction, effect: protocol.AwaitArrivals
    ) -> TransactionEffect | TransactionAnswer:
        """The effect that ends the wait for what is coming in; the protocol sees if it comes."""
        for group in effect.groups:
            self._arrivals.note_on_demand(group, {"waited": 1})
        self._core.count({"waited": len(effect.groups)})
        with run.timed("load_ms"):
            while True:
                try:
                    following = run.todo.get(timeout=RECEIVE_SECONDS_MAX)
                    self._core.pass_point("fetched")
                    return following
                except queue.Empty:
                    self._core.dispatch(protocol.AwaitingExpired(effect.tx))

    def _attempt(self, run: RunningTransaction, effect: Attempt) -> None:
        slot = self._core.slots[run.opened.operator]
        try:
            done = self._perform(slot, run, effect)
        except AnabranchError as error:
            self._applier.undo(slot, run)
            done = protocol.TransactionFailed(effect.tx, error)
        except BaseException as error:  # also sys.exit() in user code: the lane waits for an answer
            self._applier.undo(slot, run)
            detail = "".join(traceback.format_exception(error))
            message = f"Operator '{slot.name}' failed; nothing was changed.\n{detail}"
            done = protocol.TransactionFailed(effect.tx, ProcessorError(message))
        self._core.dispatch(done)
        is_left = isinstance(done, protocol.GroupsLoaded) and done.stored
        if is_left or (isinstance(done, protocol.DeferralChosen) and done.groups):
            self._store.start()

    def _perform(
        self, slot: OperatorSlot, run: RunningTransaction, effect: Attempt
    ) -> protocol.Event:
        match effect:
            case protocol.ChooseDeferred():
                return self._deferral.choose(slot, run, effect)
            case protocol.FetchGroups():
                return self._loader.fetch(slot, run, effect)
            case protocol.LoadGroups():
                loaded = self._loader.load(slot, run, effect)
                self._core.pass_point("loaded")
                return loaded
            case protocol.ApplyTransaction():
                self._applier.apply(slot, run, effect.groups)
                self._core.pass_point("applied")
                return protocol.TransactionApplied(effect.tx)
            case protocol.PersistChanges():
                self._writer.persist(slot, run)
                self._core.pass_point("changelog-written")
                return protocol.ChangesDurable(effect.tx)
            case _:
                unhandled(effect)

    # -- answers out --

    def _answer(self, run: RunningTransaction) -> TransactionAnswer:
        slot = self._core.slots[run.opened.operator]
        if run.opened.is_shadow:
            self._arrivals.note_shadow(run.applied)
            return TransactionAnswer(slot.output_schema, lanes.TransactionReports(), ())
        elsewhere = {group for answer in run.forwarded for group in answer.groups}
        parts: dict[int, tuple[TransactionOutput, list[int]]] = {}
        for group in run.opened.groups:
            if group not in elsewhere:
                output = slot.outputs[group]
                parts.setdefault(id(output), (output, []))[1].append(group)
        reports = [
            output.report(self._core.config.worker, groups) for output, groups in parts.values()
        ]
        for answer in run.forwarded:
            first, *others = answer.reports
            stats = {**first.stats, ROWS_FORWARDED: answer.sent}
            reports += [replace(first, stats=stats), *others]
        answered = tuple((output, tuple(groups)) for output, groups in parts.values())
        tallies = [output.tally.message(groups) for output, groups in parts.values()]
        tallies += [answer.tallies for answer in run.forwarded]
        report = lanes.TransactionReports(tuple(reports), b"".join(tallies))
        forwarded = tuple(run.forwarded)
        busy = self._core.busy_with(slot.name)
        return TransactionAnswer(slot.output_schema, report, answered, forwarded, busy)
