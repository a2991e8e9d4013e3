"""What a batch has replaced goes as soon as the batch is committed, where it is much.

Else a key group keeps it until its next batch, to undo the last one: of large values a second copy.
"""

from __future__ import annotations

from typing import cast

from anabranch.model.ids import Epoch, KeyGroup
from anabranch.state.channel import ChannelledState
from anabranch.worker.core import WorkerCore
from anabranch.worker.operator_slot import OperatorSlot

WAIT_SECONDS_MAX = 1.0
"""Under a transaction that takes longer, this waits for the next commit."""


def settle(core: WorkerCore, slot: OperatorSlot, epoch: Epoch) -> None:
    """An epoch exists: nobody takes it back, and lookups are as of it or later."""
    if not slot.much_changed or not slot.apply_lock.acquire(timeout=WAIT_SECONDS_MAX):
        return
    try:
        with core.changed:
            for group in list(slot.much_changed):
                _settle(core, slot, group, epoch)
    finally:
        slot.apply_lock.release()


def _settle(core: WorkerCore, slot: OperatorSlot, group: int, epoch: Epoch) -> None:
    state = slot.states.get(group)
    if state is None or core.slots.get(slot.name) is not slot:
        slot.much_changed.discard(group)
    elif core.machine.is_settled(slot.name, KeyGroup(group), epoch):
        slot.much_changed.discard(group)
        slot.views.pop(group, None)  # nothing is known of the epoch before
        cast(ChannelledState, state).settle()
