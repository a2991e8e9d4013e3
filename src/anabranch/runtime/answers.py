"""A worker's answers to lookups: what keys have as of an epoch, from memory or the store."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from anabranch.model.keyspace import HASH, Int64s
from anabranch.runtime.core import WorkerCore
from anabranch.runtime.operators import OperatorSlot
from anabranch.state.contract import GroupState, Sections
from anabranch.transport.server import Item
from anabranch.transport.wire import Message


class Answers:
    """Reads only; what is in memory is used if it is as of the epoch, before or after a batch."""

    def __init__(self, core: WorkerCore) -> None:
        self._core = core

    def look_up(self, message: Message) -> Iterator[Item]:
        """Sections of the keys in a message, key group by key group."""
        slot = self._core.slot(message["operator"], message["definition"])
        keys, section = unpack_keys(message["keys"]), message["section"]
        hashes: Int64s = keys.column(HASH).to_numpy()
        groups = slot.keyspace.group_of(hashes)
        for group in np.unique(groups).tolist():
            some = keys.filter(pa.array(groups == group))
            found = self._of_group(slot, group, some, message["as_of"])
            yield {"group": group}, {section: found[section]}

    def _of_group(
        self, slot: OperatorSlot, group: int, keys: pa.Table, as_of: int | None
    ) -> Sections:
        with slot.apply_lock:
            here = self._in_memory(slot, group, as_of)
            if here is not None:
                state, is_before = here
                return slot.engine.look_up(state, keys, is_before)
        # On its way, not loaded yet, or of another epoch: the store has every committed one.
        bins = np.unique(slot.keyspace.bin_of(keys.column(HASH).to_numpy())).tolist()
        restored = slot.read(self._core.blobs, (group,), as_of, bins)[group]
        return slot.engine.look_up(restored.state, keys, before=False)

    def _in_memory(
        self, slot: OperatorSlot, group: int, as_of: int | None
    ) -> tuple[GroupState, bool] | None:
        """State that is as of the epoch, or was before its last transaction."""
        core = self._core
        with core.changed:
            held, state = core.held(slot.name, group), slot.states.get(group)
            if core.slots.get(slot.name) is not slot or held is None or state is None:
                return None
            if held.is_partial:
                return None
            # The machine learns of a transaction when its changes are durable; this is exact.
            before, now = slot.views.get(group, (None, held.as_of))
            if now == as_of:
                return state, False
            if group in slot.views and before == as_of:
                return state, True
        return None


def pack_keys(keys: pa.Table) -> str:
    """Keys inside a message."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as writer:
        writer.write_table(keys)
    return base64.b64encode(sink.getvalue()).decode()


def unpack_keys(text: str) -> pa.Table:
    """The reverse."""
    with pa.ipc.open_stream(base64.b64decode(text)) as reader:
        return reader.read_all()
