"""Running a streaming query for a number of batches, and what its batches took."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame

from anabranch.errors import AnabranchError

POLL_SECONDS = 0.02


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


def run_batches(
    df: DataFrame,
    checkpoint: Path,
    *,
    warm_up: int,
    measured: int,
    output_mode: str = "update",
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BatchDurations:
    """Run until enough batches have committed; the first ones only warm up."""
    query = (
        df.writeStream.format("noop")
        .outputMode(output_mode)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    total = warm_up + measured
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
    commits = checkpoint / "commits"
    before = _last_commit(commits)
    started = time.monotonic()
    df = start()
    query = (
        df.writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        while _last_commit(commits) <= before:
            if not query.isActive:
                raise AnabranchError(f"The restarted query failed: {query.exception()}")
            time.sleep(POLL_SECONDS)
        return time.monotonic() - started
    finally:
        query.stop()


def _last_commit(commits: Path) -> int:
    names = [path.name for path in commits.glob("*") if path.name.isdigit()]
    return max(map(int, names), default=-1)
