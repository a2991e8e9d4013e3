"""`anabranch bench hybrid`: all state in memory, a part of it, or nothing between batches."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.loadtest.latency import Batch
from anabranch.loadtest.loaded_query import Folders, LoadedQuery, Say
from anabranch.loadtest.schedule import load_frame
from anabranch.service import StateService
from anabranch_bench.probes.workers import workers_bytes
from anabranch_bench.results.loads import KEY_BYTES, keys_of
from anabranch_bench.runs.key_counts import counts

STATES = ("local", "hybrid", "remote")
"""Flink's way, memory as a cache over the store, MillWheel's way."""

FILL_BYTES_A_BATCH = 32 << 20


@dataclass(frozen=True, slots=True)
class HybridSettings:
    """Sizes of a run."""

    state_gb: float = 0.25
    limit_share: float = 0.4
    """Memory for state, as a share of what all of it needs."""
    rows: int = 10_000
    """A batch."""
    batches: int = 20
    hot_share: float = 0.9
    """So many rows ..."""
    hot_keys: float = 0.05
    """... are of this share of the keys."""
    payload_bytes: int = 1_000
    workers: int = 2

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return max(100, keys_of(self.state_gb, self.payload_bytes))

    @property
    def limit_bytes(self) -> int:
        """For the state of each worker."""
        return max(32 << 20, round(self.limit_share * self.state_gb * 1e9 / self.workers))


@dataclass(frozen=True, slots=True)
class HybridResult:
    """One way to keep state, under the same load."""

    state: str
    batch_seconds: tuple[float, ...]
    rows_per_second: float
    resident_mb: float
    """Memory of all workers, over what they had when they were empty."""
    state_mb: float
    """What of it is state."""
    hit_rate: float | None
    rescale_seconds: float
    longest_seconds: float
    """Of the batches while it was rescaled."""

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> HybridResult:
        """What `to_json` was told of."""
        return cls(**{**told, "batch_seconds": tuple(told["batch_seconds"])})

    def line(self) -> str:
        """For people."""
        ordered = sorted(self.batch_seconds)
        hits = "" if self.hit_rate is None else f", hit rate {self.hit_rate:.1%}"
        return (
            f"{self.state:<7} {self.rows_per_second:>9,.0f} rows/s, batch "
            f"{statistics.median(ordered):.2f} s [{ordered[0]:.2f} to {ordered[-1]:.2f}], memory "
            f"{self.resident_mb:,.0f} MB ({self.state_mb:,.0f} MB state){hits}, 2 -> 3 workers "
            f"in {self.rescale_seconds:.1f} s, longest batch meanwhile {self.longest_seconds:.2f} s"
        )


@dataclass
class HybridBench:
    """The same state and load, one way after the other."""

    spark: SparkSession
    folder: Path
    settings: HybridSettings
    say: Say

    def run(self, states: tuple[str, ...] = STATES) -> Iterator[HybridResult]:
        """The results, as they come."""
        folders = Folders(self.folder)
        for state in states:
            yield self._measure(state, folders.fresh(f"hybrid-{state}"))

    def _measure(self, state: str, folder: Path) -> HybridResult:
        s = self.settings
        limit = s.limit_bytes if state == "hybrid" else None
        with StateService(
            self.spark,
            str(folder / "state"),
            workers=s.workers,
            state=state,
            state_memory_bytes=limit,
        ) as service:
            empty = workers_bytes(service)
            query = LoadedQuery(lambda schedule: self._frame(service, schedule), folder, 0)
            with query:
                rows = max(1000, FILL_BYTES_A_BATCH // (s.payload_bytes + KEY_BYTES))
                query.burst(s.keys, rows, lambda done: self.say(f"{state}: filling, {done:.0%}"))
                self._run(query, s.batches, f"{state}: warming up")
                batches = self._run(query, s.batches, f"{state}: measuring")
                status = service.status()["operators"]["counts"]
                resident = workers_bytes(service) - empty
                moved, during = self._rescale(service, query, state)
        seconds = tuple(batch.committed - batch.started for batch in batches)
        return HybridResult(
            state,
            seconds,
            statistics.median(b.rows / t for b, t in zip(batches, seconds, strict=True)),
            resident / 1e6,
            status["bytes"] / 1e6,
            status["hit_rate"],
            moved,
            max((batch.committed - batch.started for batch in during), default=0.0),
        )

    def _run(self, query: LoadedQuery, batches: int, what: str) -> list[Batch]:
        rows = self.settings.rows
        return query.burst(batches * rows, rows, lambda done: self.say(f"{what}, {done:.0%}"))

    def _rescale(
        self, service: StateService, query: LoadedQuery, state: str
    ) -> tuple[float, list[Batch]]:
        move = service.rescale(self.settings.workers + 1)
        batches: list[Batch] = []
        while not move.wait(0.01):
            batches += self._run(query, 1, f"{state}: 2 -> 3 workers, {move.progress:.0%}")
        return move.report().seconds, batches

    def _frame(self, service: StateService, schedule: Path) -> DataFrame:
        """Most rows are of few keys, once every key is there."""
        s = self.settings
        df = load_frame(self.spark, schedule, s.keys, s.payload_bytes)
        hot = max(1, round(s.hot_keys * s.keys))
        is_hot = F.pmod(F.xxhash64("k", F.lit(1)), F.lit(1000)) < round(1000 * s.hot_share)
        drawn = F.when(F.col("payload").isNull() & is_hot, F.col("k") % hot).otherwise(F.col("k"))
        return counts(service, df.withColumn("k", drawn), s.payload_bytes)
