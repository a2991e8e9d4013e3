"""State that expires while its key group moves: equal to the sequential run, every strategy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.spark.moving import ROWS, WAIT, Sink

from anabranch import StateService
from anabranch.migration.strategies import STRATEGIES

GROUPS = 64
SHORT_MS = 1000
"""Some batches: between two visits to most keys it passes, or not."""
LONG_MS = 600_000
"""Outlives a test, and moves with its expiry."""

KEY_SETS = ((4, 0, 4), (6, 100, 24), (6, 1000, 150))
"""Rows in each batch, first key, number of keys: they come back after 1, 4 and 25 batches."""

OUTPUT = "k long, now long, left string"


class Forgetful(StatefulProcessor):
    """Says what is left of the last visits before it adds this one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._last = handle.getValueState("last", "v long", ttlDurationMs=SHORT_MS)
        self._items = handle.getListState("items", "v long", ttlDurationMs=SHORT_MS)
        self._recent = handle.getMapState("recent", "r long", "v long", ttlDurationMs=SHORT_MS)
        self._parts = handle.getMapState("parts", "r long", "v long", ttlDurationMs=LONG_MS)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        last = self._last.get()
        items = [item[0] for item in self._items.get()]
        maps = [sorted((r[0], v[0]) for r, v in m.iterator()) for m in (self._recent, self._parts)]
        for value in sorted(row.v for row in rows):
            self._last.update((value,))
            self._items.appendValue((value,))
            self._recent.updateValue((value % 3,), (value,))
            self._parts.updateValue((value % 3,), (value,))
        now = timerValues.getCurrentProcessingTimeInMs()
        yield Row(k=key[0], now=now, left=told(last[0] if last else None, items, *maps))


def told(last: int | None, items: list[int], recent: Any, parts: Any) -> str:
    return f"{last} {items} {recent} {parts}"


def key_of(value: int) -> int:
    """The key of a row; the same in `rows`."""
    batch, place = divmod(value, ROWS)
    for count, first, keys in KEY_SETS:
        if place < count:
            return first + (batch * count + place) % keys
        place -= count
    raise AssertionError


def rows(spark: SparkSession) -> DataFrame:
    """Batch b has the values from b * ROWS on."""
    values = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
        .select(F.col("value").alias("v"))
    )
    batch, place, start = F.floor(F.col("v") / ROWS), F.col("v") % ROWS, 0
    key: Any = F
    for count, first, keys in KEY_SETS:
        visit = (batch * count + place - start) % keys + first
        start += count
        key = key.when(place < start, visit)
    return values.select(key.cast("long").alias("k"), "v")


class Oracle:
    """What each key's visit finds, batch by batch, at the batch's own time."""

    def __init__(self) -> None:
        self.batch = 0
        self.expired: list[tuple[int, int, int]] = []
        """Key, batch of the last visit, batch that found that it has expired."""
        self.kept: list[tuple[int, int, int]] = []
        """The same for state that has not."""
        self._values = 0
        self._visits: dict[int, list[tuple[int, int, int]]] = {}
        """Value, time and batch of all visits to a key."""

    def catch_up(self, found: dict[int, list[tuple[Any, ...]]]) -> None:
        """Compare the batches that have come since."""
        while self.batch in found:
            self._run_batch(found[self.batch])
            self.batch += 1

    def _run_batch(self, found: list[tuple[Any, ...]]) -> None:
        if not found:
            return  # without rows
        times = {now for _, now, _ in found}
        assert len(times) == 1, "a batch has one time"
        now = times.pop()
        values = range(self._values, self._values + ROWS)
        self._values += ROWS
        keys = sorted({key_of(value) for value in values})
        assert sorted(found) == [(key, now, self._left(key, now)) for key in keys], self.batch
        for value in values:
            self._visits.setdefault(key_of(value), []).append((value, now, self.batch))

    def _left(self, key: int, now: int) -> str:
        visits = self._visits.get(key, [])
        short = [value for value, at, _ in visits if at + SHORT_MS > now]
        long = [value for value, at, _ in visits if at + LONG_MS > now]
        if visits:
            (self.kept if short else self.expired).append((key, visits[-1][2], self.batch))
        recent, parts = ({v % 3: v for v in some} for some in (short, long))
        last = short[-1] if short else None
        return told(last, short, sorted(recent.items()), sorted(parts.items()))


def owners(service: StateService) -> tuple[str, ...]:
    return tuple(service._coordinator.moves.plan().owners)


class Running:
    """The query, compared all the time."""

    def __init__(self, spark: SparkSession, folder: Path, service: StateService) -> None:
        self.oracle, self._sink, self._service = Oracle(), Sink(), service
        keys = [key for _, first, count in KEY_SETS for key in range(first, first + count)]
        group = F.pmod(F.xxhash64("k"), F.lit(GROUPS))
        found = spark.createDataFrame([(key,) for key in keys], "k long").select("k", group)
        self._group_of: dict[int, int] = dict(map(tuple, found.collect()))
        told = service.group_by(rows(spark), "k").transformWithState(
            Forgetful(), OUTPUT, "Append", "ProcessingTime", name="forgetful"
        )
        self.query = (
            told.writeStream.foreachBatch(self._sink.write)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )

    def batches(self, count: int) -> None:
        self._sink.wait_for(self.query, len(self._sink.rows) + count)
        self.oracle.catch_up(self._sink.rows)

    def rescale(self, workers: int, strategy: str) -> None:
        """Until state has expired that was written before the move and visited after it."""
        self.batches(1)
        before, first = owners(self._service), self.oracle.batch
        move = self._service.rescale(workers, strategy=strategy)
        assert move.wait(WAIT)
        assert move.report().outcome == "done"
        self.batches(1)
        last, after = self.oracle.batch, owners(self._service)
        moved = {key for key, g in self._group_of.items() if before[g] != after[g]}
        while not any(
            key in moved and written < first and read >= last
            for key, written, read in self.oracle.expired
        ):
            assert self.oracle.batch < last + 100, "nothing has expired"
            self.batches(1)


@pytest.mark.parametrize(
    "strategies",
    [
        ("live", "lazy"),
        *(pytest.param((strategy, strategy), marks=pytest.mark.soak) for strategy in STRATEGIES),
    ],
    ids="-".join,
)
def test_state_expires_while_it_moves(
    spark: SparkSession, tmp_path: Path, strategies: tuple[str, str]
) -> None:
    location = str(tmp_path / "state")
    with StateService(spark, location, workers=2, key_groups=GROUPS) as service:
        running = Running(spark, tmp_path, service)
        try:
            running.batches(4)
            running.rescale(3, strategies[0])
            running.rescale(2, strategies[1])
            assert running.oracle.kept, "everything has expired"
        finally:
            running.query.stop()
