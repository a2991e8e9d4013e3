"""Unaligned checkpoints: a transaction whose state or turn is not there leaves its rows behind."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from anabranch.durability.manifest import DEFERRED
from anabranch.model.ids import KeyGroup, number_of
from anabranch.protocol.worker import STORE, LoadGroups
from anabranch.state.channel import ChannelledState, has_waiting
from anabranch.state.contract import GroupState
from anabranch.worker.core import WorkerCore
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.residency.arrival_table import ArrivalTable, Arriving
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.transactions.transaction import RunningTransaction

EPOCHS_MAX = 4
"""So many batches of a key group wait at most."""

TURN_SECONDS = 0.2
"""How long a transaction waits while another one is applied, before its rows are left to wait."""


class Deferral:
    """Decides which key groups of a transaction wait, and applies the others."""

    def __init__(self, core: WorkerCore, arriving: ArrivalTable, stored: StoreLoader) -> None:
        self._core = core
        self._arriving = arriving
        self._stored = stored
        self._is_on = core.config.checkpoint == "unaligned"

    def of_state(
        self, slot: OperatorSlot, run: RunningTransaction, effect: LoadGroups
    ) -> tuple[LoadGroups, tuple[KeyGroup, ...], tuple[KeyGroup, ...]]:
        """What is still to be loaded; key groups that are deferred; of these those in the store."""
        if effect.as_of is None or not self._may_choose(run):
            return effect, (), ()
        sources = dict(effect.sources)
        deferred: list[KeyGroup] = []
        in_store: list[KeyGroup] = []
        for group in effect.groups:
            record = self._record(slot, group, sources.get(group), effect.as_of)
            if record is None or not self._leave(slot, record, number_of(effect.as_of)):
                continue
            deferred.append(group)
            if record.source == STORE:
                in_store.append(group)
        run.deferred.update(deferred)
        groups = tuple(group for group in effect.groups if group not in run.deferred)
        known = tuple((g, source) for g, source in effect.sources if g not in run.deferred)
        return replace(effect, groups=groups, sources=known), tuple(deferred), tuple(in_store)

    def of_turn(self, slot: OperatorSlot, run: RunningTransaction) -> bool:
        """Whether all rows wait, since it is another transaction's turn for long.

        False: `slot.apply_lock` is taken.
        """
        if not self._may_choose(run):
            slot.apply_lock.acquire()
            run.deferred.update(group for group in run.groups if group in (run.waits or ()))
            return False
        if slot.apply_lock.acquire(timeout=TURN_SECONDS):
            return False
        # Whoever takes the lock next sees that the key groups are busy, and leaves them alone.
        if slot.is_applying and all(may_wait(slot.states[group]) for group in run.groups):
            run.deferred.update(run.groups)
            return True
        slot.apply_lock.acquire()
        return False

    def apply(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        """Run the operator on the transaction's key groups, except for those that wait."""
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
                run.note_applied(slot.engine.apply(run, states))
        finally:
            run.groups = groups
            run.applied += tuple(begun)
            slot.views.update(dict.fromkeys(begun, (run.opened.base, run.opened.epoch)))

    def _may_choose(self, run: RunningTransaction) -> bool:
        """Whether it is decided here and now which rows wait.

        Not if the coordinator has settled it (`Operator.waits`), nor in the first epoch: initial
        rows come with it, and are not kept in channels.
        """
        return self._is_on and run.waits is None and run.opened.base is not None

    def _record(
        self, slot: OperatorSlot, group: KeyGroup, source: object, as_of: int
    ) -> Arriving | None:
        """The key group on its way here, if it is; else one that the store will give."""
        record = self._arriving.find(slot.name, group)
        if record is not None and (record.is_done or record.is_dead):
            return None
        if record is not None and record.source == source:
            # Of a replica only a delta is missing, of what the store has only cold keys.
            is_near = record.replica is not None or source == STORE
            if source == STORE and self._stored.is_full():
                return None  # nothing comes in the background: those keys that are needed, now
            return None if is_near and not has_waiting(record.state) else record
        if source is not None or record is not None:
            return None
        if not self._stored.reads_keys(slot) or self._stored.is_full():
            return None  # nothing would come in the background
        stored = slot.stored_at(self._core.blobs, as_of)
        if group in stored.manifest.extra.get(DEFERRED, ()):
            return None  # rows wait there already: now is their turn
        record = self._arriving.new_in_store(slot.name, group)
        record.state, record.as_of = slot.engine.create_group(), as_of
        record.wear = stored.wear(group)
        self._arriving.put_in_store(record)
        return record

    def _leave(self, slot: OperatorSlot, record: Arriving, base: int) -> bool:
        with record.lock:
            if record.is_done or record.is_dead:
                return False
            if record.state is None:
                record.state, record.as_of = slot.engine.create_group(), base
            elif not record.is_adopted and record.as_of != base:
                return False
            if not may_wait(record.state):
                return False
            self._arriving.adopt(slot, record)
            return True


def may_wait(state: GroupState) -> bool:
    """Whether the channel has room for another batch."""
    return len(cast(ChannelledState, state).waiting) < EPOCHS_MAX
