"""What happens, to many listeners: what they cost the driver is bounded, however many they are."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

from anabranch.http.problems import Problem
from anabranch.model.journal_entry import JournalEntry

LISTENERS_MAX = 1000
QUEUE_MAX = 64
"""Pieces that a listener has not read; it is let go then, and may connect again."""
ALIVE_SECONDS = 15.0
"""A comment, so that both ends notice when the other one is gone."""
AT_ONCE = 25
PAUSE_SECONDS = 0.025
"""After each so many listeners: others have the driver's interpreter meanwhile."""


class EventStream:
    """Entries of the journal as server-sent events."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[str | None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None
        self._telling: asyncio.Task[None] | None = None
        self._fresh: list[JournalEntry] = []
        self._lock = threading.Lock()

    def publish(self, entry: JournalEntry) -> None:
        """From any thread; costs nothing if nobody listens."""
        loop, news = self._loop, self._news
        if loop is None or news is None or not self._queues:
            return
        with self._lock:
            is_told = bool(self._fresh)
            if len(self._fresh) < QUEUE_MAX * AT_ONCE:  # else the loop hangs: nobody reads
                self._fresh.append(entry)
        if not is_told:
            loop.call_soon_threadsafe(news.set)

    def listen(self) -> AsyncIterator[str]:
        """The events from now on; refused if too many listen."""
        if len(self._queues) >= LISTENERS_MAX:
            raise Problem(503, f"{LISTENERS_MAX} listen already. Close some, or ask for /history.")
        if self._telling is None:
            self._loop, self._news = asyncio.get_running_loop(), asyncio.Event()
            self._telling = self._loop.create_task(self._tell(self._news))
        queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._queues.add(queue)
        return self._stream(queue)

    async def _tell(self, news: asyncio.Event) -> None:
        while True:
            try:
                # no limit: it is in wait_for
                await asyncio.wait_for(news.wait(), ALIVE_SECONDS)
            except asyncio.TimeoutError:
                await self._spread(": alive\n\n")
                continue
            news.clear()
            with self._lock:
                fresh, self._fresh = self._fresh, []
            await self._spread("".join(map(_event, fresh)))

    async def _spread(self, text: str) -> None:
        for number, queue in enumerate(list(self._queues), 1):
            if queue.qsize() >= QUEUE_MAX:
                self._let_go(queue)
            else:
                queue.put_nowait(text)
            if number % AT_ONCE == 0:
                await asyncio.sleep(PAUSE_SECONDS)

    def _let_go(self, queue: asyncio.Queue[str | None]) -> None:
        self._queues.discard(queue)
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    async def _stream(self, queue: asyncio.Queue[str | None]) -> AsyncIterator[str]:
        try:
            yield ": listening\n\n"
            # no limit: a comment comes every ALIVE_SECONDS, and the end of the server ends it
            while (text := await queue.get()) is not None:
                yield text
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        """End all streams; from the loop's thread."""
        if self._telling is not None:
            self._telling.cancel()
        for queue in list(self._queues):
            self._let_go(queue)


def _event(entry: JournalEntry) -> str:
    return f"event: {entry.kind.value}\ndata: {json.dumps(plain_entry(entry), default=str)}\n\n"


def plain_entry(entry: JournalEntry) -> dict[str, Any]:
    """An entry without its empty fields."""
    names = (name for name in JournalEntry.__dataclass_fields__ if name != "kind")
    values = {name: getattr(entry, name) for name in names}
    shown = {name: value for name, value in values.items() if value not in (None, {})}
    return {"kind": entry.kind.value, **shown}
