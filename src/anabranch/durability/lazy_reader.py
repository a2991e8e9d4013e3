"""State in the store as of an epoch, of which only what is asked for is read: keys, bins, due."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import CHANGELOG
from anabranch.durability.group_restore import (
    Grouped,
    check_holds,
    joined,
    open_part,
    read_groups,
    split_by_group,
)
from anabranch.durability.manifest import FileRef, Manifest
from anabranch.durability.pages import PAGE_BYTES, DueColumn, PageFile
from anabranch.durability.snapshot import SNAPSHOT
from anabranch.model.keyspace import HASH, Int64s
from anabranch.state.channel import CHANNEL
from anabranch.state.contract import GroupState, Sections

HELD_BYTES = 32 << 20
"""So much of small files stays in memory, for each operator of a worker."""

Create = Callable[[], GroupState]
Key = tuple[str, int | None]
"""Of a file or a part of one: `FileRef.key`."""
Mask = npt.NDArray[np.bool_]


class OpenFiles:
    """Files that were opened for one epoch are there for the next: names are never used again.

    They are opened when they are needed: a worker needs those of its own key groups.
    """

    def __init__(self, store: BlobStore) -> None:
        self.store = store
        self._open: dict[Key, PageFile] = {}
        self._held = 0
        self._lock = threading.Lock()

    def keep(self, keys: Collection[Key]) -> None:
        """Forget what is not listed."""
        with self._lock:
            self._open = {key: file for key, file in self._open.items() if key in keys}
            self._held = sum(file.held_bytes for file in self._open.values())

    def has(self, ref: FileRef) -> bool:
        """Whether a file is open."""
        return ref.key in self._open

    def get(self, kind: bytes, ref: FileRef) -> PageFile:
        """A file; two threads may open it both."""
        file = self._open.get(ref.key)
        if file is None:
            file = open_part(kind, self.store, ref)
            if kind == SNAPSHOT:
                check_holds(file, self.store.full_name(ref.path), ref.groups)
            with self._lock:
                if self._held + file.held_bytes > HELD_BYTES:
                    file.let_go()
                self._held += file.held_bytes
                self._open[ref.key] = file
        return file


class LazyReader:
    """All key groups of an operator as of the manifest's epoch.

    What it reads of keys that nobody has changed since is right for any later epoch too.
    """

    def __init__(self, manifest: Manifest, files: OpenFiles) -> None:
        self.manifest = manifest
        self.keyspace = manifest.keyspace
        self._store = files.store
        self._files = files
        files.keep({ref.key for ref in manifest.files})
        snapshots, changelogs = manifest.snapshots, manifest.changelogs
        masks = {ref.groups: self._mask(ref.groups) for ref in manifest.files}  # few differ
        self._snapshots = [(ref, masks[ref.groups]) for ref in snapshots]
        self.snapshot_epochs = np.full(self.keyspace.groups, -1, np.int64)
        covered = np.full(self.keyspace.groups, np.iinfo(np.int64).min)
        self.log_bytes = np.zeros(self.keyspace.groups)
        """Of changelogs since the snapshot, about."""
        for ref, mask in self._snapshots:
            self.snapshot_epochs[mask] = covered[mask] = ref.epoch
        self._changelogs = [(ref, masks[ref.groups] & (covered < ref.epoch)) for ref in changelogs]
        for ref, mask in self._changelogs:
            self.log_bytes[mask] += ref.bytes / max(1, len(ref.groups))
        self._pages: dict[int, float] = {}

    @property
    def epoch(self) -> int:
        """As of which everything is."""
        return self.manifest.epoch

    def open(self, groups: Collection[int]) -> None:
        """Open the files of key groups, several at once."""
        mask = self._mask(groups)

        def open_file(item: tuple[bytes, FileRef]) -> PageFile:
            return self._files.get(*item)

        kinds = ((SNAPSHOT, self._snapshots), (CHANGELOG, self._changelogs))
        needed = [
            (kind, ref)
            for kind, refs in kinds
            for ref, of_ref in refs
            if not self._files.has(ref) and (mask & of_ref).any()
        ]
        for _ in self._store.map_ahead(open_file, needed):
            pass

    def pages(self, group: int) -> float:
        """How many pages a key group has, about."""
        if group not in self._pages:
            self._pages[group] = self._count_pages(group)
        return self._pages[group]

    def is_mostly_logged(self, group: int) -> bool:
        """Whether more of a key group is in changelogs than in a snapshot."""
        return 2 * float(self.log_bytes[group]) > self.pages(group) * PAGE_BYTES

    def wear(self, group: int) -> list[int]:
        """Epoch of the snapshot, bytes of changelogs since."""
        return [int(self.snapshot_epochs[group]), round(self.log_bytes[group])]

    def keys(self, hashes: Int64s, create: Create) -> Grouped:
        """All entries of some keys, by key group, as `export` gives them."""
        wanted = np.unique(hashes)

        def read(kind: bytes, item: tuple[FileRef, Mask]) -> Sections:
            ref, mask = item
            some = wanted[mask[self.keyspace.group_of(wanted)]]
            return self._entries_of(self._files.get(kind, ref), kind, some) if len(some) else {}

        groups: list[int] = np.unique(self.keyspace.group_of(wanted)).tolist()
        return split_by_group(self._merged(read, create), groups, self.keyspace)

    def channels(self, groups: Collection[int], create: Create) -> dict[int, Sections]:
        """Rows that wait in some key groups, and nothing else."""
        wanted = np.array(sorted(groups), np.int64)  # all of a channel has this one hash
        states = {group: create() for group in groups}

        def read(kind: bytes, item: tuple[FileRef, Mask]) -> Sections:
            ref, mask = item
            some = wanted[mask[wanted]]
            if not len(some):
                return {}
            file = self._files.get(kind, ref)
            is_there = CHANNEL in file.sections
            return self._entries_of(file, kind, some, [CHANNEL]) if is_there else {}

        for kind, items in ((SNAPSHOT, self._snapshots), (CHANGELOG, self._changelogs)):
            for sections in self._each(read, kind, items):
                for group, found in split_by_group(sections, groups, self.keyspace).items():
                    states[group].replay(found)
        exported = ((group, state.export().get(CHANNEL)) for group, state in states.items())
        return {group: {CHANNEL: rows} for group, rows in exported if rows is not None}

    def part(self, group: int, bins: Collection[int], create: Create) -> Sections:
        """All entries of some bins of a key group, as `export` gives them."""

        def read(kind: bytes, item: tuple[FileRef, Mask]) -> Sections:
            ref, mask = item
            if not mask[group]:
                return {}
            file = self._files.get(kind, ref)
            sections = read_groups(file, kind, [group], bins, self.keyspace)
            return split_by_group(sections, [group], self.keyspace).get(group, {})

        return self._merged(read, create)

    def due(
        self,
        groups: Collection[int],
        column: DueColumn,
        after: int | None,
        until: int,
        since: int | None = None,
    ) -> Int64s:
        """Hashes of keys that have something due; some of them may have had it.

        Everything up to `after` has happened by `since` (None: this epoch), unless it came into
        the state in it or later.
        """
        since = self.epoch if since is None else since
        mask = self._mask(groups)
        found = [np.empty(0, np.int64)]
        for kind, refs in ((SNAPSHOT, self._snapshots), (CHANGELOG, self._changelogs)):
            for ref, of_ref in refs:
                low = -(2**63) if after is None or ref.epoch >= since else after + 1
                if low <= until and (mask & of_ref).any():
                    some = self._files.get(kind, ref).due(column, low, until)
                    found.append(some[(mask & of_ref)[self.keyspace.group_of(some)]])
        return np.unique(np.concatenate(found))

    def _merged(
        self, read: Callable[[bytes, tuple[FileRef, Mask]], Sections], create: Create
    ) -> Sections:
        snapshots = joined(self._each(read, SNAPSHOT, self._snapshots))
        changes = joined(self._each(read, CHANGELOG, self._changelogs))
        if not changes and len(snapshots) <= 1:
            return snapshots[0] if snapshots else {}
        # Changes may lack what they keep, delete, or be a part of a list: only the state knows.
        state = create()
        for sections in snapshots:
            state.install(sections)
        for sections in changes:
            state.replay(sections)
        merged = state.export()
        state.discard(range(self.keyspace.bins))
        return merged

    def _each(
        self,
        read: Callable[[bytes, tuple[FileRef, Mask]], Sections],
        kind: bytes,
        items: list[tuple[FileRef, Mask]],
    ) -> Iterator[Sections]:
        def read_one(item: tuple[FileRef, Mask]) -> Sections:
            return read(kind, item)

        if self._store.is_local:
            return map(read_one, items)
        return self._store.map_ahead(read_one, items)

    def _entries_of(
        self, file: PageFile, kind: bytes, wanted: Int64s, names: Collection[str] | None = None
    ) -> Sections:
        order = self.keyspace.order_of(wanted, by_bin=kind == SNAPSHOT)
        sections: Sections = {}
        for name in file.sections if names is None else names:
            pages = file.sections[name].overlapping(order, order)
            if not len(pages):
                continue
            entries = file.read(name, pages)
            hashes = entries.column(HASH).to_numpy()
            at = wanted.searchsorted(hashes)
            rows = np.flatnonzero(wanted.take(at, mode="clip") == hashes)
            if len(rows):
                sections[name] = entries.take(pa.array(rows))
        return sections

    def _mask(self, groups: Collection[int]) -> Mask:
        mask = np.zeros(self.keyspace.groups, bool)
        mask[list(groups)] = True
        return mask

    def _count_pages(self, group: int) -> float:
        pages = float(self.log_bytes[group]) / PAGE_BYTES
        start, end = self.keyspace.order_ranges((group,), None, by_bin=True)
        for ref, mask in self._snapshots:
            if mask[group]:
                for index in self._files.get(SNAPSHOT, ref).sections.values():
                    low = index.last.searchsorted(start)
                    high = index.first.searchsorted(end, side="right")
                    pages += int((high - low).sum())
        return pages
