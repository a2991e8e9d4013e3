"""Spark's own way to another number of state partitions: stop, repartition, start again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import TimeWindow
from anabranch.loadtest.loaded_query import (
    LOOK_SECONDS,
    Folders,
    LoadedQuery,
    Prepared,
    Say,
    warm_up,
    watch_until,
)
from anabranch.loadtest.schedule import OpenLoop, load_frame
from anabranch_bench.bench.rescale_runs import Run, Timing, brief, fill, settle

RESTART_SECONDS_MAX = 1800.0
CATCH_UP_SECONDS_MAX = 600.0
CALM = 1.5
"""Times the peak before the move."""


def is_available(spark: SparkSession) -> bool:
    """Spark can repartition a checkpoint since 4.2."""
    return hasattr(spark, "_streamingCheckpointManager")


@dataclass
class NativeRuns:
    """Runs on Spark's JVM aggregate with RocksDB, its state partitions in place of workers."""

    spark: SparkSession
    folder: Path
    timing: Timing
    partitions: int
    target: int
    say: Say

    def __post_init__(self) -> None:
        self._folders = Folders(self.folder)

    def prepare(self, keys: int, payload_bytes: int) -> tuple[Prepared, float]:
        """Load a state once; the capacity that it was found to have, in rows a second."""
        folder = self._folders.fresh("native-prepared")
        # Spark takes it for the first batch only; later ones follow the checkpoint.
        self.spark.conf.set("spark.sql.shuffle.partitions", str(self.partitions))
        query = self._query(folder, keys, payload_bytes, 0)
        with query:
            found = fill(query, keys, payload_bytes, self.say)
            found = settle(query, found, self.say)
            query.drain()
        return Prepared(folder, keys, payload_bytes, query.next_row), found

    def run(self, run: Run, prepared: Prepared) -> None:
        """Fill in a run."""
        self.say("copying the prepared checkpoint")
        try:
            with self._folders.copy("native-run", prepared) as folder:
                keys, payload_bytes = prepared.keys, prepared.payload_bytes
                with self._query(folder, keys, payload_bytes, prepared.next_row) as query:
                    self._measure(run, query, folder)
        except Exception as error:  # the others are still to be run
            run.error = brief(error)

    def _measure(self, run: Run, query: LoadedQuery, folder: Path) -> None:
        warm_up(query, run.rate, self.say)
        load = query.open(run.rate)
        begin = self.timing.settle + self.timing.steady
        try:
            watch_until(query, load, begin, self.say, "steady load")
            run.steady = TimeWindow(self.timing.settle, time.time() - load.started)
            run.move = self._repartition(run, query, load, folder)
            self._catch_up(run, query, load)
            end = time.time() - load.started + self.timing.steady
            watch_until(query, load, end, self.say, "steady load afterwards")
            query.drain()
        finally:
            query.collect()
            run.timeline = query.timeline(load)

    def _repartition(
        self, run: Run, query: LoadedQuery, load: OpenLoop, folder: Path
    ) -> TimeWindow:
        """The batch that runs is finished first: a repartition needs it committed."""
        start = time.time()
        query.drain()
        query.stop()
        stopped = time.time()
        self.say(f"repartitioning {self.partitions} -> {self.target}")
        manager = self.spark._streamingCheckpointManager
        manager.repartition(str(folder / "checkpoint"), self.target)
        repartitioned = time.time()
        committed = query.next_row
        query.start(load)
        while query.next_row == committed:
            query.watch(0.1)
            self.say("waiting for the first batch after the restart")
            if time.time() - repartitioned > RESTART_SECONDS_MAX:
                raise AnabranchError("No batch was committed for half an hour after the restart.")
        end = time.time()
        run.report = {
            "strategy": "repartition",
            "outcome": "done",
            "seconds": end - start,
            "counters": {
                "stop_seconds": stopped - start,
                "repartition_seconds": repartitioned - stopped,
                "restart_seconds": end - repartitioned,
            },
        }
        return TimeWindow(start - load.started, end - load.started)

    def _catch_up(self, run: Run, query: LoadedQuery, load: OpenLoop) -> None:
        """Until rows are as quick as before: there is no steady state earlier."""
        query.collect()
        calm = query.timeline(load).before(run.steady).peak if run.steady else 0.0
        start = time.time()
        while time.time() - start < CATCH_UP_SECONDS_MAX:
            slowest = query.timeline(load).points()[-1].slowest
            if slowest <= CALM * calm:
                break
            self.say(f"catching up, rows are {slowest:.0f} s late")
            query.watch(LOOK_SECONDS)
        run.report["counters"]["catch_up_seconds"] = time.time() - start

    def _query(self, folder: Path, keys: int, payload_bytes: int, next_row: int) -> LoadedQuery:
        def make(schedule: Path) -> DataFrame:
            df = load_frame(self.spark, schedule, keys, payload_bytes)
            aggregates = [F.count(F.lit(1)).alias("n")]
            if payload_bytes:
                aggregates.append(F.first("payload", ignorenulls=True).alias("payload"))
            return df.groupBy("k").agg(*aggregates)

        return LoadedQuery(make, folder, next_row, trigger_seconds=self.timing.trigger)
