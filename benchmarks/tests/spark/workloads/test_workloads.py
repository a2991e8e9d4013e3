"""Every workload on Spark equals its oracle: undisturbed, rescaled, and after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.tests.spark.workloads.running import Running
from pyspark.sql import SparkSession

from anabranch.migration.strategies import STRATEGIES
from anabranch_bench.workloads.auction import AuctionWorkload
from anabranch_bench.workloads.contract import Workload
from anabranch_bench.workloads.keycount import KeyCountConfig, KeyCountWorkload
from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.workload import QUERIES, NexmarkWorkload

STREAM = NexmarkConfig(rate=500, group=20, delayed=0.1, delay_ms=2000, in_flight_auctions=300)
"""Out of order, with delayed events; 12 seconds of event time in each part."""

PART, BATCH, SMALL_BATCH = 6000, 3000, 2000

STATELESS = [name for name, query in QUERIES.items() if not query.stateful]
STATEFUL = [*(name for name, query in QUERIES.items() if query.stateful), "auction", "key-count"]
QUICK = {"q3", "q5", "auction", "key-count"}
"""A join, a window and the rest: queries much like these are for soak."""


def workload_named(name: str) -> Workload:
    """A workload of the tests."""
    if name == "auction":
        return AuctionWorkload(STREAM)
    if name == "key-count":
        config = KeyCountConfig(keys=5000, zipf=1.0, payload_bytes=50, preload=True)
        return KeyCountWorkload(config)
    return NexmarkWorkload(name, STREAM)


@pytest.mark.parametrize("name", STATELESS)
def test_stateless(spark: SparkSession, tmp_path: Path, name: str) -> None:
    with Running(spark, tmp_path, workload_named(name)) as running:
        running.part(PART, BATCH)
        assert running.sink.rows > 0


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.soak) for n in STATEFUL]
)
def test_stateful(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """In one run: a quiet part, one with a rescale, one in which a worker is killed."""
    with Running(spark, tmp_path, workload_named(name)) as running:
        running.part(PART, BATCH)
        running.rescaled_part(PART, BATCH, workers=3)
        running.crashed_part(PART, SMALL_BATCH)
        assert running.sink.rows > 0


@pytest.mark.soak
def test_a_rescale_in_while_a_worker_dies(spark: SparkSession, tmp_path: Path) -> None:
    with Running(spark, tmp_path, workload_named("auction")) as running:
        running.part(PART, BATCH)
        move = running.service.rescale(1)
        running.crashed_part(PART, SMALL_BATCH)
        move.wait(120)
        running.part(BATCH, BATCH)


def test_closed_forms(spark: SparkSession, tmp_path: Path) -> None:
    """The stream without randomness: the averages are known without any oracle."""
    workload = AuctionWorkload(NexmarkConfig(rate=1000, stub=True))
    with Running(spark, tmp_path, workload) as running:
        running.part(150_000, 50_000)
        last = {
            row["category"]: row["average"]
            for table in running.sink.batches("averages")
            for row in table.to_pylist()
        }
        popular = [row["auction"] for t in running.sink.batches("popular") for row in t.to_pylist()]
    expected = [72582.33, 74249.00, 75915.67, 77582.33, 79249.00]
    assert [last[c] for c in range(10, 15)] == pytest.approx(expected, abs=0.005)
    assert sorted(popular) == [1000 + 100 * j for j in range(90)]


@pytest.mark.soak
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", STATEFUL)
def test_every_strategy(spark: SparkSession, tmp_path: Path, name: str, strategy: str) -> None:
    with Running(spark, tmp_path, workload_named(name)) as running:
        running.part(PART, BATCH)
        running.rescaled_part(PART, BATCH, 3, strategy)
        running.crashed_part(PART, SMALL_BATCH)
        running.rescaled_part(PART, BATCH, 2, strategy)
