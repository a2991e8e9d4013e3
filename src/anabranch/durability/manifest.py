"""Manifests: which files make up the state as of an epoch. Values and pure functions only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch.durability.documents import seal_text, to_text, unseal
from anabranch.durability.file_refs import FileRef as FileRef
from anabranch.durability.file_refs import file_ref as file_ref
from anabranch.durability.file_refs import joined_refs as joined_refs
from anabranch.durability.file_refs import order_of, refs_from_json
from anabranch.durability.file_refs import parse_refs as parse_refs
from anabranch.durability.manifest_content import Content, FileList, ListPlace, ReadLists
from anabranch.errors import CorruptState, FormatNotSupported
from anabranch.model.keyspace import KeySpace

MANIFEST_FORMAT = 3
"""Up to 2, all files were in the manifest itself, and key groups were bitmaps.

Up to 1, changelogs listed only the key groups that no snapshot covers, which reads the same.
"""

ROWS_WAIT = "checkpoint"
"""Note in `extra`: entries may not be the whole state, rows may wait."""

DEFERRED = "deferred"
"""Note in `extra`: key groups whose rows wait since this epoch."""


def _no_lists(places: Sequence[ListPlace]) -> Sequence[FileList]:
    assert not places, "the manifest has lists: give what reads them"
    return ()


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
    content: Content
    committed_at: int
    """Milliseconds since 1970."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """JSON-able notes of the coordinator, such as the batch's times."""
    format: int = MANIFEST_FORMAT

    @property
    def changelogs(self) -> tuple[FileRef, ...]:
        """Ordered by epoch, then path."""
        return self.content.found()[1]

    @property
    def snapshots(self) -> tuple[FileRef, ...]:
        """In the same order."""
        return self.content.found()[0]

    @property
    def files(self) -> tuple[FileRef, ...]:
        """Every file that the manifest needs."""
        return self.snapshots + self.changelogs

    def whole(self) -> Manifest:
        """The same without lists of their own: it can be read alone."""
        content = Content.of(self.changelogs, self.snapshots)
        return replace(self, content=content, format=MANIFEST_FORMAT)

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
                "lists": [each.place.to_json() for each in self.content.stored if each.place],
            }
        )
        snapshots, changelogs = self.content.added_texts()
        return seal_text(f'{head[:-1]},"snapshots":[{snapshots}],"changelogs":[{changelogs}]}}')

    @classmethod
    def decode(cls, content: bytes, name: str, read_lists: ReadLists = _no_lists) -> Manifest:
        """Read a manifest file; `name` is its full name, for the error."""
        body = unseal(content, name)
        try:
            _check_format(body["format"], name)
            places = [ListPlace(*place) for place in body.get("lists", ())]
            added = file_list(body)
            return cls(
                operator=body["operator"],
                query_id=body["query_id"],
                epoch=body["epoch"],
                keyspace=KeySpace(body["groups"], body["bins"]),
                description=body["description"],
                content=Content(tuple(read_lists(places)), (added,)),
                committed_at=body["committed_at"],
                extra=body["extra"],
                format=body["format"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(name, error) from error


def file_list(body: Mapping[str, Any], place: ListPlace | None = None) -> FileList:
    """The files that a manifest or a list has."""
    return FileList(
        tuple(refs_from_json(body["changelogs"])),
        tuple(refs_from_json(body["snapshots"])),
        place,
    )


def encode_list(files: FileList) -> bytes:
    """A list file's bytes."""
    snapshots, changelogs = files.texts()
    return seal_text(
        f'{{"format":{MANIFEST_FORMAT},"snapshots":[{snapshots}],"changelogs":[{changelogs}]}}'
    )


def decode_list(content: bytes, name: str, place: ListPlace) -> FileList:
    """The inverse."""
    body = unseal(content, name)
    try:
        _check_format(body["format"], name)
        return file_list(body, place)
    except (KeyError, TypeError, ValueError) as error:
        raise unreadable(name, error) from error


def _check_format(found: int, name: str) -> None:
    if found > MANIFEST_FORMAT:
        raise FormatNotSupported(
            f"{name} has format {found}, this release reads up to {MANIFEST_FORMAT}. Use a newer "
            "release of Anabranch."
        )


def unreadable(name: str, error: Exception) -> CorruptState:
    """The error for a manifest or a list that is not what was written."""
    return CorruptState(
        f"Manifest {name} cannot be read: {error!r}. Restore this file from a backup of the state "
        "location."
    )


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

    The work is that of what is new, however many files count.
    """
    assert previous is None or previous.epoch < epoch, "previous must be of an earlier epoch"
    assert previous is None or (previous.operator, previous.keyspace) == (operator, keyspace)
    added = sorted(changelogs, key=order_of)
    assert all(ref.epoch == epoch for ref in added), "changelogs must be of this epoch"
    known = previous.content if previous is not None else Content()
    return Manifest(
        operator=operator,
        query_id=query_id,
        epoch=epoch,
        keyspace=keyspace,
        description=description,
        content=known.plus(added, _checked(snapshots_taken, epoch)),
        committed_at=committed_at,
        extra=extra or {},
    )


def with_snapshots(manifest: Manifest, taken: Iterable[FileRef]) -> Manifest:
    """The same state, with snapshots of its own epoch in the place of older files."""
    content = manifest.content.plus((), _checked(taken, manifest.epoch))
    return replace(manifest, content=content, format=MANIFEST_FORMAT)


def _checked(taken: Iterable[FileRef], epoch: int) -> list[FileRef]:
    found = sorted(taken, key=order_of)
    for ref in found:
        assert ref.epoch <= epoch, f"snapshot {ref.path} is of a later epoch than {epoch}"
    return found


def restore_plan(manifest: Manifest, groups: Collection[int]) -> list[GroupPlan]:
    """What to read for each of these groups, in the order given."""
    wanted = frozenset(groups)
    snapshots = {
        group: ref for ref in manifest.snapshots for group in ref.groups if group in wanted
    }
    changelogs: dict[int, list[FileRef]] = {group: [] for group in groups}
    for ref in sorted(manifest.changelogs, key=order_of):
        for group in ref.groups:
            if group in wanted and (group not in snapshots or snapshots[group].epoch < ref.epoch):
                changelogs[group].append(ref)
    return [GroupPlan(group, snapshots.get(group), tuple(changelogs[group])) for group in groups]
