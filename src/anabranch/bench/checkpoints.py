"""`anabranch bench checkpoints`: what each checkpoint mode costs and gives, on the same load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.bench.rescale_runs import KEY_BYTES, Case, Run, Say, ServiceRuns, Timing
from anabranch.model.stats import ROWS_DEFERRED

MOVE = "pause"
"""Batches wait for state that it moves, unless checkpoints are unaligned."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of a run."""

    state_gb: float = 0.25
    payload_bytes: int = 1024
    rate: float | None = None
    """Rows a second; None: a third of what the first mode can take."""
    seconds: float = 8.0
    repeat: int = 1

    @property
    def keys(self) -> int:
        """Keys of the state."""
        return int(self.state_gb * 1e9 / (self.payload_bytes + KEY_BYTES))


@dataclass(frozen=True, slots=True)
class ModeResult:
    """One mode in one run."""

    mode: str
    repeat: int
    capacity: float
    """Rows a second of full batches back to back."""
    rate: float
    p50: float | None
    p99: float | None
    """Latency in seconds under steady load."""
    written_a_second: float
    """Bytes that workers write."""
    move_peak: float | None
    move_seconds: float | None
    rows_deferred: int
    restart: float
    """Seconds from the start of a service to its first batch."""
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def __str__(self) -> str:
        def seconds(value: float | None) -> str:
            return "-" if value is None else f"{value:.2f}"

        return (
            f"{self.mode:<12} capacity {self.capacity:>7,.0f} rows/s   latency p50 "
            f"{seconds(self.p50)} p99 {seconds(self.p99)} s   written "
            f"{self.written_a_second / 1e6:6.1f} MB/s   peak while {MOVE} moves "
            f"{seconds(self.move_peak)} s ({self.rows_deferred:,} rows waited in checkpoints)   "
            f"restart {self.restart:.2f} s{'   ' + self.error if self.error else ''}"
        )


@dataclass
class CheckpointsBench:
    """Every mode starts from a state that it has written itself."""

    spark: SparkSession
    folder: Path
    settings: Settings
    say: Say

    def run(self, modes: Sequence[str]) -> Iterator[ModeResult]:
        """The results, as they come."""
        rate = self.settings.rate
        for repeat in range(self.settings.repeat):
            for mode in modes:
                result = self._measure(mode, repeat, rate)
                rate = rate or result.rate
                yield result

    def _measure(self, mode: str, repeat: int, rate: float | None) -> ModeResult:
        settings = self.settings

        def say(text: str) -> None:
            self.say(f"{mode}: {text}")

        timing = Timing(min(4.0, settings.seconds), settings.seconds)
        folder = self.folder / f"{mode}-{repeat}"
        runs = ServiceRuns(self.spark, folder, timing, 2, 3, say, settings={"checkpoint": mode})
        prepared, capacity = runs.prepare(settings.keys, settings.payload_bytes)
        rate = rate or capacity / 3
        run = Run("checkpoints", Case.parse(MOVE), repeat, rate, prepared.keys, 1024)
        runs.run(run, prepared)
        say("restarting")
        restart = runs.restart(prepared)
        before, during = run.before(), run.during()
        return ModeResult(
            mode,
            repeat,
            capacity,
            rate,
            before.p50 if before else None,
            before.p99 if before else None,
            run.written_a_second,
            during.peak if during else None,
            run.report.get("seconds"),
            sum(batch.get(ROWS_DEFERRED, 0) for batch in run.report.get("batches", ())),
            restart,
            run.error,
        )
