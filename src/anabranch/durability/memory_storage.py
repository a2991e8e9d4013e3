"""Storage in memory for tests and simulation, with faults on demand."""

from __future__ import annotations

import errno
import threading
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch.durability.locks import Hold
from anabranch.durability.storage import Chunks, Storage


@dataclass
class Faults:
    """Which writes go wrong, counted from the first write of the memory (1, 2, ...)."""

    writes: int = 0
    """Writes tried so far."""
    fail: set[int] = field(default_factory=set)
    """These fail and leave nothing behind."""
    tear: dict[int, int] = field(default_factory=dict)
    """These leave only their first bytes (so many), then fail: a write that is not atomic."""
    drop: dict[int, int] = field(default_factory=dict)
    """These leave only their first bytes and report success: a disk that lies about fsync."""

    def fail_next(self, after: int = 0) -> None:
        """Fail one write, after `after` good ones."""
        self.fail.add(self.writes + 1 + after)

    def tear_next(self, keep_bytes: int, after: int = 0) -> None:
        """Tear one write, after `after` good ones."""
        self.tear[self.writes + 1 + after] = keep_bytes


@dataclass
class Memory:
    """The content that all clients of one memory store share."""

    files: dict[str, bytes] = field(default_factory=dict)
    holds: dict[str, MemoryHold] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    mutex: threading.Lock = field(default_factory=threading.Lock)


class MemoryHold:
    """A lock in memory; `release` also stands for the holder's death."""

    def __init__(self, memory: Memory, path: str) -> None:
        self._memory = memory
        self._path = path

    def release(self) -> None:
        with self._memory.mutex:
            if self._memory.holds.get(self._path) is self:
                del self._memory.holds[self._path]


class MemoryStorage:
    """The same behaviour as a folder, in a dictionary."""

    is_local = False

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def full_name(self, path: str) -> str:
        return f"memory:/{path}"

    def write(self, path: str, chunks: Chunks) -> None:
        with self.memory.mutex:
            self._put(path, b"".join(chunks))

    def create(self, path: str, chunks: Chunks) -> bool:
        with self.memory.mutex:
            if path in self.memory.files:
                return False
            self._put(path, b"".join(chunks))
            return True

    def size(self, path: str) -> int:
        return len(self._get(path))

    def read(self, path: str, offset: int, length: int | None) -> Any:
        content = self._get(path)
        end = len(content) if length is None else offset + length
        return pa.py_buffer(content[offset:end])

    def copy_from(self, other: Storage, path: str, new_path: str) -> bool:
        return False

    def list(self, folder: str, recursive: bool) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        with self.memory.mutex:
            inside = [path for path in self.memory.files if path.startswith(prefix)]
        if recursive:
            return inside
        return list({prefix + path[len(prefix) :].split("/", 1)[0] for path in inside})

    def delete(self, path: str) -> None:
        with self.memory.mutex:
            if self.memory.files.pop(path, None) is None:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)

    def hold(self, path: str, note: bytes) -> Hold | None:
        with self.memory.mutex:
            if path in self.memory.holds:
                return None
            self.memory.files[path] = note
            taken = self.memory.holds[path] = MemoryHold(self.memory, path)
            return taken

    def _get(self, path: str) -> bytes:
        with self.memory.mutex:
            if path not in self.memory.files:
                raise FileNotFoundError(errno.ENOENT, "No such file", path)
            return self.memory.files[path]

    def _put(self, path: str, content: bytes) -> None:
        faults = self.memory.faults
        faults.writes += 1
        if faults.writes in faults.fail:
            raise OSError(errno.EIO, "injected: write failed", path)
        kept = faults.tear.get(faults.writes, faults.drop.get(faults.writes))
        self.memory.files[path] = content if kept is None else content[:kept]
        if faults.writes in faults.tear:
            raise OSError(errno.EIO, "injected: torn write", path)
