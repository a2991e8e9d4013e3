"""Queries that run batch after batch as fast as they can, and what their batches took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import AnabranchError
from anabranch.loadtest.loaded_query import Say
from anabranch.service import StateService

POLL_SECONDS = 0.02

Operator = Callable[[StateService, DataFrame], DataFrame]
TellProgress = Callable[[int, int], None]
"""Told how many batches are done, of how many."""


@dataclass(frozen=True, slots=True)
class BatchDurations:
    """Durations of the warm batches of one query."""

    seconds: tuple[float, ...]
    rows: tuple[int, ...]

    @property
    def median_seconds(self) -> float:
        """Median batch duration."""
        return statistics.median(self.seconds)

    @property
    def rows_per_second(self) -> tuple[float, ...]:
        """Rates of the single batches."""
        return tuple(r / s for r, s in zip(self.rows, self.seconds, strict=True))

    @property
    def median_rate(self) -> float:
        """Median rows per second."""
        return statistics.median(self.rows_per_second)


@dataclass
class BatchRuns:
    """Runs on state services and on Spark alone, each with a folder of its own."""

    spark: SparkSession
    folder: Path
    say: Say
    workers: int
    warm_up: int
    """Batches that do not count."""

    def service(self, name: str, **options: Any) -> StateService:
        """The service of a run."""
        state = str(self.folder / f"{name}-state")
        return StateService(self.spark, state, workers=self.workers, **options)

    def on_service(
        self, name: str, df: DataFrame, operator: Operator, measured: int, **options: Any
    ) -> BatchDurations:
        """Of a query on a service with these options."""
        with self.service(name, **options) as service:
            return self.measure(name, operator(service, df), measured)

    def measure(self, name: str, df: DataFrame, measured: int) -> BatchDurations:
        """Of any query."""
        return self._run(name, df, self.warm_up, measured, self._progress(name))

    def fill(
        self, name: str, df: DataFrame, batches: int, progress: TellProgress | None = None
    ) -> Path:
        """Load a state; the query's checkpoint."""
        self._run(name, df, 0, batches, progress or self._progress(f"{name}, filling"))
        return self.folder / name

    def _progress(self, what: str) -> TellProgress:
        return lambda done, total: self.say(f"{what}: batch {done} of {total}")

    def _run(
        self, name: str, df: DataFrame, warm_up: int, measured: int, progress: TellProgress
    ) -> BatchDurations:
        """Until enough batches have committed; the first ones only warm up."""
        query, total = _start(df, self.folder / name), warm_up + measured
        done: dict[int, tuple[float, int]] = {}
        try:
            while len(done) < total:
                if not query.isActive:
                    raise AnabranchError(f"The measured query failed: {query.exception()}")
                for report in query.recentProgress:
                    batch = report["batchId"]
                    if batch not in done and report["numInputRows"]:
                        seconds = report["durationMs"]["triggerExecution"] / 1000
                        done[batch] = (seconds, report["numInputRows"])
                        progress(len(done), total)
                time.sleep(POLL_SECONDS)
        finally:
            query.stop()
        warm = [done[batch] for batch in sorted(done)][warm_up:total]
        return BatchDurations(tuple(s for s, _ in warm), tuple(r for _, r in warm))


def seconds_to_first_commit(start: Callable[[], DataFrame], checkpoint: Path) -> float:
    """From nothing (but a session) to the first batch that a restarted query commits."""
    before = last_batch(checkpoint, "commits")
    started = time.monotonic()
    query = _start(start(), checkpoint)
    try:
        while last_batch(checkpoint, "commits") <= before:
            if not query.isActive:
                raise AnabranchError(f"The restarted query failed: {query.exception()}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - started
    finally:
        query.stop()


def last_batch(checkpoint: Path, log: str) -> int:
    """The newest entry in one of the logs of Spark's checkpoint; -1: none."""
    names = (path.name for path in (checkpoint / log).glob("*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _start(df: DataFrame, checkpoint: Path) -> Any:
    writer = df.writeStream.format("noop").outputMode("update")
    return writer.option("checkpointLocation", str(checkpoint)).start()
