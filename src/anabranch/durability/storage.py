"""Raw storage behind a BlobStore: local files or any pyarrow file system; errors are theirs."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyarrow import fs as pafs

from anabranch.durability.locks import FileHold, Hold, NoHold
from anabranch.durability.names import TEMPORARY_SUFFIX
from anabranch.state.access import PRIVATE, SHARED, make_folders

Chunks = Sequence[Any]
"""Objects with the buffer protocol, in order."""

_WRITEV_MAX = 512


class Storage(Protocol):
    """What a storage must do; paths are relative, missing files are FileNotFoundError."""

    is_local: bool

    def full_name(self, path: str) -> str:
        """The name that the user knows the file by."""

    def write(self, path: str, chunks: Chunks) -> None:
        """Write atomically, replacing an older file."""

    def create(self, path: str, chunks: Chunks) -> bool:
        """Write atomically unless the file is there; whether it was written."""

    def size(self, path: str) -> int:
        """Length of a file in bytes."""

    def read(self, path: str, offset: int, length: int | None) -> Any:
        """Bytes from `offset`; fewer than `length` if the file ends before."""

    def copy_from(self, other: Storage, path: str, new_path: str) -> bool:
        """Copy a file of another backend without reading it; False: that cannot be done."""

    def list(self, folder: str, recursive: bool) -> list[str]:
        """Names of the files below a folder, and of its folders if not recursive."""

    def delete(self, path: str) -> None:
        """Remove a file."""

    def hold(self, path: str, note: bytes) -> Hold | None:
        """Take a lock that ends with this process; None if another one has it."""


class LocalStorage:
    """A local folder: temporary name, fsync, rename, fsync of the folder.

    What is made is for this user alone, or, if `shared`, as the umask has it.
    """

    is_local = True

    def __init__(self, root: str, fsync: bool, shared: bool = False) -> None:
        self._root = os.path.abspath(root)
        self._fsync = fsync
        self._access = SHARED if shared else PRIVATE

    def full_name(self, path: str) -> str:
        return os.path.join(self._root, *path.split("/")) if path else self._root

    def write(self, path: str, chunks: Chunks) -> None:
        target = self.full_name(path)
        temporary = self._write_temporary(target, chunks)
        try:
            os.replace(temporary, target)
        except BaseException:
            _remove_quietly(temporary)
            raise
        self._sync_folder(os.path.dirname(target))

    def create(self, path: str, chunks: Chunks) -> bool:
        target = self.full_name(path)
        temporary = self._write_temporary(target, chunks)
        try:
            # A hard link fails if the name is taken and shows the file only when complete.
            os.link(temporary, target)
        except FileExistsError:
            return False
        finally:
            _remove_quietly(temporary)
        self._sync_folder(os.path.dirname(target))
        return True

    def size(self, path: str) -> int:
        return os.stat(self.full_name(path)).st_size

    def read(self, path: str, offset: int, length: int | None) -> Any:
        # Not memory-mapped: a disk error must be an exception here, not a signal later.
        descriptor = os.open(self.full_name(path), os.O_RDONLY | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            available = max(0, os.fstat(descriptor).st_size - offset)
            wanted = available if length is None else min(length, available)
            buffer = pa.allocate_buffer(wanted)
            view = memoryview(buffer).cast("B")
            file.seek(offset)
            done = 0
            while done < wanted:
                count = file.readinto(view[done:])
                if not count:
                    return buffer.slice(0, done)
                done += count
            return buffer

    def copy_from(self, other: Storage, path: str, new_path: str) -> bool:
        with contextlib.suppress(OSError):  # other disk, no links there, too many of them
            name, new_name = other.full_name(path), self.full_name(new_path)
            # A link has the mode of the file: where another one is wanted, there must be a copy.
            if other.is_local and self._access.fits(os.stat(name).st_mode):
                self._make_folder(os.path.dirname(new_name))
                _link(name, new_name)
                return True
        return False

    def list(self, folder: str, recursive: bool) -> list[str]:
        found: list[str] = []
        pending = [folder]
        while pending:
            inside = pending.pop()
            with contextlib.suppress(FileNotFoundError), os.scandir(self.full_name(inside)) as all_:
                for entry in all_:
                    path = f"{inside}/{entry.name}" if inside else entry.name
                    if recursive and entry.is_dir():
                        pending.append(path)
                    else:
                        found.append(path)
        return found

    def delete(self, path: str) -> None:
        os.unlink(self.full_name(path))

    def hold(self, path: str, note: bytes) -> Hold | None:
        name = self.full_name(path)
        self._make_folder(os.path.dirname(name))
        return FileHold.take(name, note, self._access.file)

    def _write_temporary(self, target: str, chunks: Chunks) -> str:
        temporary = temporary_name(target)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(temporary, flags, self._access.file)
        except FileNotFoundError:
            self._make_folder(os.path.dirname(target))
            descriptor = os.open(temporary, flags, self._access.file)
        try:
            try:
                _write_all(descriptor, chunks)
                if self._fsync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except BaseException:
            _remove_quietly(temporary)
            raise
        return temporary

    def _make_folder(self, folder: str) -> None:
        for name in make_folders(folder, self._access):
            self._sync_folder(os.path.dirname(name))

    def _sync_folder(self, folder: str) -> None:
        if not self._fsync or os.name == "nt":
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ArrowStorage:
    """Any pyarrow file system: temporary name, rename."""

    is_local = False

    def __init__(self, filesystem: Any, root: str, shown: str) -> None:
        self._filesystem = filesystem
        self._root = root.rstrip("/")
        self._shown = shown.rstrip("/")

    def full_name(self, path: str) -> str:
        return f"{self._shown}/{path}" if path else self._shown

    def write(self, path: str, chunks: Chunks) -> None:
        target = self._inner(path)
        temporary = temporary_name(target)
        if folder := target.rpartition("/")[0]:
            self._filesystem.create_dir(folder, recursive=True)
        self._put(temporary, chunks)
        try:
            self._filesystem.move(temporary, target)
        except OSError:
            # HDFS does not rename onto a file.
            if self._filesystem.get_file_info(target).type == pafs.FileType.NotFound:
                raise
            self._filesystem.delete_file(target)
            self._filesystem.move(temporary, target)

    def create(self, path: str, chunks: Chunks) -> bool:
        # pyarrow has no conditional put: two creators at once can both succeed; the fence decides.
        if self._filesystem.get_file_info(self._inner(path)).type != pafs.FileType.NotFound:
            return False
        self.write(path, chunks)
        return True

    def size(self, path: str) -> int:
        information = self._filesystem.get_file_info(self._inner(path))
        if information.type != pafs.FileType.File:
            raise missing(self.full_name(path))
        return int(information.size)

    def read(self, path: str, offset: int, length: int | None) -> Any:
        return self._read(self._inner(path), offset, length)

    def copy_from(self, other: Storage, path: str, new_path: str) -> bool:
        return False

    def _read(self, target: str, offset: int, length: int | None) -> Any:
        with self._filesystem.open_input_file(target) as file:
            file.seek(min(offset, file.size()))
            return file.read_buffer(length)

    def list(self, folder: str, recursive: bool) -> list[str]:
        selector = pafs.FileSelector(self._inner(folder), allow_not_found=True, recursive=recursive)
        skipped = len(self._root) + 1 if self._root else 0
        return [
            information.path[skipped:].rstrip("/")
            for information in self._filesystem.get_file_info(selector)
            if information.type == pafs.FileType.File or not recursive
        ]

    def delete(self, path: str) -> None:
        self._filesystem.delete_file(self._inner(path))

    def hold(self, path: str, note: bytes) -> Hold | None:
        return NoHold()

    def _inner(self, path: str) -> str:
        return "/".join(part for part in (self._root, path) if part)

    def _put(self, target: str, chunks: Chunks) -> None:
        # One write: a failure in the middle of several could leave a part that looks complete.
        content = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        with self._filesystem.open_output_stream(target) as stream:
            stream.write(content)


def missing(name: str) -> FileNotFoundError:
    """As a local file system has it."""
    return FileNotFoundError(errno.ENOENT, "No such file", name)


def temporary_name(target: str) -> str:
    """A name beside the target that starts like it, so that garbage collection sees its epoch."""
    return f"{target}.{uuid.uuid4().hex[:12]}{TEMPORARY_SUFFIX}"


def _link(name: str, new_name: str) -> None:
    """Files are never changed in place, so a second name will do."""
    temporary = temporary_name(new_name)
    os.link(name, temporary)
    try:
        os.replace(temporary, new_name)
    finally:
        # A rename onto another name of the same file does nothing.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)


def _write_all(descriptor: int, chunks: Chunks) -> None:
    views = [memoryview(chunk).cast("B") for chunk in chunks if memoryview(chunk).nbytes]
    while views:
        if hasattr(os, "writev"):
            count = os.writev(descriptor, views[:_WRITEV_MAX])
        else:
            count = os.write(descriptor, views[0])
        done = 0
        while done < len(views) and count >= views[done].nbytes:
            count -= views[done].nbytes
            done += 1
        views = views[done:]
        if count:
            views[0] = views[0][count:]


def _remove_quietly(name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name)
