"""Under a memory limit, what is cold leaves memory after a commit: the store has it."""

from __future__ import annotations

import numpy as np

from anabranch.model.ids import Epoch, KeyGroup
from anabranch.protocol.residency import may_evict
from anabranch.protocol.worker import GroupsEvicted
from anabranch.state.channel import has_waiting
from anabranch.worker.core import WorkerCore
from anabranch.worker.operator_slot import DECAY, OperatorSlot
from anabranch.worker.residency.arrival_table import ArrivalTable, PartContent
from anabranch.worker.residency.store_loader import StoreLoader

KEPT_SHARE = 0.7
"""Of the limit: so much is left when something must go, or it would have to after each batch."""

HOT = 4.0
"""Bins with so many times the rows of the others of their key group stay."""


class Eviction:
    """Makes room, key group by key group; the keys that batches need come back one by one."""

    def __init__(self, core: WorkerCore, arrivals: ArrivalTable, store: StoreLoader) -> None:
        self._core = core
        self._arrivals = arrivals
        self._store = store
        self._commits = 0
        self._last_commit: dict[str, int] = {}
        """Of each operator, as a number of commits of all of them."""

    def after_commit(self, operator: str) -> None:
        """Evict what is as of the last epoch of its operator, the coldest first, until it fits."""
        self._commits += 1
        self._last_commit[operator] = self._commits
        is_remote = self._core.config.state == "remote"
        limit = 0 if is_remote else self._core.config.state_memory_bytes
        if limit is None:
            return
        size = self._core.state_bytes()
        if size <= limit:
            return
        for slot, group, epoch in self._coldest_first():
            if size <= KEPT_SHARE * limit and not is_remote:
                return
            size -= self._evict(slot, group, epoch, keeps_hot=not is_remote)

    def _coldest_first(self) -> list[tuple[OperatorSlot, int, int]]:
        """Of all operators, by rows for each byte: what came back one by one is small and hot."""
        with self._core.changed:
            slots = list(self._core.slots.values())
        found: list[tuple[float, str, int, OperatorSlot, int]] = []
        for slot in slots:
            if slot.committed is None or not self._store.reads_keys(slot):
                continue
            rows = self._heat(slot).sum(axis=1)
            for group, state in list(slot.states.items()):
                if size := state.num_bytes:
                    found.append((rows[group] / size, slot.name, group, slot, slot.committed))
        found.sort(key=lambda each: each[:3])
        return [(slot, group, epoch) for *_, group, slot, epoch in found]

    def _evict(self, slot: OperatorSlot, group: int, epoch: int, keeps_hot: bool) -> int:
        """Take bins out of memory; the bytes that are free."""
        core, place = self._core, (slot.name, KeyGroup(group))
        with slot.apply_lock, core.changed:
            state = slot.states.get(group)
            if state is None or not self._may_evict(slot, group, epoch):
                return 0
            bins = self._cold(slot, group) if keeps_hot else list(range(slot.keyspace.bins))
            if not bins:
                return 0
            before = state.num_bytes
            # Committed: nothing is left to undo, so that memory is given back at once.
            state.begin()
            state.discard(bins)
            state.begin()
            freed = before - state.num_bytes
            if core.machine.arrivals.find(*place) is None:
                self._arrivals.renew(*place, PartContent())
            self._arrivals.content(*place).forget_fetched(bins, slot.keyspace)
            self._arrivals.logs.drop(slot.name, (group,))
            slot.in_store[group] = slot.in_store.get(group, 0) + freed
            evicted = ((KeyGroup(group), tuple(bins)),)
            core.dispatch(GroupsEvicted(slot.name, evicted, Epoch(epoch)))
        core.count({"bins_evicted": len(bins)})
        return freed

    def _may_evict(self, slot: OperatorSlot, group: int, epoch: int) -> bool:
        """Call it with `core.changed` taken: between transactions, as of what the store has."""
        core = self._core
        return (
            core.slots.get(slot.name) is slot
            and may_evict(core.machine, slot.name, KeyGroup(group), Epoch(epoch))
            and not slot.pins[group]
            and not has_waiting(slot.states.get(group))
        )

    def _cold(self, slot: OperatorSlot, group: int) -> list[int]:
        rows = self._heat(slot)[group]
        cold: list[int] = np.flatnonzero(rows <= HOT * max(1.0, float(rows.mean()))).tolist()
        return cold

    def _heat(self, slot: OperatorSlot) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Recent rows. Those of operators without batches count less with each commit of others."""
        age = self._commits - self._last_commit.get(slot.name, 0)
        weight: float = DECAY ** (age / max(1, len(self._last_commit)))
        return weight * slot.heat.reshape(slot.keyspace.groups, slot.keyspace.bins)
