"""Writes the lists that manifests share."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import replace

from anabranch.durability.blobs import BlobStore
from anabranch.durability.manifest import Manifest, encode_list
from anabranch.durability.manifest_content import FileList, ListPlace
from anabranch.durability.names import list_path


class ListWriter:
    """Those of one service. One thread at a time."""

    def __init__(self, blobs: BlobStore, writer: str) -> None:
        """`writer` is never used by another process."""
        self._blobs = blobs
        self._writer = writer
        self._numbers = itertools.count(1)

    def settled(self, manifest: Manifest) -> Manifest:
        """With what was added lately in a list of its own, if that is much."""
        content = manifest.content
        if not content.is_large():
            return manifest
        files = content.to_store()
        number = next(self._numbers)
        path = list_path(manifest.operator, manifest.epoch, self._writer, number)
        encoded = encode_list(files)
        self._blobs.write(path, encoded)
        place = ListPlace(path, len(encoded), zlib.crc32(encoded))
        stored = FileList(files.changelogs, files.snapshots, place)
        return replace(manifest, content=content.with_stored(stored))
