"""Packs: changelogs of several transactions in one file, so that a store has fewer requests.

A part is a whole changelog file. What a pack holds is in the manifests that list its parts: the
file itself has nothing but parts, and zeros between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.durability.blobs import BlobStore
from anabranch.durability.file_refs import FileRef, file_ref

_ALIGNMENT = 64
"""Of parts, so that Arrow reads them where they are."""


@dataclass(frozen=True, slots=True)
class PackPart:
    """A changelog that is ready to be written."""

    path: str
    """Of a file of its own; the name is used once."""
    epoch: int
    groups: tuple[int, ...]
    buffers: Sequence[Any]

    @property
    def bytes(self) -> int:
        """How long it is."""
        return sum(memoryview(buffer).nbytes for buffer in self.buffers)


def write_parts(blobs: BlobStore, parts: Sequence[PackPart]) -> list[FileRef]:
    """Write changelogs of one operator and one epoch as one file, with the name of the first.

    One that is alone is a file as any other. All are there when this returns, or none is.
    """
    first, *others = parts
    if not others:
        blobs.write(first.path, first.buffers)
        return [file_ref(first.path, first.epoch, first.buffers, first.groups)]
    buffers: list[Any] = []
    refs, offset = [], 0
    for part in parts:
        whole = file_ref(first.path, part.epoch, part.buffers, part.groups)
        refs.append(FileRef(whole.path, whole.epoch, whole.bytes, whole.crc, whole.groups, offset))
        padding = -whole.bytes % _ALIGNMENT
        buffers += [*part.buffers, bytes(padding)]
        offset += whole.bytes + padding
    blobs.write(first.path, buffers)
    return refs
