"""Patience with a store over the network: what is worth trying again, and for how long."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Any, TypeVar

from anabranch.durability.failures import is_passing, reason
from anabranch.durability.locks import Hold
from anabranch.durability.storage import Chunks, Storage

FIRST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 5.0
TRIES_MIN = 3
"""Also if the first one took all the time: a large file, or a long silence."""

_log = logging.getLogger("anabranch.store")

_TRIES = "anabranch_tries"

Result = TypeVar("Result")


def tries_of(error: BaseException) -> str:
    """How often and for how long it was tried, for the message; empty if once."""
    return str(error.__dict__.get(_TRIES, ""))


class PatientStorage:
    """Another backend whose passing failures are tried again, with growing and random waits.

    Every operation can be repeated: files are written whole, under names that one writer uses.
    """

    def __init__(self, inner: Storage, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds
        self.is_local = inner.is_local

    def full_name(self, path: str) -> str:
        return self._inner.full_name(path)

    def write(self, path: str, chunks: Chunks) -> None:
        self._patiently(path, lambda: self._inner.write(path, chunks))

    def create(self, path: str, chunks: Chunks) -> bool:
        return self._patiently(path, lambda: self._inner.create(path, chunks))

    def size(self, path: str) -> int:
        return self._patiently(path, lambda: self._inner.size(path))

    def read(self, path: str, offset: int, length: int | None) -> Any:
        return self._patiently(path, lambda: self._inner.read(path, offset, length))

    def copy_from(self, other: Storage, path: str, new_path: str) -> bool:
        source = other._inner if isinstance(other, PatientStorage) else other
        copy = self._inner.copy_from
        return self._patiently(new_path, lambda: copy(source, path, new_path))

    def list(self, folder: str, recursive: bool) -> list[str]:
        return self._patiently(folder, lambda: self._inner.list(folder, recursive))

    def delete(self, path: str) -> None:
        self._patiently(path, lambda: self._inner.delete(path))

    def hold(self, path: str, note: bytes) -> Hold | None:
        return self._patiently(path, lambda: self._inner.hold(path, note))

    def _patiently(self, path: str, operation: Callable[[], Result]) -> Result:
        # Not the wall clock: it may jump.
        started, wait = time.monotonic(), FIRST_WAIT_SECONDS
        tries = 1
        while True:
            try:
                return operation()
            except Exception as error:
                spent = time.monotonic() - started
                if not is_passing(error) or (spent >= self._seconds and tries >= TRIES_MIN):
                    if tries > 1:
                        error.__dict__[_TRIES] = f" ({tries} tries in {spent:.0f} s)"
                    raise
                level = logging.WARNING if wait >= 1 else logging.INFO
                name, why = self.full_name(path), reason(error)
                _log.log(level, "%s: %s; try %d after %.1f s.", name, why, tries + 1, spent)
            # Random, so that workers that failed together do not come back together.
            time.sleep(random.uniform(wait / 2, wait))
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            tries += 1
