"""What happens, to many listeners: each has a short queue, and who is too slow is let go."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

from anabranch.http.problems import Problem
from anabranch.model.journal_entry import JournalEntry

LISTENERS_MAX = 200
QUEUE_MAX = 256
ALIVE_SECONDS = 15.0
"""A comment, so that both ends notice when the other one is gone."""


class EventStream:
    """Entries of the journal as server-sent events."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fresh: list[str] = []
        self._lock = threading.Lock()

    def publish(self, entry: JournalEntry) -> None:
        """From any thread; costs nothing if nobody listens."""
        loop = self._loop
        if loop is None or not self._queues:
            return
        with self._lock:
            is_told = bool(self._fresh)
            self._fresh.append(_event(entry))
        if not is_told:
            loop.call_soon_threadsafe(self._spread)

    def _spread(self) -> None:
        with self._lock:
            fresh, self._fresh = self._fresh, []
        for queue in list(self._queues):
            if queue.qsize() + len(fresh) >= QUEUE_MAX:
                self._queues.discard(queue)
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)  # it may connect again, and ask for the history
                continue
            for text in fresh:
                queue.put_nowait(text)

    def listen(self) -> AsyncIterator[str]:
        """The events from now on; refused if too many listen."""
        if len(self._queues) >= LISTENERS_MAX:
            raise Problem(503, f"{LISTENERS_MAX} listen already. Close some, or ask for /history.")
        self._loop = asyncio.get_running_loop()
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._queues.add(queue)
        return self._stream(queue)

    async def _stream(self, queue: asyncio.Queue[str | None]) -> AsyncIterator[str]:
        try:
            yield ": listening\n\n"
            while True:
                try:
                    # no limit: it is in wait_for
                    text = await asyncio.wait_for(queue.get(), ALIVE_SECONDS)
                except asyncio.TimeoutError:
                    yield ": alive\n\n"
                    continue
                if text is None:
                    return
                yield text
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        """End all streams; from the loop's thread."""
        for queue in list(self._queues):
            queue.put_nowait(None)


def _event(entry: JournalEntry) -> str:
    return f"event: {entry.kind.value}\ndata: {json.dumps(plain_entry(entry), default=str)}\n\n"


def plain_entry(entry: JournalEntry) -> dict[str, Any]:
    """An entry without its empty fields."""
    names = (name for name in JournalEntry.__dataclass_fields__ if name != "kind")
    values = {name: getattr(entry, name) for name in names}
    shown = {name: value for name, value in values.items() if value not in (None, {})}
    return {"kind": entry.kind.value, **shown}
