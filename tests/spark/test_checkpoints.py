"""Unaligned checkpoints under a real query with event-time windows: nothing is lost or doubled."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery
from tests.spark.moving import ADVANCE_MS, KEYS, ROWS, START_MS, WAIT, WINDOW_MS, Sink, source

from anabranch import StateService, agg
from anabranch.model.stats import ROWS_DEFERRED


def start(spark: SparkSession, folder: Path) -> StateService:
    location = str(folder / "state")
    return StateService(spark, location, workers=2, key_groups=64, checkpoint="unaligned")


def run_windows(
    spark: SparkSession, folder: Path, service: StateService, sink: Sink
) -> StreamingQuery:
    window = agg.tumbling("ts", f"{WINDOW_MS} milliseconds")
    windows = service.group_by(source(spark), "k", window=window).aggregate(
        n=agg.count(), name="windows", outputMode="append"
    )
    opened = F.col("window.start").cast("long").alias("t")
    return (
        windows.select("k", opened, "n")
        .writeStream.foreachBatch(sink.write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )


def deferred(service: StateService) -> int:
    batches = service.status()["operators"]["windows"]["batches"]
    return sum(batch["stats"].get(ROWS_DEFERRED, 0) for batch in batches)


def expected(until_second: int) -> Counter[tuple[Any, ...]]:
    """Windows that end by then: each key's rows in it, once."""
    rows: Counter[tuple[int, int]] = Counter()
    for batch in range((until_second * 1000 - START_MS) // ADVANCE_MS):
        start = (START_MS + batch * ADVANCE_MS) // WINDOW_MS * WINDOW_MS
        rows.update((v * 7 % KEYS, start // 1000) for v in range(batch * ROWS, (batch + 1) * ROWS))
    return Counter((k, t, n) for (k, t), n in rows.items() if t + WINDOW_MS // 1000 <= until_second)


def found(sink: Sink) -> Counter[tuple[Any, ...]]:
    return Counter(row for rows in list(sink.rows.values()) for row in rows)


@pytest.mark.soak  # half a minute
def test_rows_of_windows_wait_and_come_out_once(spark: SparkSession, tmp_path: Path) -> None:
    sink = Sink()
    with start(spark, tmp_path) as service:
        query = run_windows(spark, tmp_path, service, sink)
        sink.wait_for(query, 3)
        move = service.rescale(3, strategy="order-unaware", bytes_per_second=2_000)
        while not deferred(service):
            assert not move.is_done, "no row has waited"
            sink.wait_for(query, len(sink.rows) + 1)
        query.stop()  # in the middle of it
    with start(spark, tmp_path) as service:
        query = run_windows(spark, tmp_path, service, sink)
        sink.wait_for(query, len(sink.rows) + 6)
        last = max(t for rows in sink.rows.values() for _, t, _ in rows) + WINDOW_MS // 1000
        limit = time.monotonic() + WAIT
        while expected(last) - found(sink):
            assert time.monotonic() < limit, expected(last) - found(sink)
            sink.wait_for(query, len(sink.rows) + 1)
        query.stop()
    said = found(sink)
    assert set(said.values()) == {1}, "a window has come out twice"
    later = max(t for _, t, _ in said) + WINDOW_MS // 1000
    assert not said - expected(later), "a window with other rows than its own"
