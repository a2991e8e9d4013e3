"""Reads manifests with the lists that they name; lists are read once."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from anabranch.durability.blobs import BlobStore
from anabranch.durability.frame import damaged
from anabranch.durability.manifest import Manifest, decode_list
from anabranch.durability.manifest_content import FileList, ListPlace


class ManifestReader:
    """Manifests of a location. One thread at a time."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._known: dict[str, FileList] = {}
        """Lists of the last manifest: the next one has most of them."""

    def read(self, path: str) -> Manifest:
        """A manifest and its lists."""
        content = self._blobs.read(path).to_pybytes()
        return Manifest.decode(content, self._blobs.full_name(path), self._lists)

    def _lists(self, places: Sequence[ListPlace]) -> Sequence[FileList]:
        missing = [place for place in places if place.path not in self._known]
        found = zip(missing, self._blobs.map_ahead(self._list, missing), strict=True)
        known = {**self._known, **{place.path: files for place, files in found}}
        self._known = {place.path: known[place.path] for place in places}
        return [known[place.path] for place in places]

    def _list(self, place: ListPlace) -> FileList:
        content = self._blobs.read(place.path).to_pybytes()
        name = self._blobs.full_name(place.path)
        if (len(content), zlib.crc32(content)) != (place.bytes, place.crc):
            raise damaged(name, "it is not the list that the manifest names")
        return decode_list(content, name, place)
