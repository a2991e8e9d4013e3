"""Garbage collection: removes old manifests, and files that no kept manifest can ever need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from anabranch.durability import names
from anabranch.durability.blobs import BlobStore
from anabranch.durability.manifest import Manifest
from anabranch.durability.manifest_content import needed_paths


@dataclass(frozen=True, slots=True)
class CollectedGarbage:
    """Paths that one collection removed."""

    manifests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expired:
    """Old manifests that are gone, and what is known of the files that only they needed.

    Nobody can come to need these again: a manifest lists files of older epochs only if the one
    before it did, and names are used once. So `sweep` may run at any time, beside commits.
    """

    blobs: BlobStore
    operator: str
    manifests: tuple[str, ...] = ()
    listed: frozenset[str] = frozenset()
    """By the manifests that are kept."""
    oldest: int | None = None
    """The first epoch that is kept; None: there is none at all."""

    def sweep(self) -> tuple[str, ...]:
        """Delete the files; their paths. Whatever is left is found the next time."""
        if self.oldest is None:
            return ()
        files = deletable(_candidates(self.blobs, self.operator), self.listed, self.oldest)
        self.blobs.delete_all(files)
        return tuple(files)


def expire(
    blobs: BlobStore,
    operator: str,
    epochs: Sequence[int],
    kept: Sequence[int],
    read: Callable[[str, int], Manifest],
) -> Expired:
    """Remove the manifests of epochs that are not kept; `read` gives the manifest of an epoch.

    A kept manifest that cannot be read stops the collection before anything is deleted. Manifests
    go first: whatever stops this midway, a manifest that is there has its files.
    """
    listed = needed_paths([(epoch, read(operator, epoch).content) for epoch in kept])
    manifests = tuple(names.manifest_path(operator, epoch) for epoch in epochs if epoch < kept[0])
    blobs.delete_all(manifests)
    return Expired(blobs, operator, manifests, listed, kept[0])


def deletable(paths: Iterable[str], listed: Set[str], oldest_epoch: int) -> list[str]:
    """Files that no kept manifest lists and that no later one can: older than the oldest epoch."""
    unlisted = [(names.epoch_of(path), path) for path in paths if path not in listed]
    return [path for epoch, path in unlisted if epoch is not None and epoch < oldest_epoch]


def _candidates(blobs: BlobStore, operator: str) -> list[str]:
    found: list[str] = []
    folders = (names.changelog_folder, names.snapshot_folder, names.list_folder)
    for folder in (each(operator) for each in folders):
        found += blobs.list(folder)
        found += blobs.list(folder, temporary=True)
    found += blobs.list(names.manifest_folder(operator), temporary=True)
    return found
