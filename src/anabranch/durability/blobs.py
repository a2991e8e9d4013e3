"""Atomic files in a state location, wherever it is; the errors of storage are translated here."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
from pyarrow import fs as pafs

from anabranch.durability.failures import STORAGE_ERRORS, advice, reason
from anabranch.durability.locks import Hold
from anabranch.durability.memory_storage import Faults, Memory, MemoryStorage
from anabranch.durability.names import TEMPORARY_SUFFIX
from anabranch.durability.object_storage import ObjectStorage
from anabranch.durability.patient_storage import PatientStorage, tries_of
from anabranch.durability.s3 import RETRY_SECONDS, open_s3
from anabranch.durability.storage import ArrowStorage, LocalStorage, Storage
from anabranch.errors import (
    CorruptState,
    InvalidArgument,
    LocationError,
    LocationNotWritable,
)

Location = str | os.PathLike[str] | tuple[Any, str]
"""A local path, a URI that pyarrow.fs takes, or (pyarrow file system, path)."""

Paths = list[str]

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
_AHEAD_LOCAL = 2
_AHEAD_REMOTE = 16

Item = TypeVar("Item")
Result = TypeVar("Result")


class BlobStore:
    """Files under one location: written whole or not at all, never changed in place.

    Paths are relative to the location, with "/" between the parts. Safe to use from several
    threads, cheap to pickle.
    """

    def __init__(self, location: Location, *, fsync: bool = True, shared: bool = False) -> None:
        """`shared`: other users may read what is made in a folder, as far as the umask lets them"""
        self._backend: Storage = _open_backend(location, fsync, shared)
        self._given = location
        self._ahead = _AHEAD_LOCAL if self._backend.is_local else _AHEAD_REMOTE

    @property
    def location(self) -> str:
        """The location's full name: an absolute path or a URI."""
        return self._backend.full_name("")

    @property
    def address(self) -> str:
        """What opens this location in another process: with options and credentials, not shown."""
        if self.is_local or not isinstance(self._given, str):
            return self.location
        return self._given

    @property
    def is_local(self) -> bool:
        """Whether this is a folder of this machine's file system."""
        return self._backend.is_local

    def full_name(self, path: str) -> str:
        """The file's name as the user knows it, for messages."""
        return self._backend.full_name(path)

    def write(self, path: str, buffers: bytes | Sequence[Any]) -> None:
        """Write a file, complete or not visible; replaces an older one."""
        with self._writing(path):
            self._backend.write(_checked(path), _chunks(buffers))

    def create_exclusive(self, path: str, buffers: bytes | Sequence[Any]) -> bool:
        """Write a file unless it exists; whether it was written.

        Exact on local file systems; on object stores two callers at once can both succeed.
        """
        with self._writing(path):
            return self._backend.create(_checked(path), _chunks(buffers))

    def read(self, path: str) -> Any:
        """The whole file as an Arrow buffer."""
        with self._reading(path):
            return self._backend.read(_checked(path), 0, None)

    def read_range(self, path: str, offset: int, length: int) -> Any:
        """Part of a file; shorter if the file ends before."""
        with self._reading(path):
            return self._backend.read(_checked(path), offset, length)

    def copy_from(self, other: BlobStore, path: str, new_path: str) -> bool:
        """Have a file of another location here without reading it; False: it must be read."""
        with self._writing(new_path), contextlib.suppress(FileNotFoundError):
            return self._backend.copy_from(other._backend, _checked(path), _checked(new_path))
        return False  # reading says which one is missing

    def beside(self, name: str, *, shared: bool = False) -> BlobStore:
        """Another location; a URI without options of its own is reached as this one is."""
        if isinstance(self._given, str) and not self.is_local:
            mine, other = urlsplit(_usual(self._given)), urlsplit(_usual(name))
            if mine.scheme == other.scheme and not other.query and "@" not in other.netloc:
                user, at, _ = mine.netloc.rpartition("@")
                other = other._replace(netloc=user + at + other.netloc, query=mine.query)
                return BlobStore(urlunsplit(other))
        return BlobStore(name, shared=shared)

    def size(self, path: str) -> int:
        """Length of a file in bytes."""
        with self._reading(path):
            return self._backend.size(_checked(path))

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        with self._reading(path):
            try:
                self._backend.size(_checked(path))
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def list(self, prefix: str = "", *, temporary: bool = False) -> Paths:
        """Paths of all files below a folder, sorted; none if there is no such folder.

        `temporary` gives instead the leftovers of writes that never finished (or still run).
        """
        with self._reading(prefix):
            found = self._backend.list(prefix.rstrip("/"), recursive=True)
        return sorted(path for path in found if path.endswith(TEMPORARY_SUFFIX) == temporary)

    def entries(self, folder: str = "") -> Paths:
        """Paths of the files and folders directly in a folder, sorted; without temporary files."""
        with self._reading(folder):
            try:
                found = self._backend.list(folder.rstrip("/"), recursive=False)
            except NotADirectoryError as error:
                raise LocationNotWritable(
                    f"{self.full_name(folder)} is or lies in a file, not in a folder. Give the "
                    "path of a folder, which is made if it is missing."
                ) from error
        return sorted(path for path in found if not path.endswith(TEMPORARY_SUFFIX))

    def delete(self, path: str) -> None:
        """Remove a file; it is no error if it is gone."""
        with self._writing(path), contextlib.suppress(FileNotFoundError):
            self._backend.delete(_checked(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove many files, several at once where each one is a round trip."""
        for _ in self.map_ahead(self.delete, paths):
            pass

    def hold(self, path: str, note: bytes) -> Hold | None:
        """Take a lock that ends with this process; None if another one has it.

        Always succeeds on stores without locks.
        """
        with self._writing(path):
            return self._backend.hold(_checked(path), note)

    def map_ahead(
        self, function: Callable[[Item], Result], items: Iterable[Item]
    ) -> Iterator[Result]:
        """Results in order, computed some items ahead in threads; bounded, so memory is too."""
        pending = list(items)
        ahead = self._ahead
        if len(pending) <= 1 or ahead <= 1:
            yield from map(function, pending)
            return
        # no limit: storage has one for each try (`patient_storage.py`)
        with ThreadPoolExecutor(min(ahead, len(pending)), "anabranch-blobs") as pool:
            running = [pool.submit(function, item) for item in pending[:ahead]]
            try:
                for following in range(ahead, len(pending) + ahead):
                    if not running:
                        return
                    # no limit: storage has one for each try (`patient_storage.py`)
                    result = running.pop(0).result()
                    if following < len(pending):
                        running.append(pool.submit(function, pending[following]))
                    yield result
            finally:
                for future in running:
                    future.cancel()

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        try:
            yield
        except STORAGE_ERRORS as error:
            otherwise = "Check that it can be reached and that this process may write there."
            raise LocationNotWritable(self._message("write", path, error, otherwise)) from error

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError) as error:
            raise CorruptState(
                f"State file {self.full_name(path)} is missing. Restore it from a backup of the "
                "state location; files of a state location must not be deleted by hand."
            ) from error
        except STORAGE_ERRORS as error:
            otherwise = "Check that it can be reached and that this process may read there."
            raise LocationError(self._message("read", path, error, otherwise)) from error

    def _message(self, verb: str, path: str, error: BaseException, otherwise: str) -> str:
        why = f"{reason(error)}{tries_of(error)}"
        return f"Cannot {verb} {self.full_name(path)}: {why}. {advice(error, otherwise)}"


class MemoryBlobStore(BlobStore):
    """The same in memory, with faults on demand; for tests and simulation."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self._given = "memory:"
        self._backend = MemoryStorage(self._memory)
        self._ahead = 1  # no threads: a simulation must be repeatable

    @property
    def faults(self) -> Faults:
        """Which writes go wrong."""
        return self._memory.faults

    @property
    def files(self) -> dict[str, bytes]:
        """The content itself, to be damaged by tests."""
        return self._memory.files

    def twin(self) -> MemoryBlobStore:
        """Another client of the same content, as another process would have."""
        return MemoryBlobStore(self._memory)

    def release_holds(self) -> None:
        """As if every process that holds a lock had died."""
        self._memory.holds.clear()


def _open_backend(location: Location, fsync: bool, shared: bool) -> Storage:
    if isinstance(location, tuple):
        filesystem, path = location
        return _backend_of(filesystem, path, f"{filesystem.type_name}:{path}", fsync, shared)
    name = os.fspath(location)
    if not name:
        raise InvalidArgument("The state location is empty. Give a folder or a URI.")
    if not _URI.match(name):
        return LocalStorage(os.path.expanduser(name), fsync, shared)
    uri = _usual(name)
    if uri.startswith("s3://"):
        s3 = open_s3(uri)
        return PatientStorage(ObjectStorage(s3.filesystem, s3.path, s3.shown), s3.retry_seconds)
    shown = re.sub(r"://[^/@]*@", "://", name.split("?", 1)[0])
    try:
        filesystem, path = pafs.FileSystem.from_uri(uri)
    except (ValueError, *STORAGE_ERRORS) as error:
        raise InvalidArgument(
            f"Cannot use {shown!r} as a state location: {reason(error)}. "
            "Give a folder, or a URI that pyarrow.fs.FileSystem.from_uri takes."
        ) from error
    return _backend_of(filesystem, path, shown, fsync, shared)


def _usual(uri: str) -> str:
    """Spark has other names for the same store."""
    return re.sub(r"\A(s3a|s3n)://", "s3://", uri)


def _backend_of(filesystem: Any, path: str, shown: str, fsync: bool, shared: bool) -> Storage:
    base, inner = filesystem, path
    while isinstance(base, pafs.SubTreeFileSystem):
        base, inner = base.base_fs, f"{base.base_path.rstrip('/')}/{inner.lstrip('/')}"
    if isinstance(base, pafs.LocalFileSystem):
        return LocalStorage(inner, fsync, shared)
    kind = ObjectStorage if base.type_name in _OBJECT_STORES else ArrowStorage
    return PatientStorage(kind(filesystem, path, shown), RETRY_SECONDS)


def _checked(path: str) -> str:
    parts = path.split("/")
    assert all(part not in ("", ".", "..") for part in parts), f"not a relative path: {path!r}"
    return path


def _chunks(buffers: bytes | Sequence[Any]) -> Sequence[Any]:
    if isinstance(buffers, (bytes, bytearray, memoryview, pa.Buffer)):
        return [buffers]
    return buffers
