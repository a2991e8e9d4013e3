"""Group commit: changelogs that are ready while another one is written go into one file together.

Nobody waits for a transaction that has not ended: what is ready when a write ends is the next one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from anabranch.durability.blobs import BlobStore
from anabranch.durability.file_refs import FileRef
from anabranch.durability.pack import PackPart, write_parts

ALONE_BYTES = 4 << 20
"""A changelog of so many bytes is written at once, beside all others."""
PACK_BYTES_MAX = 32 << 20

Key = tuple[str, int]
"""Operator and epoch: a pack has one of each, so its name says when it is garbage."""


@dataclass(slots=True, eq=False)
class _Waiting:
    part: PackPart
    ref: FileRef | None = None
    error: BaseException | None = None

    @property
    def is_over(self) -> bool:
        return self.ref is not None or self.error is not None


class GroupCommit:
    """Writes the changelogs of a worker; any thread may call it."""

    def __init__(self, blobs: BlobStore, pass_point: Callable[[str], None]) -> None:
        """`pass_point` is where a test can make the process die."""
        self._blobs = blobs
        self._pass_point = pass_point
        self._ready: dict[Key, list[_Waiting]] = {}
        self._writing: set[Key] = set()
        self._changed = threading.Condition()

    def write(self, operator: str, part: PackPart) -> FileRef:
        """Make a changelog durable, alone or with others; where it is."""
        if part.bytes >= ALONE_BYTES:
            return write_parts(self._blobs, [part])[0]
        mine, key = _Waiting(part), (operator, part.epoch)
        with self._changed:
            self._ready.setdefault(key, []).append(mine)
        while mine.ref is None:
            with self._changed:
                # no limit: whoever writes says how it ended, and storage gives up by itself.
                self._changed.wait_for(lambda: mine.is_over or key not in self._writing)
                taken = [] if mine.is_over else self._take(key)
            if taken:  # one of those that wait writes for all
                self._write(key, taken)
            if mine.error is not None:
                raise mine.error
        return mine.ref

    def _take(self, key: Key) -> list[_Waiting]:
        """What goes into the next file."""
        ready, size = self._ready.pop(key), 0
        for count, each in enumerate(ready):
            size += each.part.bytes
            if count and size > PACK_BYTES_MAX:
                self._ready[key] = ready[count:]
                ready = ready[:count]
                break
        self._writing.add(key)
        return ready

    def _write(self, key: Key, taken: list[_Waiting]) -> None:
        error: BaseException | None = None
        refs: list[FileRef] = []
        try:
            refs = write_parts(self._blobs, [each.part for each in taken])
            self._pass_point("pack-written")
        except BaseException as failure:  # all of them wait for the end of it
            error = failure
        with self._changed:
            for number, each in enumerate(taken):
                each.ref, each.error = (refs[number], None) if error is None else (None, error)
            self._writing.discard(key)
            self._changed.notify_all()
