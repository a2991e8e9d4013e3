"""One operator in a worker: its engine, the state of its key groups, cached outputs."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.durability.blobs import BlobStore
from anabranch.durability.group_restore import Restored, load_groups
from anabranch.durability.heat import HEAT, decode_heat
from anabranch.durability.lazy_reader import LazyReader, OpenFiles
from anabranch.durability.manifest import DEFERRED, Manifest
from anabranch.durability.manifest_reader import ManifestReader
from anabranch.durability.names import manifest_path, origin_path
from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import number_of
from anabranch.model.keyspace import GROUP, HASH, Int64s, KeySpace
from anabranch.processor.channel import ChannelEngine
from anabranch.processor.contract import BatchTimes, OperatorDefinition
from anabranch.state.backend import MEMORY, Backend
from anabranch.state.channel import Waiting
from anabranch.state.contract import GroupState, Sections
from anabranch.transport.messages.control import GroupLoad
from anabranch.worker.residency.snapshot_policy import Wear, due
from anabranch.worker.transactions.transaction import TransactionOutput

MUCH_BYTES = 1 << 20
"""Changes of a key group in one transaction that are worth to be forgotten soon."""

DECAY = 0.8
"""What rows count after each later transaction, where the last ones are to count most."""


@dataclass
class OperatorSlot:
    """What a worker holds for one operator."""

    name: str
    definition_id: int
    engine: ChannelEngine
    output_schema: pa.Schema
    """GROUP first."""
    keyspace: KeySpace
    states: dict[int, GroupState] = field(default_factory=dict)
    outputs: dict[int, TransactionOutput] = field(default_factory=dict)
    wear: dict[int, Wear] = field(default_factory=dict)
    bytes_changed: int = 0
    """Since snapshots were last thought of."""
    snapshot_debt: float = 0.0
    """Bytes that snapshots have written too early."""
    recent_rows: dict[int, float] = field(default_factory=dict)
    """Rows of each key group lately: the last batches count most."""
    apply_lock: threading.Lock = field(default_factory=threading.Lock)
    """State changes only under it."""
    is_applying: bool = False
    """Whether a transaction has it, rather than a snapshot or another worker."""
    saved_at: float = field(default_factory=time.monotonic)
    """When a worker that saves by its own clock began to."""
    to_save: set[int] = field(default_factory=set)
    """What is left to be saved since then."""
    pins: Counter[int] = field(default_factory=Counter)
    """Key groups that other workers are reading: should they be owned again, transactions wait."""
    heat: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """Recent rows, by key group and bin."""
    much_changed: set[int] = field(default_factory=set)
    """Key groups that may have much to undo a transaction with."""
    committed: int | None = None
    """The last epoch that this worker knows to exist."""
    views: dict[int, tuple[int | None, int]] = field(default_factory=dict)
    """Of key groups in memory that a transaction has worked on: the epochs before and after it.

    Guarded by `apply_lock`; what is held now is as of the second."""
    is_restored: bool = False
    """Whether a savepoint is the state before the first epoch."""

    in_store: dict[int, int] = field(default_factory=dict)
    """Bytes of key groups, about, that are in the store and not in memory."""
    is_in_memory: bool = True
    has_sites: bool = False
    """Whether lanes hear how many rows each key group had."""
    rows_seen: int = 0
    rows_missed: int = 0
    """Of these, rows whose keys were in the store only."""
    _measured: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Entries and bytes of key groups when they were last measured."""
    _measured_last: int = -1
    _stored: dict[int, LazyReader] = field(default_factory=dict)
    _files: OpenFiles | None = None
    _stored_lock: threading.Lock = field(default_factory=threading.Lock)
    _manifests: ManifestReader | None = None
    _manifests_lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.heat = np.zeros(self.keyspace.groups * self.keyspace.bins)
        self._applier = ThreadPoolExecutor(1, f"anabranch-apply-{self.name}")

    @classmethod
    def open(
        cls,
        name: str,
        definition_id: int,
        definition: OperatorDefinition,
        keyspace: KeySpace,
        is_restored: bool = False,
        backend: Backend = MEMORY,
        logs_rows: bool = False,
    ) -> OperatorSlot:
        """Start the operator's engine."""
        engine = ChannelEngine(definition.open(keyspace, backend), keyspace, logs_rows)
        schema = pa.schema([pa.field(GROUP, pa.int32()), *definition.output_schema])
        slot = cls(name, definition_id, engine, schema, keyspace)
        slot.is_restored = is_restored
        slot.is_in_memory = backend is MEMORY
        slot.has_sites = definition.placed_by is not None
        return slot

    def close(self) -> None:
        """Let user code clean up; nothing is applied any more."""
        self.engine.close()
        # no limit: the process of a worker ends some seconds after it was asked to (`main.py`)
        self._applier.shutdown()

    def in_apply_thread(self, work: Callable[[], None]) -> None:
        """Apply a transaction, with `apply_lock` taken.

        Always in the same thread: allocators keep used memory by thread, and in another one a batch
        would touch megabytes for the first time.
        """
        try:
            done = self._applier.submit(work)
        except RuntimeError:  # closed while the transaction waited for its turn
            raise ServiceUnavailable("The worker was stopped.") from None
        done.result()  # no limit: user code may take its time (`user_code_timeout_s`)

    @property
    def known_misses(self) -> int | None:
        """`rows_missed`; None where what is here need not be in memory."""
        return self.rows_missed if self.is_in_memory else None

    def load(self, blobs: BlobStore, groups: tuple[int, ...], as_of: int | None) -> None:
        """Bring key groups into memory as of a committed epoch."""
        for group, restored in self.read(blobs, groups, as_of).items():
            self.put(group, restored.state, restored.wear)
            self.in_store.pop(group, None)

    def read(
        self,
        blobs: BlobStore,
        groups: Collection[int],
        as_of: int | None,
        bins: Collection[int] | None = None,
    ) -> dict[int, Restored[GroupState]]:
        """Key groups (or some bins of each) from the store."""
        if not self.has_stored(as_of):
            return {group: Restored(self.engine.create_group()) for group in groups}
        manifest = self._manifest(blobs, number_of(as_of))
        return load_groups(blobs, manifest, groups, self.engine.create_group, bins)

    def has_stored(self, as_of: int | None) -> bool:
        """Whether the store has anything as of an epoch."""
        return as_of is not None or self.is_restored

    def stored_at(self, blobs: BlobStore, as_of: int | None) -> LazyReader:
        """All state as of a committed epoch, or of a savepoint, to be read by key."""
        epoch = number_of(as_of)
        with self._stored_lock:
            if epoch not in self._stored:
                if self._files is None:
                    self._files = OpenFiles(blobs)
                stored = LazyReader(self._manifest(blobs, epoch), self._files)
                self._take_heat(stored.manifest)
                latest = list(self._stored.items())[-1:]  # lanes may be an epoch apart
                self._stored = {**dict(latest), epoch: stored}
            return self._stored[epoch]

    def due_in(
        self,
        blobs: BlobStore,
        stored: LazyReader,
        groups: Collection[int],
        times: BatchTimes,
        waiting: Sequence[Waiting] = (),
    ) -> Int64s:
        """Keys of stored key groups for which a transaction does something without rows.

        If rows wait in them, also what was due at the clocks of these.
        """
        engine, column = self.engine, self.engine.due_column
        if column is None or not groups:
            return np.empty(0, np.int64)
        since = min([stored.epoch, *(some.epoch - 1 for some in waiting)])
        after, before = None, stored.manifest.extra.get("times")
        if waiting and engine.is_due_once:
            before = self._times_of(blobs, since)
        if before is not None and engine.is_due_once:
            after = engine.due_limit(BatchTimes(**before))
        clocks = [times, *(BatchTimes(*some.clocks) for some in waiting)]
        return stored.due(groups, column, after, max(map(engine.due_limit, clocks)), since)

    def _times_of(self, blobs: BlobStore, epoch: int) -> Any:
        """Clocks of an epoch; None if it is so old that nobody knows."""
        path = manifest_path(self.name, epoch)
        return self._manifest(blobs, epoch).extra.get("times") if blobs.exists(path) else None

    def _manifest(self, blobs: BlobStore, as_of: int) -> Manifest:
        path = manifest_path(self.name, as_of) if as_of >= 0 else origin_path(self.name)
        with self._manifests_lock:
            if self._manifests is None:
                self._manifests = ManifestReader(blobs)
            return self._manifests.read(path)

    def put(self, group: int, state: GroupState, wear: list[int]) -> None:
        """A key group is here now, with the length of its changelog."""
        self.states[group] = state
        self.views.pop(group, None)
        epoch, size, *rows = wear
        self.wear[group] = Wear(epoch, size)
        if rows:  # from another worker: what it has seen counts here too
            self.recent_rows[group] = float(rows[0])

    def wear_of(self, group: int) -> list[int]:
        """For the worker that gets the key group; the store knows nothing of recent rows."""
        wear = self.wear.get(group, Wear(-1))
        rows = [round(self.recent_rows[group])] if group in self.recent_rows else []
        return [wear.snapshot_epoch, wear.bytes, *rows]

    def unexpired(self, group: int, rest: Sections, here: Sections, stored: LazyReader) -> Sections:
        """What is left of a key group in the store, without entries whose TTL was over as of then.

        Rows that waited then have an earlier clock, by which some may not be over: all are kept.
        """
        notes = stored.manifest.extra
        if "times" not in notes or group in notes.get(DEFERRED, ()):
            return rest
        return self.engine.unexpired(rest, here, BatchTimes(**notes["times"]))

    def note_heat(self, hashes: Int64s) -> None:
        """A sample of a transaction's rows."""
        if not len(hashes):
            return  # a batch without rows says nothing
        keyspace = self.keyspace
        at = keyspace.group_of(hashes) * keyspace.bins + keyspace.bin_of(hashes)
        self.heat = self.heat * DECAY + np.bincount(at, minlength=len(self.heat))

    def heat_of(self, groups: Collection[int]) -> npt.NDArray[np.float64]:
        """Recent rows by key group and bin, of some key groups."""
        rows = self.heat.reshape(self.keyspace.groups, self.keyspace.bins)
        mine = np.zeros(self.keyspace.groups, bool)
        mine[list(groups)] = True
        return np.where(mine[:, None], rows, 0.0).ravel()

    def _take_heat(self, manifest: Manifest) -> None:
        """What was hot before this process: the first time that something is read by key."""
        if not self.heat.any():
            self.heat = decode_heat(manifest.extra.get(HEAT), len(self.heat))

    def note_changes(self, groups: tuple[int, ...], changes: Sections) -> None:
        """Count changed bytes for the snapshot policy, by the rows of each key group."""
        changed = np.zeros(self.keyspace.groups)
        for entries in changes.values():
            of_row = self.keyspace.group_of(entries.column(HASH).to_numpy())
            rows = np.bincount(of_row, minlength=self.keyspace.groups)
            changed += rows * (entries.nbytes / max(1, entries.num_rows))
        self.bytes_changed += round(changed.sum())
        for group in groups:
            self.wear[group].bytes += math.ceil(changed[group])
            if self.is_in_memory and changed[group] >= MUCH_BYTES:
                self.much_changed.add(group)

    def has_changed(self, group: int) -> bool:
        """Whether a key group has changed since its last snapshot."""
        wear = self.wear.get(group)
        return wear is not None and wear.bytes > 0 and group in self.states

    def note_load(self, groups: tuple[int, ...], rows: tuple[int, ...]) -> None:
        """Count rows for rebalancing."""
        self.rows_seen += sum(rows)
        for group, count in zip(groups, rows, strict=True):
            self.recent_rows[group] = DECAY * self.recent_rows.get(group, 0.0) + count

    def size_of(self, groups: Iterable[int]) -> tuple[int, int]:
        """Entries of key groups, as far as they are in memory, and about their bytes.

        To measure bytes takes longer than a batch may wait: each call measures one key group, the
        next in turn, and takes the entries of all to be as large as those that were measured.
        """
        rows = {group: self.states[group].num_rows for group in groups if group in self.states}
        filled = [group for group, count in rows.items() if count]
        if not filled:
            return 0, 0
        self._measured_last += 1
        chosen = filled[self._measured_last % len(filled)]
        self._measured[chosen] = rows[chosen], self.states[chosen].num_bytes
        known = [self._measured[group] for group in filled if group in self._measured]
        total, known_rows = sum(rows.values()), sum(count for count, _ in known)
        return total, total * sum(size for _, size in known) // known_rows

    def load_of(self, group: int) -> GroupLoad:
        """Bytes and recent rows of a key group; whether no batch has been here since it came."""
        rows = self.recent_rows.get(group)
        size = self.states[group].num_bytes
        return GroupLoad(size, round(rows or 0), int(rows is None))

    def due_for_snapshot(
        self, epoch: int, every_seconds: float | None, patience: float
    ) -> list[int]:
        """Key groups whose changelog is long enough to be worth a snapshot, or all by the clock."""
        wear = dict(self.wear)
        sizes = {
            group: state.num_bytes + self.in_store.get(group, 0)
            for group in wear
            if (state := self.states.get(group)) is not None
        }
        changed, self.bytes_changed = self.bytes_changed, 0
        if every_seconds is None:
            debt = self.snapshot_debt
            chosen, self.snapshot_debt = due(wear, sizes, epoch, changed, patience, debt)
            return chosen
        if time.monotonic() - self.saved_at >= every_seconds:
            self.saved_at = time.monotonic()
            self.to_save = {group for group in sizes if self.has_changed(group)}
        # Those that the next batch reaches first are left for later: the oldest come first.
        left = self.to_save.intersection(sizes)
        return sorted(left, key=lambda group: wear[group].snapshot_epoch)

    def drop_groups(self, groups: Iterable[int]) -> None:
        """Forget the state and outputs of key groups."""
        for group in groups:
            for known in (self.states, self.outputs, self.wear, self.in_store, self.views):
                known.pop(group, None)

    def drop(self) -> None:
        """Forget all state and outputs."""
        self.states.clear()
        self.outputs.clear()
        self.wear.clear()
        self.in_store.clear()
        self.views.clear()
