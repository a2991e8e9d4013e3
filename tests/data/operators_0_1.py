"""The operators and rows that release 0.1 wrote `location-0.1` with. Frozen: do not change them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from anabranch.model.keyspace import HASH, KeySpace
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

AGGREGATE, ROWS = "counts", "everything"
"""A columnar operator, and one of rows with value, list and map state, timers and TTL."""

KEYSPACE = KeySpace(8, 4)
KEYS = 24
SECOND = 1_000_000
MOMENT = pa.timestamp("us", "UTC")


def definitions(define: Callable[..., Any]) -> dict[str, Any]:
    """Operators by name; `define` makes one of rows, as the tests of this release do."""
    rows = define(Everything(), "k long, v long", ["k"], "k long, text string", "processingtime")
    return {AGGREGATE: _windows(), ROWS: rows}


def rows_of(operator: str, epoch: int) -> pa.RecordBatch:
    """About a third of the keys in each batch: others wait for timers, or for later batches."""
    keys = np.array([k for k in range(KEYS) if (k * 7 + epoch * 5) % 11 < 4], np.int64)
    values = pa.array(keys % 5 + epoch)
    if operator == ROWS:
        return pa.record_batch({HASH: _hashes(keys), "k": keys, "v": values})
    starts = (epoch + np.arange(len(keys)) % 3) * SECOND
    return pa.record_batch(
        {
            HASH: _hashes(keys + 1000 * starts),
            "k": keys,
            WINDOW_START: pa.array(starts).cast(MOMENT),
            WINDOW_END: pa.array(starts + SECOND).cast(MOMENT),
            "v": values,
        }
    )


def times_of(epoch: int) -> BatchTimes:
    """Each batch is a second; the watermark is two behind."""
    watermark_ms = max(0, (epoch - 2) * 1000)
    return BatchTimes(epoch * 1000, watermark_ms, max(0, watermark_ms - 1000))


def as_text(rows: Iterable[Any]) -> list[str]:
    """Outputs or entries of state, in a form that can be stored and compared."""
    plain = ({name: value for name, value in row.items() if name != HASH} for row in rows)
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in plain)


class FrozenClock:
    """The clocks of batches, in the place of Spark's."""

    def times(self, operator: str, query_id: str, epoch: int) -> BatchTimes:
        return times_of(epoch)

    def note_batch(
        self, operator: str, query_id: str, epoch: int, lanes: int, stats: Mapping[str, int]
    ) -> None:
        pass

    def is_running(self, operator: str, query_id: str) -> bool | None:
        return None


def _hashes(keys: Any) -> Any:
    with np.errstate(over="ignore"):
        return pa.array(np.asarray(keys, np.int64) * np.int64(0x5851F42D4C957F2D))


def _windows() -> ColumnarDefinition:
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

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count", "n long")
        self.values = handle.getListState("values", "v long")
        self.seen = handle.getMapState("seen", "v long", "n long")
        self.recent = handle.getValueState("recent", "n long", 2500)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
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
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        values = [value for (value,) in self.values.get()]
        self.values.clear()
        recent = self.recent.get()
        yield Row(k=key[0], text=f"{expiredTimerInfo.getExpiryTimeInMs()} {values} {recent}")
