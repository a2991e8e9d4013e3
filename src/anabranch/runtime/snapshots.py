"""Save key groups in the store: in the background when their changelogs are long, or all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from anabranch.durability.names import snapshot_path
from anabranch.durability.snapshot import encode_snapshot
from anabranch.model.ids import Epoch, KeyGroup
from anabranch.runtime.core import WorkerCore
from anabranch.runtime.operators import OperatorSlot
from anabranch.runtime.wear import Wear
from anabranch.state.contract import Sections

FILE_BYTES = 128 << 20
"""About so much goes into one file when everything is saved."""


class Snapshots:
    """Only whole key groups that are owned here, between transactions."""

    def __init__(self, core: WorkerCore) -> None:
        self._core = core

    def after_commit(self, operator: str, epoch: int) -> list[str]:
        """Save key groups with long changelogs, as of a committed epoch; the files."""
        slot = self._core.slots.get(operator)
        if slot is None:
            return []
        slot.committed = max(epoch, -1 if slot.committed is None else slot.committed)
        return self._save(slot, epoch, slot.due_for_snapshot(epoch))[0]

    def save(self, epochs: Mapping[str, int | None]) -> tuple[dict[str, list[str]], Counter[str]]:
        """Save everything that has changed, as of the epochs given or of whatever is here.

        The files of each operator, and what was counted.
        """
        refs: dict[str, list[str]] = {}
        counted: Counter[str] = Counter()
        for slot in list(self._core.slots.values()):
            with self._core.changed:
                held = dict(self._core.machine.held.get(slot.name, {}))
            as_of = {group: state.as_of for group, state in held.items()}
            for epoch in sorted({e for e in as_of.values() if e is not None}):
                if epochs.get(slot.name, epoch) != epoch:
                    continue
                changed = [g for g, e in as_of.items() if e == epoch and slot.has_changed(g)]
                saved, size = self._save(slot, epoch, changed)
                refs.setdefault(slot.name, []).extend(saved)
                counted.update(size)
        return refs, counted

    def _save(
        self, slot: OperatorSlot, epoch: int, groups: Iterable[int]
    ) -> tuple[list[str], Counter[str]]:
        refs: list[str] = []
        counted: Counter[str] = Counter()
        saved: dict[int, Sections] = {}
        size = 0
        for group in groups:
            with slot.apply_lock:
                with self._core.changed:
                    if not self._may_save(slot, group, epoch):
                        continue
                    state = slot.states[group]
                saved[group] = state.export()
            slot.wear[group] = Wear(epoch)
            size += sum(table.nbytes for table in saved[group].values())
            counted["groups"] += 1
            if size >= FILE_BYTES:
                refs.append(self._write(slot, epoch, saved, counted))
                saved, size = {}, 0
        if saved:
            refs.append(self._write(slot, epoch, saved, counted))
        return refs, counted

    def _may_save(self, slot: OperatorSlot, group: int, epoch: int) -> bool:
        core = self._core
        return (
            core.is_owner(group)
            and core.slots.get(slot.name) is slot
            and group in slot.states
            and core.machine.is_settled(slot.name, KeyGroup(group), Epoch(epoch))
        )

    def _write(
        self,
        slot: OperatorSlot,
        epoch: int,
        saved: Mapping[int, Sections],
        counted: Counter[str],
    ) -> str:
        core = self._core
        path = snapshot_path(
            slot.name, epoch, core.config.worker, core.config.incarnation, core.next_snapshot_id()
        )
        buffers = encode_snapshot(saved, core.config.keyspace)
        counted["bytes"] += sum(memoryview(buffer).nbytes for buffer in buffers)
        return core.write(path, epoch, tuple(saved), buffers)
