"""Stateful operators with timers, TTL, list and map state and windows, and their sequential run."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

WAIT = 120
ROWS = 16
"""Rows of a batch."""
KEYS = 97
START_MS = 60_000
"""Not 0: a row at the watermark is late."""
ADVANCE_MS = 1000
"""Event time between batches."""
DELAY_MS = 1000
QUIET_MS = 2500
WINDOW_MS = 3000

TRACKED = "k long, total long, items long, parts string, what string"
RECENT = "k long, seen long, kinds string"


def first(state: Any) -> int:
    """The only field of a state value; 0 if there is none."""
    return int(state[0]) if state is not None else 0


class Sink:
    """Rows by batch."""

    def __init__(self) -> None:
        self.rows: dict[int, list[tuple[Any, ...]]] = {}
        self._changed = threading.Condition()

    def write(self, batch: DataFrame, batch_id: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        with self._changed:
            assert self.rows.setdefault(batch_id, rows) == rows, "a batch has changed its result"
            self._changed.notify_all()

    def wait_for(self, query: StreamingQuery, batches: int) -> None:
        limit = time.monotonic() + WAIT
        with self._changed:
            while len(self.rows) < batches:
                failure = query.exception()
                assert failure is None, failure
                assert time.monotonic() < limit, f"no progress after {len(self.rows)} batches"
                self._changed.wait(0.5)


class Tracker(StatefulProcessor):
    """Sum (value), items (list), counts by remainder (map); an event-time timer when quiet."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._total = handle.getValueState("total", "t long")
        self._items = handle.getListState("items", "v long")
        self._parts = handle.getMapState("parts", "r long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        total = first(self._total.get())
        latest = 0
        for row in rows:
            total += row.v
            self._items.appendValue((row.v,))
            part = (row.v % 3,)
            count = first(self._parts.getValue(part))
            self._parts.updateValue(part, (count + 1,))
            latest = max(latest, int(row.ts.timestamp() * 1000))
        self._total.update((total,))
        for timer in self._handle.listTimers():
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(latest + QUIET_MS)
        yield self._row(key, "rows")

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield self._row(key, "quiet")
        self._items.clear()

    def _row(self, key: Any, what: str) -> Row:
        parts = sorted((r[0], n[0]) for r, n in self._parts.iterator())
        items = sum(1 for _ in self._items.get()) if self._items.exists() else 0
        return Row(
            k=key[0], total=first(self._total.get()), items=items, parts=str(parts), what=what
        )


class Recent(StatefulProcessor):
    """Counts what it has seen, in state that expires (in `test_moves_ttl.py`; here never)."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "n long", ttlDurationMs=3_600_000)
        self._kinds = handle.getMapState("kinds", "w string", "n long", ttlDurationMs=3_600_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        seen = first(self._seen.get())
        for row in rows:
            seen += 1
            kind = (row.what,)
            count = first(self._kinds.getValue(kind))
            self._kinds.updateValue(kind, (count + 1,))
        self._seen.update((seen,))
        kinds = sorted((w[0], n[0]) for w, n in self._kinds.iterator())
        yield Row(k=key[0], seen=seen, kinds=str(kinds))


def source(spark: SparkSession) -> DataFrame:
    """The same rows in every run: batch b has values from b * ROWS on, all with one event time."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .option("startTimestamp", START_MS)
        .option("advanceMillisPerBatch", ADVANCE_MS)
        .load()
        .select(
            ((F.col("value") * 7) % KEYS).alias("k"),
            F.col("value").alias("v"),
            F.col("timestamp").alias("ts"),
        )
        .withWatermark("ts", f"{DELAY_MS} milliseconds")
    )


class Oracle:
    """The operators run by hand, batch by batch."""

    def __init__(self) -> None:
        self.batch = 0
        self._total: Counter[int] = Counter()
        self._items: Counter[int] = Counter()
        self._parts: dict[int, Counter[int]] = {}
        self._timers: dict[int, int] = {}
        self._seen: Counter[int] = Counter()
        self._kinds: dict[int, Counter[str]] = {}
        self._windows: Counter[int] = Counter()

    def run_batch(
        self, has_rows: bool, watermark: int
    ) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Outputs of the chained row operators, and of the windows.

        Spark may run batches without rows; the watermark in which a batch runs is Spark's as well.
        """
        first, now = self.batch * ROWS, START_MS + self.batch * ADVANCE_MS
        values = range(first, first + ROWS) if has_rows else range(0)
        self.batch += has_rows
        tracked = self._tracked(values, now, watermark)
        recent = []
        for key in sorted({k for k, _ in tracked}):
            for what in (w for k, w in tracked if k == key):
                self._seen[key] += 1
                self._kinds.setdefault(key, Counter())[what] += 1
            kinds = sorted(self._kinds[key].items())
            recent.append((key, self._seen[key], str(kinds)))
        return recent, self._closed(values, now, watermark)

    def _tracked(self, values: range, now: int, watermark: int) -> list[tuple[int, str]]:
        found = []
        for value in values:
            key = value * 7 % KEYS
            self._total[key] += value
            self._items[key] += 1
            self._parts.setdefault(key, Counter())[value % 3] += 1
            self._timers[key] = now + QUIET_MS
        found += [(key, "rows") for key in {v * 7 % KEYS for v in values}]
        for key, expiry in sorted(self._timers.items()):
            if expiry <= watermark:
                found.append((key, "quiet"))
                self._items[key] = 0
                del self._timers[key]
        self.tracked = [
            (k, self._total[k], self._items[k], str(sorted(self._parts[k].items())), w)
            for k, w in found
        ]
        return found

    def _closed(self, values: range, now: int, watermark: int) -> list[tuple[Any, ...]]:
        if values:
            self._windows[now // WINDOW_MS * WINDOW_MS] += len(values)
        closed = [
            (start // 1000, count)
            for start, count in sorted(self._windows.items())
            if start + WINDOW_MS <= watermark
        ]
        for start, _ in closed:
            del self._windows[start * 1000]
        return closed
