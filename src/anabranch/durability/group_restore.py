"""Rebuild key groups from the files that a manifest lists; every file is read once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.durability.blobs import BlobStore
from anabranch.durability.changelog import CHANGELOG
from anabranch.durability.file_refs import order_of
from anabranch.durability.frame import damaged
from anabranch.durability.manifest import FileRef, Manifest, restore_plan
from anabranch.durability.pages import PageFile
from anabranch.durability.snapshot import SNAPSHOT
from anabranch.model.keyspace import HASH, KEPT, Int64s, KeySpace
from anabranch.state.contract import GroupState, Sections

State = TypeVar("State", bound=GroupState)
Grouped = dict[int, Sections]
WantedFile = tuple[FileRef, list[int]]
"""A file, and the key groups to take from it."""

_WHOLE_FILE_BYTES_MAX = 4 * 1024 * 1024

_REPLAY_BYTES = 16 << 20
"""Changelogs of about so many bytes are replayed together."""


@dataclass(slots=True)
class Restored(Generic[State]):
    """A key group from the store, and how long its changelog is."""

    state: State
    snapshot_epoch: int = -1
    replayed: int = 0
    """Bytes of changelogs."""

    @property
    def wear(self) -> list[int]:
        """Epoch of the snapshot, bytes of changelogs since."""
        return [self.snapshot_epoch, self.replayed]


def load_groups(
    store: BlobStore,
    manifest: Manifest,
    groups: Collection[int],
    create: Callable[[], State],
    bins: Collection[int] | None = None,
) -> dict[int, Restored[State]]:
    """These key groups (or some bins of each) as of the manifest's epoch."""
    restored = {group: Restored(create()) for group in groups}
    snapshots, changelogs = files_of(manifest, groups)
    for ref, of_ref in snapshots:
        for group in of_ref:
            restored[group].snapshot_epoch = ref.epoch

    def read(kind: bytes) -> Callable[[list[WantedFile]], list[tuple[WantedFile, Grouped]]]:
        def read_run(run: list[WantedFile]) -> list[tuple[WantedFile, Grouped]]:
            found = []
            for item, content in zip(run, _contents(store, run), strict=True):
                ref, of_ref = item
                file = _open(store, kind, ref, of_ref, content)
                sections = read_groups(file, kind, of_ref, bins, manifest.keyspace)
                found.append((item, split_by_group(sections, of_ref, manifest.keyspace)))
            return found

        return read_run

    # 1. Snapshots: each key is in one of them at most.
    for run in store.map_ahead(read(SNAPSHOT), _runs(snapshots)):
        for _, grouped in run:
            for group, sections in grouped.items():
                restored[group].state.install(sections)
    # 2. Changelogs, in the order of their epochs.
    files = chain.from_iterable(store.map_ahead(read(CHANGELOG), _runs(changelogs)))
    for by_group in _gathered(files):
        for group, parts in by_group.items():
            for sections in joined(parts):
                restored[group].state.replay(sections)
                restored[group].replayed += sum(entries.nbytes for entries in sections.values())
    return restored


def _gathered(
    files: Iterable[tuple[WantedFile, Grouped]],
) -> Iterator[dict[int, list[Sections]]]:
    """What several files have of each key group: replaying has a price for each call."""
    by_group: dict[int, list[Sections]] = {}
    size = 0.0
    for (ref, of_ref), grouped in files:
        for group, sections in grouped.items():
            by_group.setdefault(group, []).append(sections)
        size += ref.bytes * len(of_ref) / max(1, len(ref.groups))
        if size >= _REPLAY_BYTES:
            yield by_group
            by_group, size = {}, 0.0
    yield by_group


def joined(parts: Iterable[Sections]) -> list[Sections]:
    """Parts put together as long as they have the same columns, which may change with time."""
    runs: list[dict[str, list[pa.Table]]] = []
    columns: dict[str, list[tuple[str, pa.DataType]]] = {}
    for sections in parts:
        for name, table in sections.items():
            found = [(field.name, field.type) for field in table.schema if field.name != KEPT]
            if not runs or columns.setdefault(name, found) != found:
                runs.append({})
                columns = {name: found}
            runs[-1].setdefault(name, []).append(table)
    return [
        {
            name: pa.concat_tables(tables, promote_options="default").combine_chunks()
            for name, tables in run.items()
        }
        for run in runs
    ]


def read_groups(
    file: PageFile,
    kind: bytes,
    groups: Collection[int],
    bins: Collection[int] | None,
    keyspace: KeySpace,
) -> Sections:
    """Entries of key groups (or of some bins of each), perhaps with others in changelogs."""
    by_bin = kind == SNAPSHOT
    ranges = keyspace.order_ranges(groups, bins, by_bin)
    sections: Sections = {}
    for name, index in file.sections.items():
        pages = index.overlapping(*ranges)
        if len(pages):
            entries = file.read(name, pages).combine_chunks()
            if bins is not None and len(bins) < keyspace.bins:
                entries = _of_bins(entries, bins, keyspace)
            sections[name] = entries
    return sections


def files_of(
    manifest: Manifest, groups: Collection[int]
) -> tuple[list[WantedFile], list[WantedFile]]:
    """Snapshots and changelogs to read, in their order, each with the groups to take from it."""
    snapshots: dict[object, WantedFile] = {}
    changelogs: dict[object, WantedFile] = {}
    for plan in restore_plan(manifest, groups):
        if (ref := plan.snapshot) is not None:
            snapshots.setdefault(ref.key, (ref, []))[1].append(plan.group)
        for ref in plan.changelogs:
            changelogs.setdefault(ref.key, (ref, []))[1].append(plan.group)
    in_order = sorted(changelogs.values(), key=lambda item: order_of(item[0]))
    return list(snapshots.values()), in_order


def check_holds(file: PageFile, name: str, groups: Collection[int]) -> None:
    """A snapshot must have the key groups that the manifest says."""
    missing = set(groups).difference(file.meta["groups"])
    if missing:
        raise damaged(name, f"it does not hold key group {min(missing)}")


def open_part(kind: bytes, store: BlobStore, ref: FileRef) -> PageFile:
    """A file, or a part of one, of which only what is needed is read."""
    return PageFile(kind, store, ref.path, crc=ref.crc, size=ref.bytes, offset=ref.start)


def _runs(items: Sequence[WantedFile]) -> list[list[WantedFile]]:
    """Parts of one pack that are read together; a file of its own is alone."""
    runs: list[list[WantedFile]] = []
    for item in items:
        ref, first = item[0], runs[-1][0][0] if runs else None
        end = ref.start + ref.bytes
        if (
            first is not None
            and ref.offset is not None
            and ref.path == first.path
            and end - first.start <= _WHOLE_FILE_BYTES_MAX
        ):
            runs[-1].append(item)
        else:
            runs.append([item])
    return runs


def _contents(store: BlobStore, run: list[WantedFile]) -> Iterator[Any]:
    """What is read together; None: each is read as it is opened."""
    if len(run) == 1:
        yield None
        return
    first, last = run[0][0], run[-1][0]
    content = store.read_range(first.path, first.start, last.start + last.bytes - first.start)
    for ref, _ in run:
        start = min(ref.start - first.start, content.size)
        yield content.slice(start, min(ref.bytes, content.size - start))


def _content_of(store: BlobStore, ref: FileRef) -> Any:
    if ref.offset is None:
        return store.read(ref.path)
    return store.read_range(ref.path, ref.offset, ref.bytes)


def _open(store: BlobStore, kind: bytes, ref: FileRef, groups: list[int], content: Any) -> PageFile:
    name = store.full_name(ref.path)
    if content is None and (
        ref.bytes <= _WHOLE_FILE_BYTES_MAX or 2 * len(groups) >= len(ref.groups)
    ):
        content = _content_of(store, ref)
    if content is not None:
        if content.size != ref.bytes:
            what = f"it has {content.size} bytes, the manifest says {ref.bytes}"
            raise damaged(name, what)
        file = PageFile(kind, content, name=name, crc=ref.crc)
    else:
        file = open_part(kind, store, ref)
    if kind == SNAPSHOT:
        check_holds(file, name, groups)
    return file


def split_by_group(sections: Sections, groups: Collection[int], keyspace: KeySpace) -> Grouped:
    """The entries of each of these groups, in their order; groups without entries are left out."""
    wanted = np.zeros(keyspace.groups, dtype=bool)
    wanted[list(groups)] = True
    grouped: Grouped = {}
    for name, entries in sections.items():
        of_entry = _narrow(keyspace.group_of(_hashes(entries)), keyspace.groups)
        rows = np.flatnonzero(wanted[of_entry])
        if not len(rows):
            continue
        of_row = of_entry[rows]
        is_ordered = not np.any(of_row[1:] < of_row[:-1])
        if not is_ordered:
            order = np.argsort(of_row, kind="stable")
            rows, of_row = rows[order], of_row[order]
        if not is_ordered or len(rows) < entries.num_rows:
            entries = entries.take(pa.array(rows))
        starts = [0, *(np.flatnonzero(of_row[1:] != of_row[:-1]) + 1).tolist()]
        for start, end in pairwise([*starts, len(of_row)]):
            grouped.setdefault(int(of_row[start]), {})[name] = entries.slice(start, end - start)
    return grouped


def _of_bins(entries: pa.Table, bins: Collection[int], keyspace: KeySpace) -> pa.Table:
    return entries.filter(pa.array(np.isin(keyspace.bin_of(_hashes(entries)), list(bins))))


def _narrow(values: Int64s, limit: int) -> npt.NDArray[Any]:
    return values.astype(np.uint16) if limit <= 1 << 16 else values  # NumPy radix-sorts 16 bits


def _hashes(entries: pa.Table) -> Int64s:
    hashes: Int64s = entries.column(HASH).to_numpy()
    return hashes
