"""`anabranch bench recovery`: the first commit after a crash of everything."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.bench.load import Folders, LoadedQuery
from anabranch.bench.openloop import Burst, load_frame
from anabranch.bench.rescale_runs import KEY_BYTES, counts
from anabranch.errors import AnabranchError
from anabranch.service import StateService

SIDES = ("hybrid", "local", "spark")
"""Ours with what is needed first; ours with all of it first (Flink's way); Spark's own operator."""

FLATNESS_MAX = 1.3
FILL_BYTES_A_BATCH = 64 << 20
LOGGED_BATCHES = 10
POLL_SECONDS = 0.01
WHOLE_SECONDS_MAX = 1800.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of a run."""

    state_gb: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    sides: tuple[str, ...] = SIDES
    rows: int = 1_000
    """In the first batch, of keys anywhere in the state."""
    payload_bytes: int = 1_000
    repeat: int = 3
    workers: int = 2


@dataclass
class Recovery:
    """Restarts of one side with a state of one size."""

    side: str
    state_gb: float
    seconds: list[float] = field(default_factory=list)
    """From nothing (but a session) to the first commit."""
    load_seconds: list[float] = field(default_factory=list)
    """What of it the slowest transaction spent on reading state."""
    whole_seconds: list[float] = field(default_factory=list)
    """From nothing until all state is in memory."""

    @property
    def median(self) -> float:
        """Of the first commits."""
        return statistics.median(self.seconds)

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "side": self.side,
            "state_gb": self.state_gb,
            "first_commit_seconds": self.seconds,
            "median_seconds": self.median,
            "load_seconds": self.load_seconds,
            "all_in_memory_seconds": self.whole_seconds,
        }

    def line(self) -> str:
        """For people."""
        spread = f"[{min(self.seconds):.2f} to {max(self.seconds):.2f}]"
        text = f"{self.state_gb:>5g} GB  {self.side:<7} first commit {self.median:.2f} s {spread}"
        if self.load_seconds:
            text += f", {statistics.median(self.load_seconds):.2f} s of it for state"
        if self.whole_seconds:
            text += f", all in memory after {statistics.median(self.whole_seconds):.1f} s"
        return text


def flatness(found: Sequence[Recovery]) -> float | None:
    """First commit with the largest state over that with the smallest, of the hybrid runs."""
    ours = sorted((r for r in found if r.side == "hybrid"), key=lambda r: r.state_gb)
    return ours[-1].median / ours[0].median if len(ours) > 1 else None


@dataclass
class RecoveryBench:
    """Fills a state, then ends everything and starts it again, some times."""

    spark: SparkSession
    folder: Path
    settings: Settings
    say: Say

    def __post_init__(self) -> None:
        self._folders = Folders(self.folder)
        self._is_warm = False

    def run(self) -> Iterator[Recovery]:
        """The results, as they come."""
        for size in self.settings.state_gb:
            keys = max(1, round(size * 1e9 / (self.settings.payload_bytes + KEY_BYTES)))
            ours = [side for side in self.settings.sides if side != "spark"]
            if ours:
                yield from self._ours(size, keys, ours)
            if "spark" in self.settings.sides:
                yield self._native(size, keys)

    # -- ours --

    def _ours(self, size: float, keys: int, sides: list[str]) -> Iterator[Recovery]:
        folder = self._folders.fresh("recovery")
        with self._service(folder, "hybrid") as service:
            query = LoadedQuery(self._maker(service, keys), folder, 0)
            with query:
                self._fill(query, keys, f"{size:g} GB")
            row = query.next_row
        if not self._is_warm:  # the first restart in a JVM compiles what later ones run
            row = self._restart_ours(Recovery("hybrid", size), folder, keys, row)
            self._is_warm = True
        for side in sides:
            found = Recovery(side, size)
            for number in range(self.settings.repeat):
                self.say(f"{size:g} GB, {side}: restart {number + 1}")
                row = self._restart_ours(found, folder, keys, row)
            yield found
        shutil.rmtree(folder, ignore_errors=True)

    def _restart_ours(self, found: Recovery, folder: Path, keys: int, row: int) -> int:
        started = time.time()
        service = self._service(folder, found.side)
        try:
            query = LoadedQuery(self._maker(service, keys), folder, row)
            self._first_commit(found, query, started)
            batches = service.status()["operators"]["counts"]["batches"]
            found.load_seconds.append(batches[0]["stats"].get("load_ms", 0) / 1000)
            with suppress(AnabranchError):
                self._wait_until_whole(found, service, started)
            query.stop()
            for worker in service.status()["workers"].values():  # the end of everything
                os.kill(worker["pid"], signal.SIGKILL)
            return query.next_row
        finally:
            service.stop()

    def _wait_until_whole(self, found: Recovery, service: StateService, started: float) -> None:
        while service.status()["operators"]["counts"]["in_memory"] < 1:
            self.say("the rest of the state comes in the background")
            time.sleep(0.1)
            if time.time() - started > WHOLE_SECONDS_MAX:
                raise AnabranchError("The state was not in memory after half an hour.")
        found.whole_seconds.append(time.time() - started)

    def _service(self, folder: Path, state: str) -> StateService:
        location, workers = str(folder / "state"), self.settings.workers
        return StateService(self.spark, location, workers=workers, state=state)

    def _maker(self, service: StateService, keys: int) -> Callable[[Path], DataFrame]:
        def make(schedule: Path) -> DataFrame:
            df = load_frame(self.spark, schedule, keys, self.settings.payload_bytes)
            return counts(service, df, self.settings.payload_bytes)

        return make

    # -- Spark's own operator --

    def _native(self, size: float, keys: int) -> Recovery:
        folder = self._folders.fresh("recovery-native")

        def make(schedule: Path) -> DataFrame:
            df = load_frame(self.spark, schedule, keys, self.settings.payload_bytes)
            payload = F.first("payload", ignorenulls=True).alias("payload")
            return df.groupBy("k").agg(F.count(F.lit(1)).alias("n"), payload)

        query = LoadedQuery(make, folder, 0)
        with query:
            self._fill(query, keys, f"{size:g} GB, Spark")
        found = Recovery("spark", size)
        for number in range(self.settings.repeat):
            self.say(f"{size:g} GB, Spark: restart {number + 1}")
            query = LoadedQuery(make, folder, query.next_row)
            self._first_commit(found, query, time.time())
            query.stop()
        shutil.rmtree(folder, ignore_errors=True)
        return found

    # -- both --

    def _fill(self, query: LoadedQuery, keys: int, what: str) -> None:
        """Every key once, then small batches: snapshots and changelogs, as in daily use."""
        rows = max(1000, FILL_BYTES_A_BATCH // (self.settings.payload_bytes + KEY_BYTES))
        query.burst(keys, rows, lambda done: self.say(f"{what}: loading the state, {done:.0%}"))
        small = self.settings.rows
        query.burst(LOGGED_BATCHES * small, small, lambda _: self.say(f"{what}: small batches"))
        query.drain()

    def _first_commit(self, found: Recovery, query: LoadedQuery, started: float) -> None:
        rows, before = self.settings.rows, query.next_row
        query.start(Burst(before + rows, rows))
        while query.next_row == before:
            query.watch(POLL_SECONDS)
        found.seconds.append(query.batches[-1].committed - started)
