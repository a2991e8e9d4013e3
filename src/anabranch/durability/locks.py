"""Holding a location: a lock that the kernel releases when the process dies."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from typing import Protocol

if sys.platform != "win32":
    import fcntl


class Hold(Protocol):
    """A lock that is held until released."""

    def release(self) -> None:
        """Let others in (idempotent)."""


class NoHold:
    """For stores without locks: the fence alone tells owners apart."""

    def release(self) -> None:
        return None


class FileHold:
    """An `flock`ed file. Never deleted: a second file of that name could be locked too."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        _HELD.add(self)

    @classmethod
    def take(cls, name: str, note: bytes) -> Hold | None:
        """Lock the file and leave a note about the holder in it; None if another one has it."""
        if sys.platform == "win32":  # only the fence protects the location there
            return NoHold()
        while True:
            descriptor = os.open(name, os.O_CREAT | os.O_RDWR, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_same_file(descriptor, name):
                    os.ftruncate(descriptor, 0)
                    os.pwrite(descriptor, note, 0)
                    return cls(descriptor)
                os.close(descriptor)  # replaced between open and lock: try the new one
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise

    def release(self) -> None:
        if self._descriptor is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        _HELD.discard(self)
        os.close(descriptor)


_HELD: weakref.WeakSet[FileHold] = weakref.WeakSet()


def _is_same_file(descriptor: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False


def _drop_in_child() -> None:
    # A forked child shares the lock and would keep it after the holder's death.
    for hold in list(_HELD):
        with contextlib.suppress(OSError):
            hold.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_child)
