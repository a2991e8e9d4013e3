"""Writes the journal from a thread of its own: a batch only puts a value into a queue."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.durability.blobs import BlobStore
from anabranch.durability.journal import JournalFolder, Segment, SegmentName, table_of
from anabranch.errors import AnabranchError
from anabranch.model.journal_entry import EntryKind, JournalEntry

_log = logging.getLogger("anabranch.journal")

FLUSH_SECONDS = 2.0
"""Batches of so long are written together."""
URGENT_SECONDS = 0.1
"""For what belongs to an urgent entry and comes right after it."""
ALIVE_SECONDS = 60.0
"""The open segment is written at least so often: it says until when the service lived."""
SEGMENT_ENTRIES = 1024
"""The open segment is written as a whole each time: a larger one takes more CPU."""
PENDING_MAX = 50_000
"""Entries that wait for a store which does not take them; more are counted and dropped."""
STOP_SECONDS_MAX = 5.0
"""A store that does not answer must not hold up the end of the service."""


Note = Callable[..., None]
"""`Journal.note`: a kind, then fields of an entry."""


class Journal:
    """Takes entries from any thread, without ever waiting for the store."""

    def __init__(
        self,
        blobs: BlobStore,
        owner: Mapping[str, Any],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._folder = JournalFolder(blobs)
        self._owner, self._now = dict(owner), now
        self._run = secrets.token_hex(4)
        self.listeners: list[Callable[[JournalEntry], None]] = []
        """Called with each entry, in the thread that notes it; they must be quick."""
        self._queue: queue.SimpleQueue[JournalEntry | None] = queue.SimpleQueue()
        self._open: list[JournalEntry] = []
        """Of the open segment; all of them are written each time."""
        self._name: SegmentName | None = None
        self._number = 0
        self._lost = 0
        self._is_failing = False
        self._thread = threading.Thread(target=self._work, name="anabranch-journal", daemon=True)
        self._thread.start()

    def note(self, kind: EntryKind, **fields: Any) -> None:
        """Write down that something has happened just now."""
        entry = JournalEntry(kind, self._now(), **fields)
        if self._queue.qsize() < PENDING_MAX:
            self._queue.put(entry)
        else:
            self._lost += 1
        for listener in self.listeners:
            try:
                listener(entry)
            except Exception:  # what happens must not fail because somebody listens
                _log.exception("A listener of the journal failed")

    def stop(self) -> None:
        """Write what is left and end the thread."""
        self._queue.put(None)
        self._thread.join(STOP_SECONDS_MAX)

    # -- the thread --

    def _work(self) -> None:
        self._try(self._folder.tidy)
        is_open = True
        while is_open:
            fresh, is_open = self._gather()
            self._add(fresh)

    def _gather(self) -> tuple[list[JournalEntry], bool]:
        """Entries to write now: none within ALIVE_SECONDS, or those of a while. And: go on?"""
        fresh: list[JournalEntry] = []
        due = time.monotonic() + ALIVE_SECONDS
        while True:
            try:
                entry = self._queue.get(timeout=max(0.0, due - time.monotonic()))
            except queue.Empty:
                return fresh, True
            if entry is None:
                return fresh, False
            within = URGENT_SECONDS if entry.is_urgent else FLUSH_SECONDS
            due = min(due, time.monotonic() + within)
            fresh.append(entry)

    def _add(self, fresh: list[JournalEntry]) -> None:
        if self._lost:
            lost, self._lost = self._lost, 0
            text = f"{lost} entries were not written: the location takes too long."
            fresh.append(JournalEntry(EntryKind.LOST, self._now(), rows=lost, text=text))
        self._open += fresh
        while len(self._open) >= SEGMENT_ENTRIES and self._flush(self._open[:SEGMENT_ENTRIES]):
            self._open, self._name = self._open[SEGMENT_ENTRIES:], None
            self._try(self._folder.tidy)
        if self._open:
            self._flush(self._open)
        if len(self._open) > PENDING_MAX:  # the store has been away for long
            self._lost += len(self._open) - PENDING_MAX
            self._open = self._open[-PENDING_MAX:]

    def _flush(self, entries: list[JournalEntry]) -> bool:
        """Whether the segment is written."""
        if self._name is None:
            self._number += 1
            self._name = SegmentName(round(1000 * entries[0].time), self._run, self._number)
        name = self._name
        segment = Segment(table_of(entries), self._now(), self._owner)
        return self._try(lambda: self._folder.write(name, segment))

    def _try(self, work: Callable[[], object]) -> bool:
        """The journal is never worth an error; it says once that it does not work."""
        try:
            work()
        except Exception as error:
            if not self._is_failing:
                what = error._message if isinstance(error, AnabranchError) else repr(error)
                _log.warning("The journal cannot be written; queries are not concerned. %s", what)
            self._is_failing = True
            return False
        self._is_failing = False
        return True
