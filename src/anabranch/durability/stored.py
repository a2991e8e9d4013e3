"""State in the store as of an epoch, of which only what is asked for is read: keys, bins, due."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import CHANGELOG
from anabranch.durability.manifest import FileRef, Manifest
from anabranch.durability.pages import PAGE_BYTES, DueColumn, PageFile
from anabranch.durability.restore import (
    Grouped,
    check_holds,
    read_groups,
    split_by_group,
)
from anabranch.durability.snapshot import SNAPSHOT
from anabranch.model.keyspace import HASH, KEPT, Int64s
from anabranch.state.channel import CHANNEL
from anabranch.state.contract import GroupState, Sections

Create = Callable[[], GroupState]
Mask = npt.NDArray[np.bool_]


class OpenFiles:
    """Files that were opened for one epoch are there for the next: names are never used again."""

    def __init__(self, store: BlobStore) -> None:
        self.store = store
        self._open: dict[str, PageFile] = {}

    def open(self, refs: Sequence[tuple[bytes, FileRef]]) -> dict[str, PageFile]:
        """Open what is not open, several at once; forget what is not listed."""
        new = [(kind, ref) for kind, ref in refs if ref.path not in self._open]

        def open_file(item: tuple[bytes, FileRef]) -> PageFile:
            kind, ref = item
            file = PageFile(kind, self.store, ref.path, crc=ref.crc, size=ref.bytes)
            if kind == SNAPSHOT:
                check_holds(file, self.store.full_name(ref.path), ref.groups)
            return file

        opened = self.store.map_ahead(open_file, new)
        found = {ref.path: file for (_, ref), file in zip(new, opened, strict=True)}
        kept = {ref.path: known for _, ref in refs if (known := self._open.get(ref.path))}
        self._open = {**kept, **found}
        return self._open


class StoredState:
    """All key groups of an operator as of the manifest's epoch.

    What it reads of keys that nobody has changed since is right for any later epoch too.
    """

    def __init__(self, manifest: Manifest, files: OpenFiles) -> None:
        self.manifest = manifest
        self.keyspace = manifest.keyspace
        self._store = files.store
        snapshots, changelogs = manifest.snapshots, manifest.changelogs
        self._files = files.open(
            [(SNAPSHOT, r) for r in snapshots] + [(CHANGELOG, r) for r in changelogs]
        )
        masks = {ref.groups: self._mask(ref.groups) for ref in manifest.files}  # few differ
        self._snapshots = [(ref, masks[ref.groups]) for ref in snapshots]
        self._changelogs = [(ref, masks[ref.groups]) for ref in changelogs]
        self.snapshot_epochs = np.full(self.keyspace.groups, -1, np.int64)
        self.log_bytes = np.zeros(self.keyspace.groups)
        """Of changelogs since the snapshot, about."""
        for ref, mask in self._snapshots:
            self.snapshot_epochs[mask] = ref.epoch
        for ref, mask in self._changelogs:
            self.log_bytes[mask] += ref.bytes / max(1, len(ref.groups))
        self.pages = self._count_pages()
        """How many pages each key group has, about."""

    @property
    def epoch(self) -> int:
        """As of which everything is."""
        return self.manifest.epoch

    def wear(self, group: int) -> list[int]:
        """Epoch of the snapshot, bytes of changelogs since."""
        return [int(self.snapshot_epochs[group]), round(self.log_bytes[group])]

    def keys(self, hashes: Int64s, create: Create) -> Grouped:
        """All entries of some keys, by key group, as `export` gives them."""
        wanted = np.unique(hashes)

        def read(kind: bytes, item: tuple[FileRef, Mask]) -> Sections:
            ref, mask = item
            some = wanted[mask[self.keyspace.group_of(wanted)]]
            return self._entries_of(self._files[ref.path], kind, some) if len(some) else {}

        groups: list[int] = np.unique(self.keyspace.group_of(wanted)).tolist()
        return split_by_group(self._merged(read, create), groups, self.keyspace)

    def channels(self, groups: Collection[int], create: Create) -> dict[int, Sections]:
        """Rows that wait in some key groups, and nothing else."""
        wanted = np.array(sorted(groups), np.int64)  # all of a channel has this one hash
        states = {group: create() for group in groups}

        def read(kind: bytes, item: tuple[FileRef, Mask]) -> Sections:
            ref, mask = item
            file, some = self._files[ref.path], wanted[mask[wanted]]
            is_there = len(some) and CHANNEL in file.sections
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
            file = self._files[ref.path]
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
        for ref, of_ref in (*self._snapshots, *self._changelogs):
            low = -(2**63) if after is None or ref.epoch >= since else after + 1
            if low <= until and (mask & of_ref).any():
                some = self._files[ref.path].due(column, low, until)
                found.append(some[(mask & of_ref)[self.keyspace.group_of(some)]])
        return np.unique(np.concatenate(found))

    def _merged(
        self, read: Callable[[bytes, tuple[FileRef, Mask]], Sections], create: Create
    ) -> Sections:
        snapshots = _joined(self._each(read, SNAPSHOT, self._snapshots))
        changes = _joined(self._each(read, CHANGELOG, self._changelogs))
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

    def _count_pages(self) -> npt.NDArray[Any]:
        pages = self.log_bytes / PAGE_BYTES
        starts, ends = self.keyspace.order_ranges(range(self.keyspace.groups), None, by_bin=True)
        for ref, mask in self._snapshots:
            for index in self._files[ref.path].sections.values():
                low = index.last.searchsorted(starts)
                high = index.first.searchsorted(ends, side="right")
                pages[mask] += (high - low)[mask]
        return pages


def _joined(parts: Iterator[Sections]) -> list[Sections]:
    """Parts put together as long as they have the same columns, which may change with time."""
    runs: list[dict[str, list[pa.Table]]] = []
    columns: dict[str, list[str]] = {}
    for sections in parts:
        for name, table in sections.items():
            names = [column for column in table.column_names if column != KEPT]
            if not runs or columns.setdefault(name, names) != names:
                runs.append({})
                columns = {name: names}
            runs[-1].setdefault(name, []).append(table)
    return [
        {
            name: pa.concat_tables(tables, promote_options="default").combine_chunks()
            for name, tables in run.items()
        }
        for run in runs
    ]
