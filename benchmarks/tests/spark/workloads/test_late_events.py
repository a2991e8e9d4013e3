"""Watermarks of the NEXMark queries: what they drop as late, and how far they get at the end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks.tests.spark.workloads.running import Running, nothing
from pyspark.sql import SparkSession

from anabranch_bench.workloads import auction
from anabranch_bench.workloads.auction import AuctionWorkload
from anabranch_bench.workloads.contract import Workload
from anabranch_bench.workloads.nexmark import oracle
from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.generator import AUCTION, BID, PERSON, NexmarkEvents
from anabranch_bench.workloads.nexmark.workload import QUERIES, WATERMARK_DELAY_MS, NexmarkWorkload
from anabranch_bench.workloads.verify import verify_tables

STREAM = NexmarkConfig(
    rate=500, seed=3, group=20, delayed=0.5, delay_ms=15_000, in_flight_auctions=300
)
"""A command refuses it: half of the events come up to 15 s late, and the watermark waits for 4."""

BATCHES, BATCH = 3, 5000
"""Each is 10 seconds of event time; here it is known where batches end."""

DELAY_US = WATERMARK_DELAY_MS * 1000
SECOND = 1_000_000


def late_workload(name: str) -> tuple[Workload, tuple[int, ...]]:
    """A workload on the stream, and the kinds of events that it reads."""
    workload: Workload = AuctionWorkload() if name == "auction" else NexmarkWorkload(name)
    workload.events = NexmarkEvents(STREAM)
    return workload, auction.KINDS if name == "auction" else QUERIES[name].kinds


def batches_read(workload: Workload, kinds: tuple[int, ...]) -> list[tuple[pa.Table, int]]:
    """The events of each batch that a query reads, and the watermark that it begins with."""
    found, watermark = [], 0
    for first in range(0, BATCHES * BATCH, BATCH):
        events = pa.Table.from_batches([workload.events.between(first, first + BATCH)])
        read = events.filter(pc.is_in(events.column("event_type"), pa.array(kinds, pa.int32())))
        found.append((read, watermark))
        newest = pc.max(read.column("dateTime").cast(pa.int64())).as_py()
        watermark = max(watermark, newest - DELAY_US)
    return found


def on_time(batches: list[tuple[pa.Table, int]]) -> pa.Table:
    """Events that are newer than the watermark of their batch."""
    return pa.concat_tables(
        read.filter(pc.greater(read.column("dateTime").cast(pa.int64()), watermark))
        for read, watermark in batches
    )


def q5_by_batches(batches: list[tuple[pa.Table, int]]) -> pa.Table:
    """Windows drop what comes when they are over: a late bid may still count in later ones."""
    pairs = []
    for read, watermark in batches:
        bids = oracle.Site(read, DELAY_US, (BID,)).bids
        for back in range(5):
            starts = (bids["at"] // (2 * SECOND) - back) * 2 * SECOND
            is_open = starts + 10 * SECOND > watermark
            pairs.append(pd.DataFrame({"starts": starts, "auction": bids["auction"]})[is_open])
    counts = pd.concat(pairs).groupby(["starts", "auction"], as_index=False).size()
    last = max(oracle.Site(read, DELAY_US, (BID,)).watermark for read, _ in batches)
    closed = counts[counts["starts"] + 10 * SECOND <= last]
    best = closed[closed["size"] == closed.groupby("starts")["size"].transform("max")]
    return pa.table(
        {
            "starts": pa.array(best["starts"].to_numpy()).view(pa.timestamp("us", "UTC")),
            "auction": best["auction"].to_numpy(),
            "bids": best["size"].to_numpy(),
        }
    )


@pytest.mark.parametrize(
    "name",
    ["auction", *(pytest.param(q, marks=pytest.mark.soak) for q in ("q4", "q5", "q6", "q7", "q8"))],
)
def test_late_events_are_dropped(spark: SparkSession, tmp_path: Path, name: str) -> None:
    workload, kinds = late_workload(name)
    with Running(spark, tmp_path, workload) as running:
        for _ in range(BATCHES):
            running.query.burst(BATCH, BATCH, nothing)
            running.query.drain()
    batches = batches_read(workload, kinds)
    expected: Mapping[str, Any] = (
        {"result": q5_by_batches(batches)} if name == "q5" else workload.expected(on_time(batches))
    )
    verdicts = verify_tables(workload, expected, running.sink)
    assert all(v.is_right for v in verdicts), "; ".join(map(str, verdicts))
    everything = workload.expected(pa.concat_tables(read for read, _ in batches))
    without = verify_tables(workload, everything, running.sink)
    assert not all(v.is_right for v in without), "late events would have made no difference"


def rows_until_something_ends(workload: Workload, name: str) -> int:
    """So many that the last event is a person, and that with its time the result were another."""
    for rows in range(201, 20_000, 50):
        events = pa.Table.from_batches([workload.events.between(0, rows)])
        whole = oracle.Site(events, DELAY_US, (PERSON, AUCTION, BID))
        expected = workload.expected(events)["result"].num_rows
        if 0 < expected < QUERIES[name].expected(whole).num_rows:
            return rows
    raise AssertionError("The stream has no such place.")


@pytest.mark.parametrize("name", ["q5", pytest.param("q6", marks=pytest.mark.soak)])
def test_events_that_a_query_does_not_read_close_nothing(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    workload = NexmarkWorkload(name, NexmarkConfig(rate=10, in_flight_auctions=20))
    rows = rows_until_something_ends(workload, name)
    with Running(spark, tmp_path, workload) as running:
        running.part(rows, rows)
