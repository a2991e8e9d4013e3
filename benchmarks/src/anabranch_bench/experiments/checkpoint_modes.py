"""`anabranch bench checkpoints`: what each checkpoint mode costs and gives, on the same load."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.loadtest.loaded_query import Say
from anabranch.model.stats import ROWS_DEFERRED
from anabranch_bench.results.cases import Case
from anabranch_bench.results.loads import RunLoad, keys_of
from anabranch_bench.results.run_result import RunResult
from anabranch_bench.runs.key_count_runs import KeyCountRuns, Timing

MOVE = "order-unaware"
"""It lets batches begin while the state that they need is on its way: aligned ones wait for it,
unaligned ones leave their rows in the checkpoint. (`pause` holds batches back in every mode.)"""

MOVE_SECONDS = 3.0

UNALIGNED = "unaligned"
"""The only mode that does not wait; all others are aligned."""


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """Sizes of a run."""

    state_gb: float = 0.5
    payload_bytes: int = 1024
    rate: float | None = None
    """Rows a second; None: a third of what the first mode can take."""
    seconds: float = 8.0
    repeat: int = 1

    @property
    def keys(self) -> int:
        """Keys of the state."""
        return keys_of(self.state_gb, self.payload_bytes)

    @property
    def move(self) -> Case:
        """From 2 to 3 workers, a third of the state, over several batches unless they wait for it.

        State that a batch waits for is not held back: the limit is no disadvantage of any mode.
        """
        moved = self.state_gb * 1e9 / 3
        return Case(MOVE, MOVE, {"bytes_per_second": max(1, int(moved / MOVE_SECONDS))})


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
    """Latency in seconds under steady load, to the commit of a row's batch."""
    written_a_second: float
    """Bytes that workers write."""
    move_peak: float | None
    move_seconds: float | None
    rows_deferred: int
    """Rows that waited in checkpoints during the move: their outputs came with a later batch."""
    batches_deferred: int
    """Batches that had such rows."""
    restart: float
    """Seconds from the start of a service to its first batch."""
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "aligned": self.mode != UNALIGNED}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> ModeResult:
        """What `to_json` was told of."""
        return cls(**{field.name: told[field.name] for field in fields(cls)})

    def __str__(self) -> str:
        def seconds(value: float | None) -> str:
            return "-" if value is None else f"{value:.2f}"

        waited = "rows wait for state"
        if self.mode == UNALIGNED:
            waited = (
                f"{self.rows_deferred:,} rows of {self.batches_deferred} batches waited in "
                "checkpoints"
            )
        return (
            f"{self.mode:<12} capacity {self.capacity:>7,.0f} rows/s   latency p50 "
            f"{seconds(self.p50)} p99 {seconds(self.p99)} s   written "
            f"{self.written_a_second / 1e6:6.1f} MB/s   peak while {MOVE} moves "
            f"{seconds(self.move_peak)} s ({waited})   "
            f"restart {self.restart:.2f} s{'   ' + self.error if self.error else ''}"
        )


def doubts(results: Sequence[ModeResult]) -> list[str]:
    """Why the results do not show what the modes are for; nothing if they do."""
    found = [f"{result.mode}: {result.error}" for result in results if result.error]
    unaligned = [r for r in results if r.mode == UNALIGNED and not r.error]
    if unaligned and not any(result.rows_deferred for result in unaligned):
        found.append(
            "unaligned: no row waited in a checkpoint, so its peak says nothing. Move more state "
            "(--state-gb)."
        )
    found += [
        f"{result.mode}: {result.rows_deferred:,} rows waited in checkpoints, but it is aligned"
        for result in results
        if result.mode != UNALIGNED and result.rows_deferred
    ]
    return found


def peak_ratio(results: Sequence[ModeResult]) -> float | None:
    """Peak during the move, unaligned over aligned (medians); None: one of them is missing."""

    def peak(is_aligned: bool) -> float | None:
        of_kind = [r for r in results if (r.mode != UNALIGNED) == is_aligned and not r.error]
        peaks = [r.move_peak for r in of_kind if r.move_peak is not None]
        return statistics.median(peaks) if peaks else None

    unaligned, aligned = peak(is_aligned=False), peak(is_aligned=True)
    return unaligned / aligned if unaligned and aligned else None


@dataclass
class CheckpointsBench:
    """Every mode starts from a state that it has written itself."""

    spark: SparkSession
    folder: Path
    settings: CheckpointSettings
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
        runs = KeyCountRuns(self.spark, folder, timing, 2, 3, say, options={"checkpoint": mode})
        prepared, capacity = runs.prepare(settings.keys, settings.payload_bytes)
        rate = rate or capacity / 3
        load = RunLoad.key_count(rate, prepared.keys, settings.payload_bytes)
        run = RunResult(load, settings.move, repeat, "checkpoints")
        runs.run(run, prepared)
        say("restarting")
        restart = runs.restart(prepared)
        before, during = run.phase("before"), run.phase("during")
        deferred = [batch.get(ROWS_DEFERRED, 0) for batch in run.report.get("batches", ())]
        return ModeResult(
            mode,
            repeat,
            capacity,
            rate,
            before.p50 if before.rows else None,
            before.p99 if before.rows else None,
            run.written_a_second,
            during.peak if during.rows else None,
            run.report.get("seconds"),
            sum(deferred),
            sum(map(bool, deferred)),
            restart,
            run.error,
        )
