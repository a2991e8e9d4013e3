"""What a transaction makes durable: its changes, or the whole state of what it has changed."""

from __future__ import annotations

import numpy as np

from anabranch.durability.changelog import encode_changelog
from anabranch.durability.manifest import joined_refs
from anabranch.durability.names import changelog_path, snapshot_path
from anabranch.durability.pack import PackPart
from anabranch.durability.snapshot import encode_snapshot
from anabranch.model.ids import KeyGroup
from anabranch.model.keyspace import HASH
from anabranch.model.stats import ROWS_DEFERRED, STATE_BYTES, STATE_ROWS
from anabranch.state.contract import Sections
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.deltas import DeltaLogs
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.residency import snapshots
from anabranch.worker.residency.snapshot_policy import Wear
from anabranch.worker.transactions.group_commit import GroupCommit
from anabranch.worker.transactions.transaction import RunningTransaction, TransactionOutput


class TransactionWriter:
    """Writes what makes a transaction durable: its part of a file, or files with whole states."""

    def __init__(self, core: WorkerCore, logs: DeltaLogs) -> None:
        self._core = core
        self._logs = logs
        self._commits = GroupCommit(core.blobs, core.pass_point)

    def persist(self, slot: OperatorSlot, run: RunningTransaction) -> None:
        """Make a transaction durable, and keep its outputs for retries."""
        groups = run.applied
        changes = run.changes()
        changelog = None
        if changes:
            changelog = self._write_changes(slot, run, changes)
            self._logs.note(slot.name, run.opened.epoch, groups, changes)
        slot.note_heat(run.rows.sample())
        rows = run.rows.rows_of(groups)
        slot.note_load(groups, rows)
        counts = dict(zip(groups, rows, strict=True)) if slot.has_sites else {}
        spent = run.spent
        if run.deferred:
            spent[ROWS_DEFERRED] = sum(run.rows.rows_of(run.deferred))
        spent[STATE_ROWS], spent[STATE_BYTES] = slot.size_of(groups)
        waits = frozenset(run.deferred)
        output = TransactionOutput(
            groups,
            run.output,
            changelog,
            run.stats,
            spent,
            waits,
            run.tally,
            counts,
            run.rows.mean_bytes if counts else 0.0,
        )
        with self._core.changed:
            slot.outputs.update(dict.fromkeys(groups, output))

    def _write_changes(self, slot: OperatorSlot, run: RunningTransaction, changes: Sections) -> str:
        """References to its files, for the manifest."""
        changed = sorted(_groups(slot, changes))
        if self._core.config.checkpoint == "full" and self._are_whole(slot, changed):
            return self._save(slot, run, changed)
        opened, config = run.opened, self._core.config
        path = changelog_path(
            opened.operator,
            opened.epoch,
            opened.lane,
            config.worker,
            config.incarnation,
            opened.tx,
        )
        buffers = encode_changelog(changes, slot.keyspace, slot.engine.due_column)
        with run.timed("write_ms"):
            part = PackPart(path, opened.epoch, run.applied, buffers)
            written = self._commits.write(opened.operator, part)
        slot.note_changes(run.applied, changes)
        return written.text()

    def _save(self, slot: OperatorSlot, run: RunningTransaction, groups: list[int]) -> str:
        """Whole states, as many at a time as fit into a file: together they may be too large."""
        written: list[str] = []
        saved: dict[int, Sections] = {}
        size = 0
        for group in groups:
            saved[group] = slot.states[group].export()
            size += sum(table.nbytes for table in saved[group].values())
            if size >= snapshots.FILE_BYTES or group == groups[-1]:
                written.append(self._write(slot, run, saved))
                saved, size = {}, 0
        for group in groups:
            slot.wear[group] = Wear(run.opened.epoch)
        return joined_refs(written)

    def _write(
        self, slot: OperatorSlot, run: RunningTransaction, saved: dict[int, Sections]
    ) -> str:
        core, epoch = self._core, run.opened.epoch
        number = core.next_snapshot_id()
        path = snapshot_path(slot.name, epoch, core.config.worker, core.config.incarnation, number)
        buffers = encode_snapshot(saved, slot.keyspace, slot.engine.due_column)
        with run.timed("write_ms"):
            return core.write(path, epoch, tuple(saved), buffers)

    def _are_whole(self, slot: OperatorSlot, groups: list[int]) -> bool:
        with self._core.changed:
            held = self._core.machine.held.get(slot.name, {})
            return all(
                g in held and not held[KeyGroup(g)].is_partial for g in map(KeyGroup, groups)
            )


def _groups(slot: OperatorSlot, changes: Sections) -> set[int]:
    found: set[int] = set()
    for entries in changes.values():
        hashes = entries.column(HASH).to_numpy()
        found.update(np.unique(slot.keyspace.group_of(hashes)).tolist())
    return found
