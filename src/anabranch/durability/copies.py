"""Files from one state location to another: as a second name where that can be, else as a copy."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anabranch.durability.backends import temporary_name
from anabranch.durability.blobs import BlobStore


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


Copy = tuple[str, str]
"""Path at the source, path at the target."""


def copy_files(source: Folder, target: Folder, copies: Iterable[Copy]) -> None:
    """Have files at the target too; they are never changed in place, so a hard link will do."""
    wanted = list(copies)
    for _ in target.blobs.map_ahead(lambda copy: _copy(source, target, *copy), wanted):
        pass
    if target.blobs.is_local and os.name != "nt":
        for folder in {os.path.dirname(target.full_name(path)) for _, path in wanted}:
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _copy(source: Folder, target: Folder, path: str, new_path: str) -> None:
    if source.blobs.is_local and target.blobs.is_local:
        with contextlib.suppress(OSError):  # other disk, no links there, too many of them
            _link(source.full_name(path), target.full_name(new_path))
            return
    target.write(new_path, source.blobs.read(source.prefix + path))


def _link(name: str, new_name: str) -> None:
    os.makedirs(os.path.dirname(new_name), exist_ok=True)
    temporary = temporary_name(new_name)
    os.link(name, temporary)
    try:
        os.replace(temporary, new_name)
    finally:
        # A rename onto another name of the same file does nothing.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
