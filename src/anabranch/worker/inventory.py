"""What a worker holds, for status and for balancing."""

from __future__ import annotations

from anabranch.transport.messages.control import (
    GroupLoad,
    GroupLoads,
    OperatorStatus,
    WorkerStatus,
)
from anabranch.worker.core import WorkerCore
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.resident import resident_bytes


class Inventory:
    """Counts the state that a worker owns."""

    def __init__(self, core: WorkerCore, store: StoreLoader) -> None:
        self._core = core
        self._store = store

    def status(self) -> WorkerStatus:
        """Rows, bytes and hits by operator, counters of moves, and the memory of the process."""
        core = self._core
        with core.changed:
            owned = {
                slot.name: [s for g, s in list(slot.states.items()) if core.is_owner(g)]
                for slot in core.slots.values()
            }
            operators = {
                name: OperatorStatus(
                    key_groups=len(states),
                    rows=sum(state.num_rows for state in states),
                    bytes=sum(state.num_bytes for state in states),
                    bins_in_store=self._store.bins_in_store(name),
                    rows_seen=core.slots[name].rows_seen,
                    rows_missed=core.slots[name].known_misses,
                    busy_seconds=core.busy_with(name).read(),
                )
                for name, states in owned.items()
            }
            moves = dict(core.counters)
        return WorkerStatus(operators, core.config.bins, moves, *resident_bytes())

    def loads(self) -> GroupLoads:
        """Bytes of state and recent rows of each key group that is owned here."""
        core, found = self._core, dict[int, GroupLoad]()
        with core.changed:
            for slot in core.slots.values():
                for group in list(slot.states):  # loads add to it
                    if core.is_owner(group):
                        found[group] = found.get(group, GroupLoad()) + slot.load_of(group)
        return GroupLoads(found)
