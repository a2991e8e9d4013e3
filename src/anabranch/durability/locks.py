"""Holding a location: a lock that the kernel releases when the process dies."""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from pathlib import Path
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
    def take(cls, name: str, note: bytes, mode: int) -> Hold | None:
        """Lock the file and leave a note about the holder in it; None if another one has it."""
        if sys.platform == "win32":  # only the fence protects the location there
            return NoHold()
        while True:
            descriptor = os.open(name, os.O_CREAT | os.O_RDWR, mode)
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


def is_held(name: str) -> bool | None:
    """Whether a process of this machine holds a file, without touching it; None: it cannot say.

    To try the lock would keep out a service that starts just then.
    """
    try:
        about = os.stat(name)
        locks = Path("/proc/locks").read_text("ascii")
    except FileNotFoundError as error:
        return None if error.filename == "/proc/locks" else False
    except OSError:
        return None
    device = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    return any("FLOCK" in line and device in line.split() for line in locks.splitlines())


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
