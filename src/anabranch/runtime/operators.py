"""One operator in a worker: its engine, the state of its key groups, cached outputs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from anabranch.durability.blobs import BlobStore
from anabranch.durability.manifest import Manifest
from anabranch.durability.names import manifest_path
from anabranch.durability.restore import load_groups
from anabranch.model.keyspace import GROUP, HASH, KeySpace
from anabranch.processor.contract import OperatorDefinition, OperatorEngine
from anabranch.runtime.transaction import TransactionOutput
from anabranch.state.contract import GroupState, Sections

SNAPSHOT_EPOCHS = 16
"""A changed key group is saved at the latest after this many epochs (spread over twice as many)."""

SNAPSHOT_GROWTH = 2
"""... or when its changelog has this many times as many rows as its state."""

SNAPSHOT_ROWS_MIN = 1000


@dataclass(slots=True)
class Wear:
    """How much changelog a key group has gathered since its last snapshot."""

    snapshot_epoch: int
    rows: int = 0


@dataclass
class OperatorSlot:
    """What a worker holds for one operator."""

    name: str
    definition_id: int
    engine: OperatorEngine
    output_schema: pa.Schema
    """GROUP first."""
    keyspace: KeySpace
    states: dict[int, GroupState] = field(default_factory=dict)
    outputs: dict[int, TransactionOutput] = field(default_factory=dict)
    wear: dict[int, Wear] = field(default_factory=dict)
    apply_lock: threading.Lock = field(default_factory=threading.Lock)
    """State changes only under it."""

    @classmethod
    def open(
        cls, name: str, definition_id: int, definition: OperatorDefinition, keyspace: KeySpace
    ) -> OperatorSlot:
        """Start the operator's engine."""
        schema = pa.schema([pa.field(GROUP, pa.int32()), *definition.output_schema])
        return cls(name, definition_id, definition.open(keyspace), schema, keyspace)

    def load(self, blobs: BlobStore, groups: tuple[int, ...], as_of: int | None) -> None:
        """Bring key groups into memory as of a committed epoch."""
        if as_of is None:
            loaded = {group: self.engine.create_group() for group in groups}
        else:
            path = manifest_path(self.name, as_of)
            manifest = Manifest.decode(bytes(blobs.read(path)), blobs.full_name(path))
            loaded = load_groups(blobs, manifest, groups, self.engine.create_group)
        self.states.update(loaded)
        for group in groups:
            self.wear[group] = Wear(-1 if as_of is None else as_of)

    def note_changes(self, groups: tuple[int, ...], changes: Sections) -> None:
        """Count changed rows for the snapshot policy."""
        counts = np.zeros(self.keyspace.groups, dtype=np.int64)
        for entries in changes.values():
            hashes = entries.column(HASH).to_numpy()
            counts += np.bincount(self.keyspace.group_of(hashes), minlength=self.keyspace.groups)
        for group in groups:
            self.wear[group].rows += int(counts[group])

    def due_for_snapshot(self, epoch: int) -> list[int]:
        """Key groups whose changelog has become long enough to be worth a snapshot."""
        due = []
        for group, wear in self.wear.items():
            state = self.states.get(group)
            if state is None or not wear.rows:
                continue
            many = max(SNAPSHOT_ROWS_MIN, SNAPSHOT_GROWTH * state.num_rows)
            late = wear.snapshot_epoch + SNAPSHOT_EPOCHS + group % SNAPSHOT_EPOCHS
            if wear.rows >= many or epoch >= late:
                due.append(group)
        return due

    def drop(self) -> None:
        """Forget all state and outputs."""
        self.states.clear()
        self.outputs.clear()
        self.wear.clear()
