"""Operators with all kinds of state, and the rows of their batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)
from tests.unit.processor.rows.support import define

from anabranch.model.keyspace import HASH
from anabranch.processor.columnar.aggregates import (
    WINDOW_END,
    WINDOW_START,
    AggregateProcessor,
    Measure,
)
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.kernels import Count, Sum
from anabranch.processor.contract import BatchTimes

cloudpickle.register_pickle_by_value(sys.modules[__name__])

MOMENT = pa.timestamp("us", "UTC")
KEYS = 120
ROWS = 60
SECOND = 1_000_000


@dataclass
class Case:
    """An operator, the rows of each epoch, and its clocks."""

    name: str
    definition: Any
    make_rows: Callable[[Any, int], pa.Table]
    repeat: int = 1

    def rows(self, epoch: int) -> pa.Table:
        """A part of the keys in each batch: others wait for timers, or for later batches."""
        rng = np.random.default_rng(epoch)
        keys = rng.integers(0, KEYS, ROWS) if epoch % 4 != 3 else np.empty(0, np.int64)
        return self.make_rows(np.repeat(keys, self.repeat), epoch)

    def times(self, epoch: int) -> BatchTimes:
        """Each batch is a second; the watermark is two behind."""
        watermark_ms = max(0, (epoch - 2) * 1000)
        return BatchTimes(epoch * 1000, watermark_ms, max(0, watermark_ms - 1000))


def hashes_of(keys: Any) -> Any:
    with np.errstate(over="ignore"):
        return np.asarray(keys, np.int64) * np.int64(0x5851F42D4C957F2D)


def window_rows(keys: Any, epoch: int) -> pa.Table:
    starts = (epoch + np.arange(len(keys)) % 3) * SECOND
    return pa.table(
        {
            HASH: pa.array(hashes_of(keys + 1000 * starts)),
            "k": pa.array(keys),
            WINDOW_START: pa.array(starts, pa.int64()).cast(MOMENT),
            WINDOW_END: pa.array(starts + SECOND, pa.int64()).cast(MOMENT),
            "v": pa.array(np.arange(len(keys)), pa.int64()),
        }
    )


def windows() -> ColumnarDefinition:
    """Counts and sums in windows of a second, told when they close."""
    key = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False),
            pa.field(WINDOW_START, MOMENT, nullable=False),
            pa.field(WINDOW_END, MOMENT, nullable=False),
        ]
    )
    window = pa.struct([("start", MOMENT), ("end", MOMENT)])
    output = pa.schema(
        [("k", pa.int64()), ("window", window), ("n", pa.int64()), ("s", pa.int64())]
    )
    measures = [Measure("n", Count(), None), Measure("s", Sum(pa.int64(), True), "v")]
    processor = AggregateProcessor(measures, output, windowed=True, append=True, expiry=WINDOW_END)
    inputs = pa.schema([*key, ("v", pa.int64())])
    return ColumnarDefinition(processor, key, inputs, output, late=WINDOW_END)


class Everything(StatefulProcessor):
    """Value, list and map state, timers and TTL."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.values = handle.getListState("values", "v long")
        self.seen = handle.getMapState("seen", "v long", "n long")
        self.recent = handle.getValueState("recent", "n long", 2500)

    def handleInputRows(self, key: Any, rows: Any, timerValues: TimerValues) -> Iterator[Row]:
        stored = self.count.get()
        total = stored[0] if stored else 0
        for row in rows:
            total += 1
            self.values.appendValue((row.v,))
            known = self.seen.getValue((row.v % 3,))
            self.seen.updateValue((row.v % 3,), ((known[0] if known else 0) + 1,))
        self.count.update((total,))
        recent = self.recent.get()
        self.recent.update((total,))
        now = timerValues.getCurrentProcessingTimeInMs()
        if not list(self.handle.listTimers()):
            self.handle.registerTimer(now + 1000 * (2 + key[0] % 4))
        seen = sorted((k[0], v[0]) for k, v in self.seen.iterator())
        values = [value for (value,) in self.values.get()]
        yield Row(k=key[0], text=f"{total} {values} {seen} {recent}")

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[Row]:
        values = [value for (value,) in self.values.get()]
        self.values.clear()
        recent = self.recent.get()
        yield Row(k=key[0], text=f"{expiredTimerInfo.getExpiryTimeInMs()} {values} {recent}")


def everything_rows(keys: Any, epoch: int) -> pa.Table:
    return pa.table(
        {
            HASH: pa.array(hashes_of(keys)),
            "k": pa.array(keys),
            "v": pa.array(np.arange(len(keys)) + epoch, pa.int64()),
        }
    )


def make_case(name: str) -> Case:
    """By name, for parametrised tests."""
    if name == "windows":
        return Case(name, windows(), window_rows)
    definition = define(
        Everything(), "k long, v long", ["k"], "k long, text string", "processingtime"
    )
    return Case(name, definition, everything_rows)


CASES = ("windows", "everything")
