"""Processors that the row tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)


class Counter(StatefulProcessor):
    """Counts rows per key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        stored = self.count.get()
        total = (stored[0] if stored else 0) + sum(1 for _ in rows)
        self.count.update((total,))
        yield Row(k=key[0], c=total)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        stored = self.count.get()
        self.count.update(((stored[0] if stored else 0) + initialState.start,))


class Collector(StatefulProcessor):
    """Uses all kinds of state: keeps values in a list and counts them in a map."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.last = handle.getValueState("last", "v long")
        self.values = handle.getListState("values", "v long")
        self.seen = handle.getMapState("seen", "v long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        for row in rows:
            if row.v == 13:
                self.values.clear()
                self.seen.removeKey((1,))
                continue
            if row.v == 99:
                self.seen.clear()
                self.last.clear()
                self.values.put([(7,), (8,)])
                continue
            self.last.update((row.v,))
            self.values.appendValue((row.v,))
            count = self.seen.getValue((row.v,))
            self.seen.updateValue((row.v,), ((count[0] if count else 0) + 1,))
        last = self.last.get()
        values = [value for (value,) in self.values.get()]
        seen = sorted((k[0], v[0]) for k, v in self.seen.iterator())
        text = f"{last} {values} {seen} {self.values.exists()} {self.seen.containsKey((1,))}"
        yield Row(k=key[0], text=text)


class Alarm(StatefulProcessor):
    """Sets a timer `delay` after each value, counts the rows meanwhile."""

    def __init__(self, delay: int = 10, event_time: bool = False) -> None:
        self.delay = delay
        self.event_time = event_time

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        stored = self.count.get()
        self.count.update(((stored[0] if stored else 0) + sum(1 for _ in rows),))
        now = (
            timerValues.getCurrentWatermarkInMs()
            if self.event_time
            else timerValues.getCurrentProcessingTimeInMs()
        )
        self.handle.registerTimer(now + self.delay)
        yield Row(k=key[0], c=-len(list(self.handle.listTimers())))

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        stored = self.count.get()
        self.count.clear()
        yield Row(k=key[0], c=stored[0] if stored else expiredTimerInfo.getExpiryTimeInMs())


class Fading(StatefulProcessor):
    """State with TTL of all kinds, and one timer for each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.last = handle.getValueState("last", "v long", 50)
        self.values = handle.getListState("values", "v long", 50)
        self.seen = handle.getMapState("seen", "v long", "n long", 50)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        for row in rows:
            self.last.update((row.v,))
            self.values.appendValue((row.v,))
            self.seen.updateValue((row.v,), (1,))
        if not list(self.handle.listTimers()):
            self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 10 + key[0] % 3)
        yield Row(k=key[0], c=0)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        yield Row(k=key[0], c=len(list(self.values.get())))


class Sizing(StatefulProcessor):
    """Tells how many rows come at a time, and counts what it does."""

    def __init__(self, total: Any = None) -> None:
        self.total = total

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n long")

    def close(self) -> None:
        pass

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        if self.total is not None:
            self.total += 1000

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from self.tell(key[0], rows)
        if self.total is not None:
            self.total += 1
            if key[0] < 0:
                raise ValueError("a bad key")

    def tell(self, key: int, rows: Any) -> Iterator[Any]:
        yield (key, sum(1 for _ in rows))


class SizingFrames(Sizing):
    def tell(self, key: int, rows: Any) -> Iterator[Any]:
        import pandas as pd

        yield pd.DataFrame({"k": key, "n": [len(frame) for frame in rows]})
