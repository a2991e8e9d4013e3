"""Files from one state location to another: without reading them where that can be."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from anabranch.durability.blobs import BlobStore

COPY_BYTES = 256 << 20
"""So much of files that must be read is in memory at a time, or one file."""


@dataclass(frozen=True)
class Folder:
    """A folder of a location with the files of a location of its own."""

    blobs: BlobStore
    prefix: str = ""
    """Empty, or a path that ends with "/"."""

    @property
    def name(self) -> str:
        """Its full name."""
        return self.blobs.full_name(self.prefix.rstrip("/"))

    def full_name(self, path: str) -> str:
        """The full name of a file."""
        return self.blobs.full_name(self.prefix + path)

    def read(self, path: str) -> bytes:
        """A whole file."""
        return bytes(self.blobs.read(self.prefix + path))

    def write(self, path: str, content: Any) -> None:
        """Write a file, whole or not at all."""
        self.blobs.write(self.prefix + path, content)

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        return self.blobs.exists(self.prefix + path)

    def files(self) -> list[str]:
        """Paths of all files."""
        found = self.blobs.list(self.prefix)
        return [path[len(self.prefix) :] for path in found]

    def clear(self) -> None:
        """Remove everything, leftovers of broken writes too."""
        left = [*self.blobs.list(self.prefix), *self.blobs.list(self.prefix, temporary=True)]
        self.blobs.delete_all(left)
        if self.blobs.is_local:
            shutil.rmtree(self.name, ignore_errors=True)


FilePair = tuple[str, str]
"""Path at the source, path at the target."""


def copy_files(source: Folder, target: Folder, copies: Iterable[FilePair]) -> None:
    """Have files at the target too: as links, copied by the store, or read and written."""
    wanted, budget = list(copies), _Budget()

    def copy(item: FilePair) -> None:
        path, new_path = item
        inner = source.prefix + path, target.prefix + new_path
        if not target.blobs.copy_from(source.blobs, *inner):
            with budget.taken(source.blobs.size(inner[0])):
                target.write(new_path, source.blobs.read(inner[0]))

    for _ in target.blobs.map_ahead(copy, wanted):
        pass
    if target.blobs.is_local and os.name != "nt":
        for folder in {os.path.dirname(target.full_name(path)) for _, path in wanted}:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class _Budget:
    """Files are in memory whole: a few large ones at a time, or many small ones."""

    def __init__(self) -> None:
        self._used = 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Wait until there is room; a file that is larger than all of it goes alone."""
        with self._changed:
            # no limit: those before end, whatever comes of their copies
            self._changed.wait_for(lambda: not self._used or self._used + size <= COPY_BYTES)
            self._used += size
        try:
            yield
        finally:
            with self._changed:
                self._used -= size
                self._changed.notify_all()
