"""`anabranch bench throughput`: speed, memory and restart beside Spark's own operators."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch import agg
from anabranch.errors import AnabranchError
from anabranch.service import StateService
from anabranch_bench.bench.keycount import COUNTER_OUTPUT, Counter, new_keys, uniform_keys
from anabranch_bench.bench.measure import BatchDurations, run_batches, seconds_to_first_commit

PARTS = ("aggregate", "rows", "small", "memory", "restart")
WARM_UP = 2
START_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class ThroughputSettings:
    """Sizes of a run."""

    rows: int = 500_000
    keys: int = 500_000
    batches: int = 5
    native_rows: int = 500_000
    """Rows a batch for Spark's Python operator, which takes minutes for large ones."""
    small_rows: int = 1_000
    small_batches: int = 30
    large_keys: int = 5_000_000
    workers: int = 2
    restarts: int = 3


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure on both sides."""

    part: str
    unit: str
    ours: tuple[float, ...]
    spark: tuple[float, ...]
    target: str
    passed: bool
    ratio: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "part": self.part,
            "unit": self.unit,
            "anabranch": _summary(self.ours),
            "spark": _summary(self.spark),
            "ratio": self.ratio,
            "target": self.target,
            "passed": self.passed,
            "note": self.note,
        }


def _summary(values: Sequence[float]) -> dict[str, Any] | None:
    if not values:
        return None
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "n": len(values),
    }


Say = Callable[[str], None]


@dataclass
class ThroughputBench:
    """Runs the parts one after the other in one Spark session."""

    spark: SparkSession
    folder: Path
    settings: ThroughputSettings
    say: Say
    _runs: int = field(default=0)

    def run(self, parts: Sequence[str]) -> Iterator[Comparison]:
        """The comparisons, as they come."""
        for part in parts:
            yield getattr(self, f"measure_{part}")()

    def measure_aggregate(self) -> Comparison:
        """Columnar aggregate against Spark's JVM operator."""
        s = self.settings
        ours = self._ours("aggregate", uniform_keys(self.spark, s.rows, s.keys), _totals)
        native = uniform_keys(self.spark, s.rows, s.keys).groupBy("k").count()
        spark = self._native("aggregate", native)
        return _rates("aggregate", ours, spark, 3.0, "at least 3 times Spark's JVM count")

    def measure_rows(self) -> Comparison:
        """Row API against Spark's Python operator: the same class on both."""
        s = self.settings
        ours = self._ours("rows", uniform_keys(self.spark, s.rows, s.keys), _counter)
        df = uniform_keys(self.spark, s.native_rows, s.keys)
        native = df.groupBy("k").transformWithState(Counter(), COUNTER_OUTPUT, "Update", "None")
        spark = self._native("rows", native)
        note = f"Spark's side with {s.native_rows} rows a batch" * (s.native_rows != s.rows)
        return _rates(
            "rows", ours, spark, 25.0, "at least 25 times Spark's Python transformWithState", note
        )

    def measure_small(self) -> Comparison:
        """Duration of small batches against Spark's JVM operator."""
        s = self.settings
        count = s.small_batches
        ours = self._ours("small", uniform_keys(self.spark, s.small_rows, s.keys), _totals, count)
        native = uniform_keys(self.spark, s.small_rows, s.keys).groupBy("k").count()
        spark = self._native("small", native, count)
        ratio = ours.median_seconds / spark.median_seconds
        return Comparison(
            "small",
            "seconds a batch",
            ours.seconds,
            spark.seconds,
            f"{s.small_rows} rows: no longer than Spark's JVM count",
            ratio <= 1.0,
            ratio,
        )

    def measure_memory(self) -> Comparison:
        """Resident memory of the workers per key of columnar state."""
        with self._filled("memory") as (service, _):
            pids = [worker["pid"] for worker in service.status()["workers"].values()]
            full = sum(map(resident_bytes, pids))
            rows = service.status()["operators"]["totals"]["rows"]
        empty = self._empty_workers_bytes()
        per_key = (full - empty) / rows
        return Comparison(
            "memory",
            "bytes a key",
            (per_key,),
            (),
            f"at most 120 bytes a key at {rows} keys",
            per_key <= 120,
            note="growth of the workers' resident memory",
        )

    def measure_restart(self) -> Comparison:
        """Time to the first committed batch with a large state."""
        s = self.settings
        with self._filled("restart") as (_, checkpoint):
            pass
        state = self.folder / "restart-state"
        ours = [self._restart_ours(state, checkpoint) for _ in range(s.restarts)]
        native_checkpoint = self.folder / "restart-native"
        native = new_keys(self.spark, s.rows, s.large_keys).groupBy("k").count()
        self._fill(native, native_checkpoint, "Spark")
        spark = [
            seconds_to_first_commit(
                lambda: new_keys(self.spark, s.rows, s.large_keys).groupBy("k").count(),
                native_checkpoint,
            )
            for _ in range(s.restarts)
        ]
        ratio = statistics.median(ours) / statistics.median(spark)
        return Comparison(
            "restart",
            "seconds to the first commit",
            tuple(ours),
            tuple(spark),
            f"{s.large_keys} keys: no longer than Spark's own restart",
            ratio <= 1.0,
            ratio,
        )

    # -- helpers --

    def _ours(
        self,
        part: str,
        df: DataFrame,
        operator: Callable[[StateService, DataFrame], DataFrame],
        measured: int | None = None,
    ) -> BatchDurations:
        state = self.folder / f"{part}-state"
        with StateService(self.spark, str(state), workers=self.settings.workers) as service:
            return run_batches(
                operator(service, df),
                self.folder / f"{part}-ours",
                warm_up=WARM_UP,
                measured=measured or self.settings.batches,
                progress=self._progress(part, "Anabranch"),
            )

    def _native(self, part: str, df: DataFrame, measured: int | None = None) -> BatchDurations:
        return run_batches(
            df,
            self.folder / f"{part}-native",
            warm_up=WARM_UP,
            measured=measured or self.settings.batches,
            progress=self._progress(part, "Spark"),
        )

    def _progress(self, part: str, side: str) -> Callable[[int, int], None]:
        return lambda done, total: self.say(f"{part}: {side}, batch {done} of {total}")

    @contextmanager
    def _filled(self, part: str) -> Iterator[tuple[StateService, Path]]:
        s = self.settings
        checkpoint = self.folder / f"{part}-ours"
        state = str(self.folder / f"{part}-state")
        with StateService(self.spark, state, workers=s.workers) as service:
            df = _totals(service, new_keys(self.spark, s.rows, s.large_keys))
            self._fill(df, checkpoint, "Anabranch")
            yield service, checkpoint

    def _fill(self, df: DataFrame, checkpoint: Path, side: str) -> None:
        batches = -(-self.settings.large_keys // self.settings.rows)
        progress = self._progress("filling", side)
        run_batches(df, checkpoint, warm_up=0, measured=batches, progress=progress)

    def _restart_ours(self, state: Path, checkpoint: Path) -> float:
        s = self.settings
        services: list[StateService] = []

        def start() -> DataFrame:
            services.append(StateService(self.spark, str(state), workers=s.workers))
            return _totals(services[0], new_keys(self.spark, s.rows, s.large_keys))

        try:
            return seconds_to_first_commit(start, checkpoint)
        finally:
            for service in services:
                service.stop()

    def _empty_workers_bytes(self) -> int:
        """The same workers after a batch of few keys: what libraries and buffers take."""
        s = self.settings
        state = str(self.folder / "empty-state")
        with StateService(self.spark, state, workers=s.workers) as service:
            df = _totals(service, new_keys(self.spark, 1_000, 1_000))
            run_batches(df, self.folder / "empty-ours", warm_up=0, measured=2)
            pids = [worker["pid"] for worker in service.status()["workers"].values()]
            return sum(map(resident_bytes, pids))


def _totals(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").aggregate(n=agg.count(), name="totals")


def _counter(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").transformWithState(
        Counter(), COUNTER_OUTPUT, "Update", "None", name="counts"
    )


def _rates(
    part: str,
    ours: BatchDurations,
    spark: BatchDurations,
    factor: float,
    target: str,
    note: str = "",
) -> Comparison:
    ratio = ours.median_rate / spark.median_rate
    rates = ours.rows_per_second, spark.rows_per_second
    return Comparison(part, "rows a second", *rates, target, ratio >= factor, ratio, note)


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = next(line for line in fields if line.startswith("VmRSS:")).split()[1]
    return int(kilobytes) * 1024


def workers_bytes(service: StateService) -> int:
    """Memory of all workers of a service; of one that has just begun, when they have started."""
    limit = time.monotonic() + START_SECONDS_MAX
    while True:
        pids = [worker["pid"] for worker in service.status()["workers"].values()]
        if all(pids):
            return sum(map(resident_bytes, pids))
        if time.monotonic() > limit:
            raise AnabranchError(f"Workers have not started after {START_SECONDS_MAX:.0f} s.")
        time.sleep(0.05)
