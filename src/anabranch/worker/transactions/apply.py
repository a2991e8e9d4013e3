"""Applies a transaction: the operator's turn, its rows, timers and TTL; undone if it fails."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa

from anabranch.durability.changelog import decode_changelog
from anabranch.processor.contract import INITIAL_ROWS, RowChunk
from anabranch.processor.user_code import running
from anabranch.transport.messages import lanes
from anabranch.worker.core import WorkerCore
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.transactions.deferral import Deferral
from anabranch.worker.transactions.transaction import RunningTransaction, rows_of_groups
from anabranch.worker.user_code import Visit


class Applier:
    """One transaction of an operator at a time, always in the operator's own thread."""

    def __init__(self, core: WorkerCore, deferral: Deferral) -> None:
        self._core = core
        self._deferral = deferral

    def apply(self, slot: OperatorSlot, run: RunningTransaction, groups: tuple[int, ...]) -> None:
        """Run the operator on key groups that are here, as of the base."""
        run.groups = groups
        run.initial_rows = self._initial_rows(run.header, groups)
        with ExitStack() as turn:
            with run.timed("wait_ms"):
                self._wait_for_readers(slot, run)
                has_turn = self._take_turn(slot, run)
                if has_turn:
                    turn.callback(slot.apply_lock.release)
                    slot.is_applying = True
                    turn.callback(setattr, slot, "is_applying", False)
            turn.enter_context(run.timed("apply_ms"))
            if has_turn:
                slot.in_apply_thread(lambda: self._run_watched(slot, run))
            else:  # rows are only put aside, while another transaction is applied
                run_operator(slot, run)

    def _run_watched(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        visit = Visit(
            slot.name,
            slot.definition_id,
            slot.engine.place,
            run.epoch,
            None if run.opened.is_shadow else run.header.attempt,
            run.is_abandoned,
        )
        with self._core.user_code.watched(visit):
            run_operator(slot, run)

    def undo(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        """Take back what a transaction has changed."""
        with slot.apply_lock:
            for group in run.applied:
                if group in slot.states:
                    slot.states[group].undo()
                    slot.views.pop(group, None)
        run.reset()

    def _wait_for_readers(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        """Another worker may still read what was its own."""
        if slot.pins:
            with self._core.changed:
                # no limit: its state is copied in memory meanwhile, not sent
                self._core.changed.wait_for(lambda: slot.pins.keys().isdisjoint(run.groups))

    def _take_turn(self, slot: OperatorSlot, run: RunningTransaction) -> bool:
        """Whether `slot.apply_lock` is taken; False: all rows wait for a later transaction."""
        if run.opened.may_defer:
            return self._deferral.takes_turn(slot, run)
        # no limit: one transaction after the other, each as long as its user code
        slot.apply_lock.acquire()
        # The coordinator has settled which rows wait: those that waited the first time.
        run.deferred.update(group for group in run.groups if group in (run.waits or ()))
        return True

    def _initial_rows(
        self, header: lanes.TransactionHeader, groups: tuple[int, ...]
    ) -> list[RowChunk]:
        if header.base is not None:
            return []
        chunks = []
        for path in header.initial:
            rows = decode_changelog(self._core.blobs.read(path), path).get(INITIAL_ROWS)
            if rows is not None:
                chunks.append(rows_of_groups(rows, groups, self._core.config.keyspace))
        rows = pa.concat_tables(chunks) if chunks else None
        return [RowChunk(groups, rows)] if rows is not None and rows.num_rows else []


def run_operator(slot: OperatorSlot, run: RunningTransaction) -> None:
    """Run user code on the transaction's key groups; put the rows aside that wait."""
    groups = run.groups
    begun: list[int] = []
    """Only these can be undone: to undo another one would take back the batch before."""
    try:
        run.groups = tuple(group for group in groups if group in run.deferred)
        if run.groups:
            slot.engine.defer(run, {group: slot.states[group] for group in run.groups})
            begun += run.groups
        run.groups = tuple(group for group in groups if group not in run.deferred)
        if run.groups:
            states = {group: slot.states[group] for group in run.groups}
            for group, state in states.items():
                state.begin()
                begun.append(group)
            with running(run):
                run.note_applied(slot.engine.apply(run, states))
            run.tally.settle(run.groups[0])  # what belongs to no key
    finally:
        run.groups = groups
        run.applied += tuple(begun)
        slot.views.update(dict.fromkeys(begun, (run.opened.base, run.opened.epoch)))
