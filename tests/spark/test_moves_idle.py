"""A service without a query, and queries that sleep: key groups move at once, and wake up well."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.differential import Feed, Watched, play, wait_for
from tests.spark.moving import WAIT

from anabranch import StateService, agg
from anabranch.coordinator.move_handle import MoveHandle

KEYS = 8


def moved_at_once(move: MoveHandle) -> None:
    assert move.wait(WAIT)
    report = move.report()
    assert report.outcome == "done"
    assert report.counters["idle_groups"] == report.groups > 0
    assert report.counters["idle_rounds"] == 1


@pytest.mark.slow
def test_moves_without_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Before the query, after it has stopped, and after it has run again."""
    data = tmp_path / "data"
    data.mkdir()
    with StateService(spark, str(tmp_path / "state"), workers=2) as service:
        moved_at_once(service.rescale(3))
        rows = spark.readStream.schema("v long").parquet(str(data))
        counts = service.group_by(rows.selectExpr(f"v % {KEYS} as k"), "k").aggregate(
            n=agg.count(), name="counts"
        )
        seen: dict[int, int] = {}

        def run() -> None:
            spark.range(80).selectExpr("id as v").write.mode("append").parquet(str(data))
            query = (
                counts.writeStream.foreachBatch(
                    lambda batch, _: seen.update({row["k"]: row["n"] for row in batch.collect()})
                )
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(WAIT)

        run()
        moved_at_once(service.drain("w1"))  # Spark says that the query has ended: nobody waits
        moved_at_once(service.rescale(3, strategy="megaphone"))
        moved_at_once(service.rescale(2, strategy="live"))
        assert service.rescale(4, dry_run=True).seconds < 0.1
        run()
        assert seen == dict.fromkeys(range(KEYS), 20)


@pytest.mark.slow
def test_moves_of_a_query_that_waits_for_rows(spark: SparkSession, tmp_path: Path) -> None:
    """It runs all the time, with the default trigger; no batch comes that a move could wait for."""
    feed = Feed(spark, tmp_path, "v long")
    rows: list[dict[str, Any]] = [{"v": value} for value in range(80)]
    seen: dict[int, int] = {}

    def waits_for_rows(watched: Watched) -> bool:
        return str(watched.query.status["message"]).startswith("Waiting for data")

    def check(watched: Watched, batches: int) -> None:
        play(feed, [rows], watched)
        assert len(watched.rows) == batches
        seen.update({row.k: row.n for row in watched.rows[batches - 1]})
        assert seen == dict.fromkeys(range(KEYS), 10 * batches)
        wait_for(partial(waits_for_rows, watched), watched)

    with StateService(spark, str(tmp_path / "state"), workers=2, fsync=False) as service:
        stream = feed.stream().selectExpr(f"v % {KEYS} as k")
        counts = service.group_by(stream, "k").aggregate(n=agg.count(), name="counts")
        with Watched(counts, tmp_path / "checkpoint") as watched:
            check(watched, batches=1)
            moved_at_once(service.rescale(3, strategy="live"))
            moved_at_once(service.rescale(2, strategy="megaphone"))
            moved_at_once(service.drain("w1"))
            assert set(service.status()["workers"]) == {"w2"}
            wait_for(partial(waits_for_rows, watched), watched)
            assert len(watched.rows) == 1, "a batch ran while it moved"
            check(watched, batches=2)
            moved_at_once(service.rescale(2, strategy="live"))
            check(watched, batches=3)
