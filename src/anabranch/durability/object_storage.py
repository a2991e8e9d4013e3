"""Object stores: a put is atomic, nothing locks, and a late writer must not undo what came after.

A put cannot ask whether it is still wanted: one that a paused or cut-off process sent may arrive
when another service has long taken over. So files that are written again (LASTING below) have a
new object for each write, named `<path>~<generation>-<number>`, and the highest one counts. Each
service that takes hold of the location has a generation of its own, higher than all before it.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Iterable
from random import uniform
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

from anabranch.durability.locks import Hold, NoHold
from anabranch.durability.names import FENCE_FILE, LOCK_FILE
from anabranch.durability.storage import ArrowStorage, Chunks, Storage, missing
from anabranch.errors import LocationInUse

_LASTING = re.compile(rf"(?:{LOCK_FILE}|{re.escape(FENCE_FILE)}|.+/manifests/\d{{20}}\.json)\Z")
_VERSION = re.compile(r"(?P<path>.+)~(?P<version>\d{10}-\d{10}(?:-[0-9a-f]+)?)\Z", re.DOTALL)
_CLAIMS_MAX = 20
_COPYING = frozenset({"s3", "gcs"})
_COPY_BYTES_MAX = 5 << 30
"""What S3 copies with one request."""
_CLAIM_WAIT_SECONDS = 0.2

ObjectVersions = dict[str, Any]
"""Files by version; a file without one, from before there were any, has an empty one."""


class ObjectStorage(ArrowStorage):
    """An object store such as S3, through pyarrow."""

    def __init__(self, filesystem: Any, root: str, shown: str) -> None:
        super().__init__(filesystem, root, shown)
        self._generation = 0
        self._number = 0
        self._fence = "", b""
        """The object that this process wrote, and its content: it is read with every commit."""

    def write(self, path: str, chunks: Chunks) -> None:
        target = self._inner(path)
        if _LASTING.match(path):
            self._number += 1  # only StateStore writes such files: one thread at a time
            target = f"{target}~{self._generation:010d}-{self._number:010d}"
            if path == FENCE_FILE:
                self._fence = target, b"".join(chunks)
        self._put(target, chunks)

    def size(self, path: str) -> int:
        if _LASTING.match(path):
            return int(self._newest(path).size)
        return super().size(path)

    def read(self, path: str, offset: int, length: int | None) -> Any:
        if not _LASTING.match(path):
            return super().read(path, offset, length)
        newest = self._newest(path).path
        known, content = self._fence
        if newest == known:
            end = len(content) if length is None else offset + length
            return pa.py_buffer(content[offset:end])
        return self._read(newest, offset, length)

    def copy_from(self, other: Storage, path: str, new_path: str) -> bool:
        """Within a store the server copies."""
        if not isinstance(other, ObjectStorage) or not self._filesystem.equals(other._filesystem):
            return False
        is_lasting = _LASTING.match(path) or _LASTING.match(new_path)
        if self._filesystem.type_name not in _COPYING or is_lasting:
            return False
        if other.size(path) > _COPY_BYTES_MAX:
            return False
        self._filesystem.copy_file(other._inner(path), self._inner(new_path))
        return True

    def list(self, folder: str, recursive: bool) -> list[str]:
        names = super().list(folder, recursive)
        return list(dict.fromkeys(_path_of(name) for name in names))

    def delete(self, path: str) -> None:
        if not _LASTING.match(path):
            super().delete(path)
            return
        self._remove([found.path for found in self._versions(path).values()])

    def hold(self, path: str, note: bytes) -> Hold | None:
        """Become the newest owner: nothing tells whether the one before is alive.

        Two that come at once never get the same generation: each looks again after its claim is
        there, and gives way to any that is not lower.
        """
        for _ in range(_CLAIMS_MAX):
            before = self._versions(path)
            generation = max(map(_generation_of, before), default=0) + 1
            claim = f"{path}~{generation:010d}-{0:010d}-{uuid.uuid4().hex[:12]}"
            self._put(self._inner(claim), [note])
            others = [v for v in self._versions(path) if f"{path}~{v}" != claim]
            if all(_generation_of(version) < generation for version in others):
                self._generation = generation
                self._forget(path, before)
                return NoHold()
            self._remove([self._inner(claim)])
            time.sleep(uniform(0, _CLAIM_WAIT_SECONDS))
        raise LocationInUse(
            f"Other services keep taking {self.full_name('')} at the same moment. Start one only."
        )

    def _forget(self, path: str, before: ObjectVersions) -> None:
        """Claims that are over, and all fences but the last, which tells its owner that it is."""
        fences = self._versions(FENCE_FILE)
        over = [*before.values(), *(fences[version] for version in sorted(fences)[:-1])]
        self._remove([found.path for found in over])

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with contextlib.suppress(FileNotFoundError):  # others tidy up too
                self._filesystem.delete_file(path)

    def _newest(self, path: str) -> Any:
        versions = self._versions(path)
        if not versions:
            raise missing(self.full_name(path))
        return versions[max(versions)]

    def _versions(self, path: str) -> ObjectVersions:
        folder, _, name = path.rpartition("/")
        selector = pafs.FileSelector(self._inner(folder), allow_not_found=True)
        found: ObjectVersions = {}
        for information in self._filesystem.get_file_info(selector):
            versioned = _VERSION.match(information.base_name)
            if information.base_name == name:
                found[""] = information
            elif versioned is not None and versioned["path"] == name:
                found[versioned["version"]] = information
        return found


def _path_of(name: str) -> str:
    versioned = _VERSION.match(name)
    return versioned["path"] if versioned and _LASTING.match(versioned["path"]) else name


def _generation_of(version: str) -> int:
    return int(version[:10] or 0)
