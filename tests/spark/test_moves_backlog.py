"""Tens of thousands of timers become due while key groups move: the watermark goes on."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.moving import WAIT, Sink

from anabranch import StateService
from anabranch.model.ids import WorkerId
from anabranch.transport.messages.control import Status

KEYS = 20_000
WAVES = 2
"""A part of the timers becomes due with each step of the watermark."""
START_MS = 60_000
DUE_MS = 1_000_000
STEP_MS = 1000
DELAY_MS = 1000
BUSY = 997
"""Each so many keys, one has rows in every batch."""
CRAWLING = 1000
"""Bytes a second: the state would take minutes."""
ROWS = 0
"""Stands for the time of a timer where rows are told."""


class Alarms(StatefulProcessor):
    """One timer for each key, when it is seen first."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._rows = handle.getValueState("rows", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        seen = self._rows.get()
        total = (seen[0] if seen else 0) + sum(1 for _ in rows)
        self._rows.update((total,))
        if seen is None:
            self._handle.registerTimer(DUE_MS + key[0] % WAVES * STEP_MS)
        else:
            yield Row(k=key[0], at=ROWS, rows=total)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        seen = self._rows.get()
        yield Row(k=key[0], at=expiredTimerInfo.getExpiryTimeInMs(), rows=seen[0] if seen else 0)


class Holding(Sink):
    """Holds the query back after a batch with rows for known keys, until told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.go.set()
        self.is_held = False

    def write(self, batch: DataFrame, batch_id: int) -> None:
        super().write(batch, batch_id)
        if any(at == ROWS for _, at, _ in self.rows[batch_id]):
            self.is_held = not self.go.is_set()
            self.go.wait(WAIT)


class Feed:
    """A folder of files, one for each batch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = 0
        folder.mkdir()

    def write(self, keys: Iterable[int], at_ms: int) -> None:
        """A batch whose rows have one event time."""
        self._files += 1
        name = f"{self._files:04}.parquet"
        numbers = pa.array(keys, pa.int64())
        times = pa.array([at_ms * 1000] * len(numbers), pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"k": numbers, "ts": times}), self.folder / f".{name}")
        os.replace(self.folder / f".{name}", self.folder / name)


class Running:
    """The query and what has fired."""

    def __init__(self, spark: SparkSession, folder: Path, service: StateService) -> None:
        self.feed, self.sink = Feed(folder / "feed"), Holding()
        rows = (
            spark.readStream.schema("k long, ts timestamp")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.feed.folder))
            .withWatermark("ts", f"{DELAY_MS} milliseconds")
        )
        fired = service.group_by(rows, "k").transformWithState(
            Alarms(), "k long, at long, rows long", "Append", "EventTime", name="alarms"
        )
        self.query = (
            fired.writeStream.foreachBatch(self.sink.write)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )

    def until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + WAIT
        while not condition():
            assert self.query.exception() is None
            assert time.monotonic() < limit, "no progress"
            time.sleep(0.05)

    def watermark_ms(self) -> int:
        """The watermark of the last batch that has ended."""
        progress = self.query.lastProgress
        if progress is None or "watermark" not in progress["eventTime"]:
            return 0
        moment = datetime.fromisoformat(progress["eventTime"]["watermark"].replace("Z", "+00:00"))
        return int(moment.timestamp() * 1000)

    def advance(self, at_ms: int) -> None:
        """Rows for some of the keys, with which the watermark gets so far."""
        self.feed.write(range(0, KEYS, BUSY), at_ms + DELAY_MS)
        self.until(lambda: self.watermark_ms() >= at_ms)


OPTIONS: dict[str, dict[str, Any]] = {"meces": {"batch": 1}, "drrs": {"subscale": 1}}
"""Of these, a few key groups move with each batch."""


@pytest.mark.parametrize(
    "strategy",
    ["lazy", *(pytest.param(name, marks=pytest.mark.soak) for name in OPTIONS)],
)
def test_a_backlog_of_due_timers_does_not_hold_the_watermark_back(
    spark: SparkSession, tmp_path: Path, strategy: str
) -> None:
    """At the pace of the move, the batch would wait for minutes for state with due timers."""
    options = OPTIONS.get(strategy, {})
    with StateService(spark, str(tmp_path / "state"), workers=2, key_groups=64) as service:
        running = Running(spark, tmp_path, service)
        try:
            running.feed.write(range(KEYS), START_MS)
            running.advance(START_MS + STEP_MS)
            running.sink.go.clear()
            running.feed.write(range(0, KEYS, BUSY), DUE_MS + DELAY_MS)
            running.until(lambda: running.sink.is_held)
            # The next batch finds timers due, and their key groups on the way.
            move = service.rescale(3, strategy=strategy, bytes_per_second=CRAWLING, **options)
            running.until(lambda: groups_of(service, "w3") > 0)
            assert not move.is_done
            assert running.watermark_ms() < DUE_MS
            running.sink.go.set()
            running.until(lambda: running.watermark_ms() >= DUE_MS)
            for wave in range(1, WAVES):
                running.advance(DUE_MS + wave * STEP_MS)
            pool = service._coordinator._pool
            moves = pool.peers()[WorkerId("w3")].call_patiently(Status()).moves
            # The same again, as fast as possible: what is on its way comes to its end.
            assert service.rescale(3, strategy=strategy).wait(WAIT)
            running.advance(DUE_MS + WAVES * STEP_MS)
        finally:
            running.sink.go.set()
            running.query.stop()
    fired = check_fired(running.sink.rows)
    assert fired[0] in {batch["epoch"] for batch in move.report().batches}
    if strategy == "lazy":
        assert moves["due_pushed"] > 0
    else:  # small key groups come in one piece, which is waited for if it is under way
        assert sum(moves.get(name, 0) for name in ("due_pushed", "on_demand_groups", "waited")) > 0


def groups_of(service: StateService, worker: str) -> int:
    workers = service.status()["workers"]
    return int(workers[worker]["key_groups"]) if worker in workers else 0


def check_fired(batches: dict[int, list[tuple[Any, ...]]]) -> list[int]:
    """Every timer once, with the state of its key; the batch of each wave."""
    fired = {batch: [row for row in rows if row[1] != ROWS] for batch, rows in batches.items()}
    assert Counter(key for rows in fired.values() for key, _, _ in rows) == Counter(range(KEYS))
    for key, at, seen in (row for rows in fired.values() for row in rows):
        wave = key % WAVES
        assert at == DUE_MS + wave * STEP_MS
        assert seen == 1 + (2 + wave) * (key % BUSY == 0)
    waves = [(batch, {row[1] for row in rows}) for batch, rows in fired.items() if rows]
    assert [times for _, times in waves] == [{DUE_MS + w * STEP_MS} for w in range(WAVES)]
    return [batch for batch, _ in waves]
