"""Accumulation: results are collected until there are enough for a flush of charts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

RESULT = "statistic string, id long, sensor string, field string, at_ms long, results array<double>"
"""A result of a statistic, caused by a message."""

FLUSHED = f"shard int, flush long, {RESULT}"

SHARDS = 16
"""Accumulators of each statistic, each with the results of its share of the senders."""

_PENDING = "id long, sensor string, field string, at_ms long, results array<double>"


def shard_of(sensor: str) -> Column:
    """The accumulator of a sender."""
    return F.pmod(F.crc32(F.col(sensor).cast("binary")), F.lit(SHARDS)).cast("int")


class Accumulator(StatefulProcessor):
    """Key: (statistic, shard). State: results since the last flush, and the number of flushes.

    After every `size` results, in the order of their messages, all of them are emitted.
    """

    def __init__(self, size: int) -> None:
        self._size = size

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._pending = handle.getListState("pending", _PENDING)
        self._count = handle.getValueState("count", "pending long, flushes long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Flushes, if there are enough."""
        new = [(r.id, r.sensor, r.field, r.at_ms, r.results) for r in rows]
        new.sort(key=lambda result: (result[0], result[2]))
        pending, flushes = self._count.get() or (0, 0)
        if pending + len(new) < self._size:
            self._pending.appendList(new)
            self._count.update((pending + len(new), flushes))
            return
        collected = [tuple(result) for result in self._pending.get()] if pending else []
        collected += new
        ready = len(collected) // self._size * self._size
        if collected[ready:]:
            self._pending.put(collected[ready:])
        else:
            self._pending.clear()
        self._count.update((len(collected) - ready, flushes + ready // self._size))
        statistic, shard = key
        for place, (number, sensor, field, at_ms, results) in enumerate(collected[:ready]):
            flush = flushes + place // self._size
            yield Row(
                shard=shard,
                flush=flush,
                statistic=statistic,
                id=number,
                sensor=sensor,
                field=field,
                at_ms=at_ms,
                results=list(results),
            )

    def close(self) -> None:
        """Nothing to let go of."""
