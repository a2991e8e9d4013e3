"""A worker's answers to lookups: what keys have as of an epoch, from memory or the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from anabranch.durability.manifest import ROWS_WAIT
from anabranch.errors import CallTimedOut
from anabranch.model.keyspace import HASH, Int64s
from anabranch.processor.contract import View
from anabranch.state.channel import is_behind
from anabranch.transport.messages.state import FoundHead, LookUp
from anabranch.transport.packing import unpack_keys
from anabranch.transport.signs_of_life import Item
from anabranch.worker.core import WorkerCore
from anabranch.worker.low_priority import giving_way
from anabranch.worker.operator_slot import OperatorSlot

APPLY_SECONDS_MAX = 45.0
"""For so long a lookup waits for a transaction that is being applied."""


class LookupServer:
    """Reads only; what is in memory is used if it is as of the epoch, before or after a batch.

    Transactions wait while references to the entries are copied, not while these are converted.
    """

    def __init__(self, core: WorkerCore) -> None:
        self._core = core

    def look_up(self, request: LookUp) -> Iterator[Item]:
        """A section of the keys in a request: those whose state is in memory, then the others."""
        slot = self._core.slot(request.operator, request.definition)
        keys, section, as_of = unpack_keys(request.keys), request.section, request.as_of
        hashes: Int64s = keys.column(HASH).to_numpy()
        of_key = slot.keyspace.group_of(hashes)
        wanted = np.unique(of_key).tolist()
        with self._between_transactions(slot):
            here = {group: self._in_memory(slot, group, as_of) for group in wanted}
            views = {group: view for group, view in here.items() if view is not None}
            some = keys.filter(pa.array(np.isin(of_key, list(views))))
            found = slot.engine.look_up(views, some, section) if views else iter(())
        for table in giving_way(found):
            yield FoundHead(), {section: table}
        # On their way, not loaded yet, or of another epoch: the store has every committed one.
        if len(views) < len(wanted):
            others = keys.filter(pa.array(~np.isin(of_key, list(views))))
            for table in giving_way(self._from_store(slot, others, section, as_of)):
                yield FoundHead(), {section: table}

    @contextmanager
    def _between_transactions(self, slot: OperatorSlot) -> Iterator[None]:
        """While none is applied; a call of user code that hangs is said, not waited for."""
        if not slot.apply_lock.acquire(timeout=APPLY_SECONDS_MAX):
            raise CallTimedOut(
                f"A worker has applied a batch of operator '{slot.name}' for more than "
                f"{APPLY_SECONDS_MAX:.0f} s, and a lookup waits for its end. If user code hangs, "
                "service.status() shows it under 'stuck'. Ask again later."
            )
        try:
            yield
        finally:
            slot.apply_lock.release()

    def _from_store(
        self, slot: OperatorSlot, keys: pa.Table, section: str, as_of: int | None
    ) -> Iterator[pa.Table]:
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
            with self._between_transactions(slot):
                slot.engine.catch_up(states)
        views = {group: (state, False) for group, state in states.items()}
        return slot.engine.look_up(views, keys, section)

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
