"""A Spark driver of its own, to be killed: reads files, runs stateful operators, writes Parquet.

usage: recovery_driver.py FOLDER WORKERS LANES [STRATEGY]. Runs until all input is processed, then
prints the sink's contents as JSON. With a strategy, workers come and go all the time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from anabranch import StateService, agg
from anabranch.errors import InvalidArgument, ServiceUnavailable

REST_SECONDS = 0.5
"""Between two moves: without it most of the cores' time goes into moves, not into batches."""
SEEN_OUTPUT = "k long, n long, seen string, what string"


class Seen(StatefulProcessor):
    """Counts rows, remembers values in a list, reports when a key was quiet for five seconds."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "n long")
        self._values = handle.getListState("values", "v long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count = self._counted()
        latest = 0
        for row in sorted(rows, key=lambda r: r.v):
            count += 1
            self._values.appendValue((row.v,))
            latest = max(latest, int(row.ts.timestamp() * 1000))
        self._count.update((count,))
        for timer in self._handle.listTimers():
            self._handle.deleteTimer(timer)
        self._handle.registerTimer(latest + 5000)
        yield Row(k=key[0], n=count, seen=self._seen(), what="rows")

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        seen = self._seen()
        self._values.clear()
        yield Row(k=key[0], n=self._counted(), seen=seen, what="quiet")

    def _counted(self) -> int:
        state = self._count.get()
        return state[0] if state else 0

    def _seen(self) -> str:
        return ",".join(str(v) for (v,) in self._values.get())


def main() -> None:
    folder, workers, lanes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(lanes))
        .getOrCreate()
    )
    with StateService(spark, str(folder / "state"), workers=workers, lanes=lanes) as service:
        rows = (
            spark.readStream.schema("k long, v long, t long")
            .option("maxFilesPerTrigger", 1)
            .json(str(folder / "input"))
            .withColumn("ts", F.timestamp_seconds("t"))
            .withWatermark("ts", "1 second")
        )
        seen = service.group_by(rows, "k").transformWithState(
            Seen(), SEEN_OUTPUT, "Append", "EventTime", name="seen"
        )
        windows = service.group_by(rows, window=agg.tumbling("ts", "4 seconds")).aggregate(
            n=agg.count(), total=agg.sum("v"), name="windows", outputMode="append"
        )
        if len(sys.argv) > 4:
            threading.Thread(target=rescale, args=(service, sys.argv[4]), daemon=True).start()
        run(seen, folder, "seen")
        run(
            windows.select(F.col("window.start").cast("long").alias("t"), "n", "total"), folder, "w"
        )
    result = {
        name: [tuple(row) for row in spark.read.parquet(str(folder / name)).collect()]
        for name in ("seen", "w")
    }
    sys.stdout.write("RESULT " + json.dumps(result))
    spark.stop()


def rescale(service: StateService, strategy: str) -> None:
    """Out and in, for as long as the service lives."""
    workers = len(service.status()["workers"])
    try:
        while service.is_running:
            for count in (workers + 1, workers):
                service.rescale(count, strategy=strategy, wait=True)
                time.sleep(REST_SECONDS)
    except (InvalidArgument, ServiceUnavailable):
        pass  # it was stopped between two requests, or in the middle of one


def run(df: DataFrame, folder: Path, name: str) -> None:
    query = (
        df.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / f"{name}-checkpoint"))
        .option("path", str(folder / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
