"""A worker's answers to lookups: what keys have as of an epoch, from memory or the store."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from anabranch.durability.manifest import ROWS_WAIT
from anabranch.model.keyspace import HASH, Int64s
from anabranch.processor.contract import View
from anabranch.state.channel import is_behind
from anabranch.state.contract import Sections
from anabranch.transport.messages.state import FoundHead, LookUp
from anabranch.transport.packing import unpack_keys
from anabranch.transport.server import Item
from anabranch.worker.core import WorkerCore
from anabranch.worker.operator_slot import OperatorSlot


class LookupServer:
    """Reads only; what is in memory is used if it is as of the epoch, before or after a batch."""

    def __init__(self, core: WorkerCore) -> None:
        self._core = core

    def look_up(self, request: LookUp) -> Iterator[Item]:
        """A section of the keys in a request: those whose state is in memory, then the others."""
        slot = self._core.slot(request.operator, request.definition)
        keys, section, as_of = unpack_keys(request.keys), request.section, request.as_of
        hashes: Int64s = keys.column(HASH).to_numpy()
        of_key = slot.keyspace.group_of(hashes)
        wanted = np.unique(of_key).tolist()
        with slot.apply_lock:
            here = {group: self._in_memory(slot, group, as_of) for group in wanted}
            views = {group: view for group, view in here.items() if view is not None}
            some = keys.filter(pa.array(np.isin(of_key, list(views))))
            found = slot.engine.look_up(views, some) if views else {}
        if views:
            yield FoundHead(), {section: found[section]}
        # On their way, not loaded yet, or of another epoch: the store has every committed one.
        if len(views) < len(wanted):
            others = keys.filter(pa.array(~np.isin(of_key, list(views))))
            yield FoundHead(), {section: self._from_store(slot, others, as_of)[section]}

    def _from_store(self, slot: OperatorSlot, keys: pa.Table, as_of: int | None) -> Sections:
        hashes: Int64s = keys.column(HASH).to_numpy()
        groups = np.unique(slot.keyspace.group_of(hashes)).tolist()
        stored = slot.stored_at(self._core.blobs, as_of) if slot.has_stored(as_of) else None
        if stored is not None and ROWS_WAIT not in stored.manifest.extra:
            states = {group: slot.engine.create_group() for group in groups}
            for group, sections in stored.keys(hashes, slot.engine.create_group).items():
                states[group].install(sections)
        else:  # all of them: rows may have to be applied
            read = slot.read(self._core.blobs, groups, as_of)
            states = {group: restored.state for group, restored in read.items()}
            with slot.apply_lock:
                slot.engine.catch_up(states)
        return slot.engine.look_up({g: (state, False) for g, state in states.items()}, keys)

    def _in_memory(self, slot: OperatorSlot, group: int, as_of: int | None) -> View | None:
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
            is_before = now != as_of
            if is_before and (group not in slot.views or before != as_of):
                return None
            return None if is_behind(state, is_before) else (state, is_before)
