"""Which files count, as lists that one manifest after the other shares.

An epoch adds a list of what is new in it. What is added stays in the manifest until it is large;
then it goes into a file of its own, and manifests name that file. So a manifest has the size of a
few epochs' changes, however many files count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.durability.file_refs import FileRef, order_of, refs_text

ADDED_BYTES_MAX = 64 << 10
"""What a manifest holds itself of added files, about; more goes into a list of its own."""
ADDED_EPOCHS = 4
"""Unless it is not more than this many epochs add: a list is a request to the store."""
LISTS_MAX = 64
"""With more of them, the next one is whole."""

Files = tuple[FileRef, ...]


@dataclass(frozen=True, slots=True)
class ListPlace:
    """Where a list is stored."""

    path: str
    bytes: int
    crc: int

    def to_json(self) -> list[Any]:
        """As manifests have it."""
        return [self.path, self.bytes, self.crc]


@dataclass(frozen=True, slots=True, eq=False)
class FileList:
    """Files that came with an epoch, or with several; never changed."""

    changelogs: Files = ()
    snapshots: Files = ()
    place: ListPlace | None = None
    """None: it is part of a manifest."""
    _texts: list[tuple[str, str]] = field(default_factory=list, init=False, repr=False)

    def texts(self) -> tuple[str, str]:
        """Snapshots and changelogs as JSON, without brackets; made once."""
        if not self._texts:
            self._texts.append((refs_text(self.snapshots), refs_text(self.changelogs)))
        return self._texts[0]

    def size(self) -> int:
        """Length of the texts."""
        return sum(map(len, self.texts()))


def _joined(lists: Sequence[FileList]) -> FileList:
    """One list of several, with the texts that there are."""
    found = FileList(
        tuple(ref for each in lists for ref in each.changelogs),
        tuple(ref for each in lists for ref in each.snapshots),
    )
    texts = [each.texts() for each in lists]
    snapshots = ",".join([text for text, _ in texts if text])
    changelogs = ",".join([text for _, text in texts if text])
    found._texts.append((snapshots, changelogs))
    return found


ReadLists = Callable[[Sequence[ListPlace]], Sequence[FileList]]


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """The files that make up a state: what the lists have, less what snapshots have replaced."""

    stored: tuple[FileList, ...] = ()
    """Lists with files of their own, the oldest first."""
    added: tuple[FileList, ...] = ()
    """Lists in the manifest itself, one for each epoch, or one for several."""
    _found: list[tuple[Files, Files]] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def of(cls, changelogs: Iterable[FileRef], snapshots: Iterable[FileRef]) -> Content:
        """These files."""
        return cls((), (FileList(tuple(changelogs), tuple(snapshots)),))

    def __eq__(self, other: object) -> bool:
        """Whether the same files count."""
        return isinstance(other, Content) and self.found() == other.found()

    __hash__ = None  # type: ignore[assignment]

    @property
    def lists(self) -> tuple[FileList, ...]:
        """All of them."""
        return self.stored + self.added

    def plus(self, changelogs: Iterable[FileRef], snapshots: Iterable[FileRef]) -> Content:
        """With these; a snapshot that is not newer than what is known changes nothing."""
        fresh = FileList(tuple(changelogs), tuple(snapshots))
        return Content(self.stored, (*self.added, fresh))

    def found(self) -> tuple[Files, Files]:
        """Snapshots and changelogs that count; found once."""
        if not self._found:
            self._found.append(self.resolve())
        return self._found[0]

    def resolve(self) -> tuple[Files, Files]:
        """The same, without keeping them."""
        known = [ref for each in self.lists for ref in each.snapshots]
        changelogs = tuple(ref for each in self.lists for ref in each.changelogs)
        newest = _newest_snapshots(known)
        return _as_files(newest), _still_needed(changelogs, newest)

    def brings_older(self, epoch: int, known: Iterable[Content]) -> bool:
        """Whether it has files from before an epoch that none of these has."""
        shared = {id(each) for content in known for each in content.lists}
        fresh = [each for each in self.lists if id(each) not in shared]
        return any(ref.epoch < epoch for each in fresh for ref in each.changelogs + each.snapshots)

    def added_texts(self) -> tuple[str, str]:
        """Snapshots and changelogs that the manifest has itself, as JSON without brackets."""
        return _joined(self.added).texts()

    def is_large(self) -> bool:
        """Whether what was added is to be stored as a list."""
        size = sum(each.size() for each in self.added)
        newest = self.added[-1].size() if self.added else 0
        return size > max(ADDED_BYTES_MAX, ADDED_EPOCHS * newest)

    def to_store(self) -> FileList:
        """The list that shall hold what was added; all files if the lists are as large again."""
        if self.needs_whole():
            snapshots, changelogs = self.resolve()
            return FileList(changelogs, snapshots)
        return _joined(self.added)

    def with_stored(self, stored: FileList) -> Content:
        """After what `to_store` has given was written."""
        return Content((stored,) if self.needs_whole() else (*self.stored, stored))

    def needs_whole(self) -> bool:
        """Whether the next list has all files: then none before it is needed."""
        if not self.stored:
            return True
        whole, *since = [each.place.bytes if each.place else 0 for each in self.stored]
        added = sum(each.size() for each in self.added)
        return sum(since) + added >= whole or len(self.stored) >= LISTS_MAX


def needed_paths(kept: Sequence[tuple[int, Content]]) -> frozenset[str]:
    """Files that any of these manifests needs, given by epoch in ascending order; lists too.

    A later manifest needs what the first one does, or what has come since.
    """
    oldest, first = kept[0]
    snapshots, changelogs = first.resolve()
    needed = {ref.path for ref in (*snapshots, *changelogs)}
    seen = {id(each) for each in first.lists}
    for _, content in kept:
        needed.update(each.place.path for each in content.stored if each.place is not None)
        for each in content.lists:
            if id(each) not in seen:
                seen.add(id(each))
                needed.update(ref.path for ref in each.snapshots)
                needed.update(ref.path for ref in each.changelogs if ref.epoch > oldest)
    return frozenset(needed)


def _newest_snapshots(snapshots: Iterable[FileRef]) -> dict[int, FileRef]:
    newest: dict[int, FileRef] = {}
    for ref in snapshots:
        for group in ref.groups:
            if group not in newest or newest[group].epoch < ref.epoch:
                newest[group] = ref
    return newest


def _as_files(newest: Mapping[int, FileRef]) -> Files:
    """Each file once, with the groups that it counts for."""
    files = {ref.path: ref for ref in newest.values()}
    by_path: dict[str, list[int]] = {path: [] for path in files}
    for group, ref in newest.items():
        by_path[ref.path].append(group)
    return tuple(
        sorted((files[path].only(groups) for path, groups in by_path.items()), key=order_of)
    )


def _still_needed(changelogs: Sequence[FileRef], newest: Mapping[int, FileRef]) -> Files:
    """Without changelogs that snapshots cover for all of their key groups.

    That a part is covered is left to those who read.
    """
    oldest: dict[int, float] = {}
    """Epoch of the oldest snapshot of some key groups, by the identity of their tuple."""
    needed = []
    for ref in changelogs:  # epochs of a restored savepoint are negative
        covered = oldest.get(id(ref.groups))
        if covered is None:
            epochs = (newest[g].epoch if g in newest else -math.inf for g in ref.groups)
            covered = oldest[id(ref.groups)] = min(epochs, default=-math.inf)
        if ref.epoch > covered:
            needed.append(ref)
    return tuple(needed)
