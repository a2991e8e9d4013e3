"""An object store in memory that counts requests as a store bills them."""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyarrow import fs as pafs

LISTED = 1000
"""Names in one answer to a LIST."""


class CountedObjects:
    """What `ObjectStorage` asks of a pyarrow file system, over a dictionary.

    Give `(CountedObjects(), "bucket")` as a location: the package's own code for object stores
    works on it.
    """

    type_name = "s3"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        """By kind and folder, such as "PUT changelog"."""
        self.bytes_put: Counter[str] = Counter()
        """By folder."""
        self._folders: dict[str, dict[str, None]] = {}
        self._lock = threading.Lock()

    def equals(self, other: object) -> bool:
        """Whether it is the same store."""
        return self is other

    def create_dir(self, path: str, recursive: bool = True) -> None:
        """Object stores have no folders."""

    def open_output_stream(self, path: str) -> _Put:
        """A PUT when it is closed."""
        return _Put(self, path)

    def open_input_file(self, path: str) -> Any:
        """A HEAD for the length, then a GET."""
        with self._lock:
            self._count("HEAD", path)
            self._count("GET", path)
            return pa.BufferReader(self._get(path))

    def get_file_info(self, what: Any) -> Any:
        """A HEAD of one file, or LISTs of a folder."""
        with self._lock:
            if isinstance(what, str):
                self._count("HEAD", what)
                if what in self.files:
                    return pafs.FileInfo(what, pafs.FileType.File, size=len(self.files[what]))
                return pafs.FileInfo(what, pafs.FileType.NotFound)
            found = list(self._inside(what.base_dir, what.recursive))
            self._count("LIST", f"{what.base_dir}/all", 1 + len(found) // LISTED)
            return [self._file(path) for path in found]

    def delete_file(self, path: str) -> None:
        """A DELETE."""
        with self._lock:
            self._count("DELETE", path)
            self._get(path)
            del self.files[path]
            del self._folders[path.rpartition("/")[0]][path]

    def copy_file(self, path: str, new_path: str) -> None:
        """A PUT that the store does by itself."""
        with self._lock:
            self._put(new_path, self._get(path))

    def put(self, path: str, content: bytes) -> None:
        """Keep an object."""
        with self._lock:
            self._put(path, content)

    def _put(self, path: str, content: bytes) -> None:
        self._count("PUT", path)
        self.bytes_put[_folder(path)] += len(content)
        self.files[path] = content
        above = path.rpartition("/")[0]
        while path:
            self._folders.setdefault(above, {})[path] = None
            path, above = above, above.rpartition("/")[0]

    def _inside(self, folder: str, recursive: bool) -> Iterator[str]:
        for path in self._folders.get(folder, ()):
            if path in self._folders and recursive:
                yield from self._inside(path, recursive)
            else:
                yield path

    def _file(self, path: str) -> pafs.FileInfo:
        if path in self.files:
            return pafs.FileInfo(path, pafs.FileType.File, size=len(self.files[path]))
        return pafs.FileInfo(path, pafs.FileType.Directory)

    def _get(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such object", path)
        return self.files[path]

    def _count(self, kind: str, path: str, number: int = 1) -> None:
        self.requests[f"{kind} {_folder(path)}"] += number


class _Put:
    """An object on its way."""

    def __init__(self, store: CountedObjects, path: str) -> None:
        self._store = store
        self._path = path
        self._chunks: list[bytes] = []

    def write(self, chunk: Any) -> None:
        self._chunks.append(bytes(chunk))

    def __enter__(self) -> _Put:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self._store.put(self._path, b"".join(self._chunks))


def _folder(path: str) -> str:
    """The folder that says what kind of file it is: "changelog", "manifests", ..."""
    above = path.rpartition("/")[0]
    return above.rpartition("/")[2] or "location"
