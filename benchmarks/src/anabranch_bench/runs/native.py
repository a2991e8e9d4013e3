"""Spark's own way to another number of state partitions: stop, repartition, start again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import TimeWindow
from anabranch.loadtest.loaded_query import LoadedQuery
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.results.cases import Case
from anabranch_bench.results.run_result import MeasuredMove
from anabranch_bench.runs.sides import Moving, Side

RESTART_SECONDS_MAX = 1800.0
CATCH_UP_SECONDS_MAX = 600.0
CALM = 1.5
"""Times the peak before the move."""

Frame = Callable[[Path], DataFrame]
"""The query, following a schedule file."""


def is_available(spark: SparkSession) -> bool:
    """Spark can repartition a checkpoint since 4.2."""
    return hasattr(spark, "_streamingCheckpointManager")


class NativeSide(Side):
    """Spark's JVM operator with RocksDB, its state partitions in place of workers."""

    def __init__(
        self, spark: SparkSession, folder: Path, frame: Frame, settle: float, partitions: int
    ) -> None:
        """`settle` seconds of a load do not count. A new query has so many state partitions; one
        that goes on follows its checkpoint."""
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        self._spark = spark
        self._folder = folder
        self._frame = frame
        self._settle = settle

    def make(self, schedule: Path) -> DataFrame:
        """As it was built."""
        return self._frame(schedule)

    def begin_move(self, query: LoadedQuery, load: OpenLoop, case: Case, workers: int) -> Moving:
        """Repartition at once; what follows is catching up."""
        manager = self._spark._streamingCheckpointManager
        checkpoint = str(self._folder / "checkpoint")
        return NativeMove(
            query, load, self._settle, lambda: manager.repartition(checkpoint, workers)
        )


class NativeMove:
    """A restart on a repartitioned checkpoint; over when rows are as quick as before."""

    def __init__(
        self, query: LoadedQuery, load: OpenLoop, settle: float, repartition: Callable[[], object]
    ) -> None:
        self._query, self._load = query, load
        self._start = time.time()
        query.drain()  # a repartition needs the batch that runs committed
        query.stop()
        stopped = time.time()
        repartition()
        repartitioned = time.time()
        self._restart(repartitioned)
        self._end = time.time()
        window = TimeWindow(settle, self._start - load.started)
        self._calm = query.timeline(load).before(window).peak
        self._counters = {
            "stop_seconds": stopped - self._start,
            "repartition_seconds": repartitioned - stopped,
            "restart_seconds": self._end - repartitioned,
        }

    def _restart(self, repartitioned: float) -> None:
        """Until the first batch is committed."""
        committed = self._query.next_row
        self._query.start(self._load)
        while self._query.next_row == committed:
            self._query.watch(0.1)
            if time.time() - repartitioned > RESTART_SECONDS_MAX:
                raise AnabranchError("No batch was committed for half an hour after the restart.")

    def wait(self, seconds: float) -> bool:
        """Until rows are as quick as before: there is no steady state earlier."""
        if "catch_up_seconds" in self._counters:
            return True
        passed = time.time() - self._end
        slowest = self._query.timeline(self._load).points()[-1].slowest
        if slowest <= CALM * self._calm or passed > CATCH_UP_SECONDS_MAX:
            self._counters["catch_up_seconds"] = passed
            return True
        self._query.watch(seconds)
        return False

    @property
    def progress(self) -> float | None:
        """Nobody knows how long it takes to catch up."""
        return None

    def measured(self, load: OpenLoop) -> MeasuredMove:
        """From the stop to the first commit."""
        window = TimeWindow(self._start - load.started, self._end - load.started)
        report = {
            "strategy": "repartition",
            "outcome": "done",
            "seconds": window.seconds,
            "counters": self._counters,
        }
        return MeasuredMove(window, report)
