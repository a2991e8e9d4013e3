"""Unaligned checkpoints: a transaction whose state or turn is not there leaves its rows behind."""

from __future__ import annotations

from typing import cast

from anabranch.durability.manifest import DEFERRED
from anabranch.protocol import worker as protocol
from anabranch.state.channel import ChannelledState, has_waiting
from anabranch.state.contract import GroupState
from anabranch.worker.core import WorkerCore
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.residency.arrival_table import UNKNOWN_WEAR, ArrivalTable, PartContent
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.transactions.transaction import RunningTransaction

EPOCHS_MAX = 4
"""So many batches of a key group wait at most."""

TURN_SECONDS = 0.2
"""How long a transaction waits while another one is applied, before its rows are left to wait."""


class Deferral:
    """Decides whose rows wait for a later transaction, instead of holding up this one."""

    def __init__(self, core: WorkerCore, arrivals: ArrivalTable, store: StoreLoader) -> None:
        self._core = core
        self._arrivals = arrivals
        self._store = store

    def choose(
        self, slot: OperatorSlot, run: RunningTransaction, effect: protocol.ChooseDeferred
    ) -> protocol.DeferralChosen:
        """The candidates whose rows wait; something of their state is in place, perhaps nothing."""
        chosen = tuple(
            candidate.group
            for candidate in effect.candidates
            if self._may_wait(slot, candidate, effect.as_of)
            and self._leave(slot, candidate, effect.as_of)
        )
        run.deferred.update(chosen)
        return protocol.DeferralChosen(effect.tx, chosen)

    def takes_turn(self, slot: OperatorSlot, run: RunningTransaction) -> bool:
        """Whether `slot.apply_lock` is taken; False: another one has it for long, and rows wait."""
        if slot.apply_lock.acquire(timeout=TURN_SECONDS):
            return True
        # Whoever takes the lock next sees that the key groups are busy, and leaves them alone.
        if slot.is_applying and all(may_wait(slot.states[group]) for group in run.groups):
            run.deferred.update(run.groups)
            return False
        # no limit: one transaction after the other, each as long as its user code
        slot.apply_lock.acquire()
        return True

    def _may_wait(
        self, slot: OperatorSlot, candidate: protocol.DeferralCandidate, as_of: int | None
    ) -> bool:
        """Whether it is worth it: the state comes in the background, and is not near."""
        is_absent = candidate.phase is protocol.Residency.ABSENT
        if candidate.source == protocol.STORE and self._store.is_full():
            return False  # nothing comes in the background: those keys that are needed, now
        if not is_absent:
            return not candidate.is_near or has_waiting(self._state_of(slot, candidate))
        if not self._store.reads_keys(slot):
            return False
        stored = slot.stored_at(self._core.blobs, as_of)
        # Else rows wait there already: now is their turn.
        return candidate.group not in stored.manifest.extra.get(DEFERRED, ())

    def _state_of(
        self, slot: OperatorSlot, candidate: protocol.DeferralCandidate
    ) -> GroupState | None:
        """What transactions work on, or may: not a replica."""
        match candidate.phase:
            case protocol.Residency.PARTIAL | protocol.Residency.STORED:
                return slot.states[candidate.group]
            case protocol.Residency.STAGED:
                return self._arrivals.content(slot.name, candidate.group).staged
            case _:
                return None

    def _leave(
        self, slot: OperatorSlot, candidate: protocol.DeferralCandidate, as_of: int | None
    ) -> bool:
        """Make room for rows that wait, where nothing is here; False: there is none."""
        state, group = self._state_of(slot, candidate), int(candidate.group)
        if state is not None:
            return may_wait(state)
        wear = list(UNKNOWN_WEAR)
        if candidate.phase is protocol.Residency.ABSENT:
            wear = slot.stored_at(self._core.blobs, as_of).wear(group)
        self._arrivals.renew(slot.name, group, PartContent())
        self._arrivals.adopt(slot, group, slot.engine.create_group(), wear)
        return True


def may_wait(state: GroupState) -> bool:
    """Whether the channel has room for another batch."""
    return len(cast(ChannelledState, state).waiting) < EPOCHS_MAX
