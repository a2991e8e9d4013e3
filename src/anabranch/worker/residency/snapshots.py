"""Save key groups in the store: in the background when their changelogs are long, or all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anabranch.durability.names import snapshot_path
from anabranch.durability.snapshot import encode_snapshot
from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch, KeyGroup, number_of
from anabranch.protocol.worker import Residency
from anabranch.state.contract import Sections
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.parcel_reader import joined
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.residency.arrival_table import ArrivalTable, PartContent
from anabranch.worker.residency.snapshot_policy import PATIENCE, PATIENCE_MOVING, Wear

_log = logging.getLogger("anabranch.worker")

FILE_BYTES = 128 << 20
"""About so much goes into one file when everything is saved."""


@dataclass(frozen=True, slots=True)
class LeftInStore:
    """A part of a key group that is not in memory."""

    as_of: int = -1
    bins: tuple[int, ...] = ()
    content: PartContent | None = None
    """As it was: it says what of these bins is in memory all the same."""


class Snapshots:
    """Only key groups that are owned here, between transactions.

    What of them is in the store only is read from there: nobody has changed it since.
    """

    def __init__(self, core: WorkerCore, arrivals: ArrivalTable) -> None:
        self._core = core
        self._arrivals = arrivals
        self._untold: dict[str, list[str]] = {}
        """Files of an operator that were written before something else failed."""

    def after_commit(self, operator: str, epoch: int, is_moving: bool) -> list[str]:
        """Save key groups with long changelogs, as of a committed epoch; the files."""
        slot = self._core.slots.get(operator)
        if slot is None:
            return []
        config = self._core.config
        every = config.snapshot_seconds if config.checkpoint == "independent" else None
        patience = PATIENCE_MOVING if is_moving else PATIENCE
        refs = self._untold.pop(operator, [])
        try:
            self._save(slot, epoch, slot.due_for_snapshot(epoch, every, patience), refs)
        except AnabranchError as error:
            if not refs:
                raise
            _log.warning("Only a part of what is due was saved: %s", error)
        return refs

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
                written = refs.setdefault(slot.name, [])
                try:
                    counted.update(self._save(slot, epoch, changed, written))
                except AnabranchError:
                    for name, files in refs.items():
                        self._untold.setdefault(name, []).extend(files)
                    raise
        return refs, counted

    def _save(
        self, slot: OperatorSlot, epoch: int, groups: Iterable[int], refs: list[str]
    ) -> Counter[str]:
        """Write files, and add them to `refs` one by one: an error leaves those before it."""
        counted: Counter[str] = Counter()
        saved: dict[int, Sections] = {}
        worn: list[tuple[int, Wear, int]] = []
        size = 0

        def write() -> None:
            refs.append(self._write(slot, epoch, saved, counted))
            for group, wear, before in worn:
                if slot.wear.get(group) is wear:  # else it has gone, or was saved another way
                    wear.snapshot_epoch = epoch
                    wear.bytes -= before  # the next batch may have added to it
                    slot.to_save.discard(group)
            saved.clear()
            worn.clear()

        for group in groups:
            known = slot.wear.get(group)
            before = 0 if known is None else known.bytes
            sections = self._export(slot, group, epoch)
            if sections is None or known is None:
                continue
            saved[group] = sections
            worn.append((group, known, before))
            size += sum(table.nbytes for table in sections.values())
            counted["groups"] += 1
            if size >= FILE_BYTES:
                write()
                size = 0
        if saved:
            write()
        return counted

    def _export(self, slot: OperatorSlot, group: int, epoch: int) -> Sections | None:
        """All of a key group as of the epoch; None: it has moved on, or is not all within reach."""
        with slot.apply_lock:
            with self._core.changed:
                left = self._left(slot, group, epoch)
                state = slot.states.get(group)
                if left is None or state is None:
                    return None
            sections = state.export()
        if not left.bins:
            return sections
        stored = slot.stored_at(self._core.blobs, left.as_of)
        rest = stored.part(group, left.bins, slot.engine.create_group)
        if left.content is not None:
            rest = left.content.absent_in(rest, slot.keyspace)
        rest = slot.unexpired(group, rest, sections, stored)
        return joined([sections, self._like(sections, rest, slot)])

    def _left(self, slot: OperatorSlot, group: int, epoch: int) -> LeftInStore | None:
        """What of a key group that may be saved is in the store."""
        core, place = self._core, (slot.name, KeyGroup(group))
        if not core.is_owner(group) or core.slots.get(slot.name) is not slot:
            return None
        if core.machine.is_settled(*place, Epoch(epoch)):
            return LeftInStore()
        held, record = core.held(*place), core.machine.arrivals.find(*place)
        if held is None or held.as_of != epoch or core.machine.is_busy(*place):
            return None
        if record is None or record.phase is not Residency.STORED or record.is_broken:
            return None
        content = self._arrivals.content(*place).copy()
        return LeftInStore(number_of(record.origin), tuple(sorted(record.missing)), content)

    def _like(self, sections: Sections, rest: Sections, slot: OperatorSlot) -> Sections:
        """With the variables and columns that the operator has now: files may be older."""
        if all(n in sections and t.schema.equals(sections[n].schema) for n, t in rest.items()):
            return rest
        state = slot.engine.create_group()
        state.install(rest)
        return state.export()

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
        buffers = encode_snapshot(saved, slot.keyspace, slot.engine.due_column)
        counted["bytes"] += sum(memoryview(buffer).nbytes for buffer in buffers)
        return core.write(path, epoch, tuple(saved), buffers)
