"""Running queries are rescaled, drained and rebalanced under every strategy; results stay right."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tests.spark.moving import (
    RECENT,
    TRACKED,
    WAIT,
    WINDOW_MS,
    Oracle,
    Recent,
    Sink,
    Tracker,
    source,
)

from anabranch import StateService, agg
from anabranch.migration.strategies import STRATEGIES


class Running:
    """Two queries on one service: chained row operators, and event-time windows."""

    def __init__(self, spark: SparkSession, folder: Path, service: StateService) -> None:
        rows = source(spark)
        tracked = service.group_by(rows, "k").transformWithState(
            Tracker(), TRACKED, "Append", "EventTime", name="tracked"
        )
        recent = service.group_by(tracked, "k").transformWithState(
            Recent(), RECENT, "Append", "ProcessingTime", name="recent"
        )
        window = agg.tumbling("ts", f"{WINDOW_MS} milliseconds")
        windows = service.group_by(rows, window=window).aggregate(
            n=agg.count(), name="windows", outputMode="append"
        )
        opened = F.col("window.start").cast("long").alias("t")
        self.recent, self.windows = Sink(), Sink()
        self.queries = [
            df.writeStream.foreachBatch(sink.write)
            .option("checkpointLocation", str(folder / f"checkpoint-{n}"))
            .start()
            for n, (df, sink) in enumerate(
                ((recent, self.recent), (windows.select(opened, "n"), self.windows))
            )
        ]

    def batches(self, count: int) -> None:
        """Let both queries run so many more batches."""
        for query, sink in zip(self.queries, (self.recent, self.windows), strict=True):
            sink.wait_for(query, len(sink.rows) + count)

    def stop(self) -> None:
        for query in self.queries:
            query.stop()

    def check(self) -> None:
        """Every batch equals the sequential run's."""
        for at, (query, sink) in enumerate(
            zip(self.queries, (self.recent, self.windows), strict=True)
        ):
            oracle, compared = Oracle(), 0
            for progress in query.recentProgress:
                batch = progress["batchId"]
                if batch not in sink.rows or batch < compared:
                    continue  # between batches Spark reports the last one again
                assert batch == compared
                watermark = datetime.fromisoformat(progress["eventTime"]["watermark"])
                expected = oracle.run_batch(
                    progress["numInputRows"] > 0, int(watermark.timestamp() * 1000)
                )[at]
                assert sorted(sink.rows[batch]) == sorted(expected), f"batch {batch}"
                compared += 1
            assert compared >= len(sink.rows) - 1


MECHANISMS = {
    "stop-restart": "loaded",
    "pause": "gated_ms",
    "replicate": "shadowed",
    "order-unaware": "flips",
    "megaphone": "steps",
    "rhino": "handovers",
    "meces": "rounds",
    "drrs": "subscales",
    "lazy": "connected",
    "live": "waves",
}
"""A counter in the report that the strategy's own mechanism moves; `order-unaware` only flips."""
TRIES = 5


def test_every_strategy_on_one_query(spark: SparkSession, tmp_path: Path) -> None:
    """Out and in, one strategy after the other, while the same two queries run."""
    with StateService(spark, str(tmp_path / "state"), workers=2, key_groups=64) as service:
        running = Running(spark, tmp_path, service)
        try:
            running.batches(2)
            for strategy in STRATEGIES:
                counted = 0
                for _ in range(TRIES):  # a move may fall between two batches
                    move = service.rescale(3, strategy=strategy)
                    assert move.wait(WAIT)
                    assert move.report().outcome == "done"
                    assert len(service.status()["workers"]) == 3
                    running.batches(1)
                    assert service.rescale(2, strategy=strategy).wait(WAIT)
                    counted += move.report().counters.get(MECHANISMS[strategy], 0)
                    if counted:
                        break
                assert counted, strategy
            running.batches(2)
        finally:
            running.stop()
        running.check()


@pytest.mark.soak
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategy(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    """Out, a request that another one overtakes, drain, rebalance."""
    folder = tmp_path
    with StateService(spark, str(folder / "state"), workers=2, key_groups=64) as service:
        running = Running(spark, folder, service)
        try:
            running.batches(3)
            if strategy == "rhino":
                service.standby(3)
                running.batches(1)
            move = service.rescale(3, strategy=strategy)
            assert move.wait(WAIT)
            assert move.report().outcome == "done"
            assert move.report().groups == 21 or strategy == "stop-restart"
            running.batches(1)
            first = service.rescale(4, strategy=strategy)
            second = service.rescale(2, strategy=strategy)
            assert first.wait(WAIT)
            assert second.wait(WAIT)
            running.batches(1)
            assert service.drain("w1", strategy=strategy).wait(WAIT)
            assert list(service.status()["workers"]) == ["w2"]
            assert service.rescale(2, strategy=strategy).wait(WAIT)
            assert service.rebalance(strategy=strategy).wait(WAIT)
            running.batches(2)
        finally:
            running.stop()
        running.check()
