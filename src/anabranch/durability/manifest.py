"""Manifests: which files make up the state as of an epoch. Values and pure functions only."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from anabranch.durability.documents import seal_text, to_text, unseal
from anabranch.durability.frame import size_and_crc
from anabranch.errors import CorruptState, FormatNotSupported
from anabranch.model.keyspace import KeySpace

MANIFEST_FORMAT = 2
"""Up to 1, changelogs listed only the key groups that no snapshot covers, which reads the same."""

ROWS_WAIT = "checkpoint"
"""Note in `extra`: entries may not be the whole state, rows may wait."""

DEFERRED = "deferred"
"""Note in `extra`: key groups whose rows wait since this epoch."""


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file with entries of some key groups; those of other groups in it do not count.

    Nor do those of a changelog for key groups with a snapshot of its epoch or a later one.
    """

    path: str
    epoch: int
    """Changelog: the epoch of its changes. Snapshot: the epoch whose state it holds."""
    bytes: int
    crc: int
    groups: tuple[int, ...]
    """Ascending."""
    _text: str = field(default="", init=False, repr=False, compare=False)

    def to_json(self) -> list[Any]:
        """Compact form: the groups as a hexadecimal bitmap."""
        return [self.path, self.epoch, self.bytes, self.crc, _bitmap(self.groups)]

    def text(self) -> str:
        """As JSON. Made once: a manifest lists thousands of files that the one before did."""
        if not self._text:
            object.__setattr__(self, "_text", to_text(self.to_json()))
        return self._text

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> FileRef:
        """The reverse of `to_json`."""
        path, epoch, size, crc, bitmap = value
        return cls(str(path), int(epoch), int(size), int(crc), _groups(bitmap))

    def only(self, groups: Iterable[int]) -> FileRef:
        """The same file, counting for these groups."""
        wanted = _shared(tuple(sorted(groups)))
        if wanted == self.groups:
            return self
        return FileRef(self.path, self.epoch, self.bytes, self.crc, wanted)


def joined_refs(texts: Sequence[str]) -> str:
    """The references to several files as one text."""
    return texts[0] if len(texts) == 1 else f"[{','.join(texts)}]"


def parse_refs(text: str) -> list[FileRef]:
    """The inverse."""
    found = json.loads(text)
    return [FileRef.from_json(ref) for ref in (found if isinstance(found[0], list) else [found])]


def file_ref(path: str, epoch: int, buffers: Sequence[Any], groups: Iterable[int]) -> FileRef:
    """The reference to a file made by `encode_changelog` or `encode_snapshot`."""
    size, crc = size_and_crc(buffers)
    return FileRef(path, epoch, size, crc, tuple(sorted(set(groups))))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The state of one operator as of one epoch; needs nothing but the files it lists.

    A key group has at most one snapshot here, and no changelog is listed that none of its key
    groups needs.
    """

    operator: str
    query_id: str | None
    epoch: int
    keyspace: KeySpace
    description: Mapping[str, Any]
    changelogs: tuple[FileRef, ...]
    """Ordered by epoch, then path."""
    snapshots: tuple[FileRef, ...]
    committed_at: int
    """Milliseconds since 1970."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able notes of the coordinator, such as the batch's times."""
    format: int = MANIFEST_FORMAT

    @property
    def files(self) -> tuple[FileRef, ...]:
        """Every file that the manifest needs."""
        return self.snapshots + self.changelogs

    def encode(self) -> bytes:
        """The manifest file's bytes."""
        head = to_text(
            {
                "format": self.format,
                "operator": self.operator,
                "query_id": self.query_id,
                "epoch": self.epoch,
                "groups": self.keyspace.groups,
                "bins": self.keyspace.bins,
                "description": dict(self.description),
                "committed_at": self.committed_at,
                "extra": dict(self.extra),
            }
        )
        snapshots = ",".join([ref.text() for ref in self.snapshots])
        changelogs = ",".join([ref.text() for ref in self.changelogs])
        return seal_text(f'{head[:-1]},"snapshots":[{snapshots}],"changelogs":[{changelogs}]}}')

    @classmethod
    def decode(cls, content: bytes, name: str) -> Manifest:
        """Read a manifest file; `name` is its full name, for the error."""
        body = unseal(content, name)
        try:
            if body["format"] > MANIFEST_FORMAT:
                raise FormatNotSupported(
                    f"{name} has format {body['format']}, this release reads up to "
                    f"{MANIFEST_FORMAT}. Use a newer release of Anabranch."
                )
            return cls(
                operator=body["operator"],
                query_id=body["query_id"],
                epoch=body["epoch"],
                keyspace=KeySpace(body["groups"], body["bins"]),
                description=body["description"],
                changelogs=tuple(map(FileRef.from_json, body["changelogs"])),
                snapshots=tuple(map(FileRef.from_json, body["snapshots"])),
                committed_at=body["committed_at"],
                extra=body["extra"],
                format=body["format"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptState(
                f"Manifest {name} cannot be read: {error!r}. Restore this file from a backup of "
                "the state location."
            ) from error


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """How to rebuild one key group: install the snapshot, then replay the changelogs in order."""

    group: int
    snapshot: FileRef | None
    changelogs: tuple[FileRef, ...]


def next_manifest(
    previous: Manifest | None,
    epoch: int,
    changelogs: Iterable[FileRef],
    snapshots_taken: Iterable[FileRef] = (),
    *,
    operator: str,
    query_id: str | None,
    keyspace: KeySpace,
    description: Mapping[str, Any],
    committed_at: int,
    extra: Mapping[str, Any] | None = None,
) -> Manifest:
    """The manifest of `epoch`, from the one before (also when `epoch` is executed again).

    A snapshot replaces, for each of its groups, older snapshots and the changelogs up to its epoch.
    One that is not newer than what is known is ignored. It must hold a state that this line of
    manifests has: as of a committed epoch, or of this very execution of `epoch`.
    """
    assert previous is None or previous.epoch < epoch, "previous must be of an earlier epoch"
    assert previous is None or (previous.operator, previous.keyspace) == (operator, keyspace)
    added = sorted(changelogs, key=_order)
    assert all(ref.epoch == epoch for ref in added), "changelogs must be of this epoch"
    known_snapshots = previous.snapshots if previous else ()
    known_changelogs = previous.changelogs if previous else ()
    taken = sorted(snapshots_taken, key=_order)
    snapshots, needed = known_snapshots, (*known_changelogs, *added)
    if taken:  # else nothing that was listed has become needless
        newest = _newest_snapshots(known_snapshots, taken, epoch)
        snapshots, needed = _as_files(newest), _still_needed(needed, newest)
    return Manifest(
        operator=operator,
        query_id=query_id,
        epoch=epoch,
        keyspace=keyspace,
        description=description,
        changelogs=needed,
        snapshots=snapshots,
        committed_at=committed_at,
        extra=extra or {},
    )


def with_snapshots(manifest: Manifest, taken: Iterable[FileRef]) -> Manifest:
    """The same state, with snapshots of its own epoch in the place of older files."""
    epoch = manifest.epoch
    taken = sorted(taken, key=_order)
    newest = _newest_snapshots(manifest.snapshots, taken, epoch)
    return replace(
        manifest,
        snapshots=_as_files(newest),
        changelogs=_still_needed(manifest.changelogs, newest),
        format=MANIFEST_FORMAT,
    )


def restore_plan(manifest: Manifest, groups: Collection[int]) -> list[GroupPlan]:
    """What to read for each of these groups, in the order given."""
    wanted = frozenset(groups)
    snapshots = {
        group: ref for ref in manifest.snapshots for group in ref.groups if group in wanted
    }
    changelogs: dict[int, list[FileRef]] = {group: [] for group in groups}
    for ref in sorted(manifest.changelogs, key=_order):
        for group in ref.groups:
            if group in wanted and (group not in snapshots or snapshots[group].epoch < ref.epoch):
                changelogs[group].append(ref)
    return [GroupPlan(group, snapshots.get(group), tuple(changelogs[group])) for group in groups]


def _newest_snapshots(
    known: Iterable[FileRef], taken: Iterable[FileRef], epoch: int
) -> dict[int, FileRef]:
    newest: dict[int, FileRef] = {}
    for ref in (*known, *taken):
        assert ref.epoch <= epoch, f"snapshot {ref.path} is of a later epoch than {epoch}"
        for group in ref.groups:
            if group not in newest or newest[group].epoch < ref.epoch:
                newest[group] = ref
    return newest


def _as_files(newest: Mapping[int, FileRef]) -> tuple[FileRef, ...]:
    """Each file once, with the groups that it counts for."""
    files = {ref.path: ref for ref in newest.values()}
    by_path: dict[str, list[int]] = {path: [] for path in files}
    for group, ref in newest.items():
        by_path[ref.path].append(group)
    snapshots = (files[path].only(groups) for path, groups in by_path.items())
    return tuple(sorted(snapshots, key=_order))


def _still_needed(
    changelogs: Sequence[FileRef], newest: Mapping[int, FileRef]
) -> tuple[FileRef, ...]:
    """Without changelogs that snapshots cover for all of their key groups.

    For each batch, of thousands of changelogs: that a part is covered is left to those who read.
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


def _order(ref: FileRef) -> tuple[int, str]:
    return ref.epoch, ref.path


# Few distinct sets of groups occur (one for each lane, mostly), in thousands of references.
@lru_cache(maxsize=4096)
def _shared(groups: tuple[int, ...]) -> tuple[int, ...]:
    """The one tuple that stands for equal ones."""
    return groups


@lru_cache(maxsize=4096)
def _bitmap(groups: tuple[int, ...]) -> str:
    bits = 0
    for group in groups:
        bits |= 1 << group
    return f"{bits:x}"


@lru_cache(maxsize=4096)
def _groups(bitmap: str) -> tuple[int, ...]:
    bits = int(bitmap, 16)
    return _shared(tuple(group for group in range(bits.bit_length()) if bits >> group & 1))
