"""Garbage collection: removes old manifests, and files that no kept manifest can ever need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from anabranch.durability import names
from anabranch.durability.blobs import BlobStore
from anabranch.durability.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Collected:
    """Paths that one collection removed."""

    manifests: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


def collect(
    blobs: BlobStore,
    operator: str,
    epochs: Sequence[int],
    kept: Sequence[int],
    read: Callable[[str, int], Manifest],
) -> Collected:
    """Remove what the kept epochs do not need; `read` gives the manifest of an epoch.

    A kept manifest that cannot be read stops the collection before anything is deleted.
    """
    listed = {ref.path for epoch in kept for ref in read(operator, epoch).files}
    manifests = [names.manifest_path(operator, epoch) for epoch in epochs if epoch < kept[0]]
    files = deletable(_candidates(blobs, operator), listed, kept[0])
    # Manifests first: whatever stops this midway, a manifest that is there has its files.
    blobs.delete_all(manifests)
    blobs.delete_all(files)
    return Collected(tuple(manifests), tuple(files))


def deletable(paths: Iterable[str], listed: set[str], oldest_epoch: int) -> list[str]:
    """Files that no kept manifest lists and that no later one can: older than the oldest epoch."""
    unlisted = [(names.epoch_of(path), path) for path in paths if path not in listed]
    return [path for epoch, path in unlisted if epoch is not None and epoch < oldest_epoch]


def _candidates(blobs: BlobStore, operator: str) -> list[str]:
    found: list[str] = []
    for folder in (names.changelog_folder(operator), names.snapshot_folder(operator)):
        found += blobs.list(folder)
        found += blobs.list(folder, temporary=True)
    found += blobs.list(names.manifest_folder(operator), temporary=True)
    return found
