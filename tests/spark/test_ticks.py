"""Batches without new rows: when they run, what they need, and what is found in checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from tests.processes import command_lines
from tests.spark.differential import Feed, Watched, check_equal, play, wait_for

from anabranch import StateService, agg, source_offsets

OLD = Path(__file__).parents[1] / "data" / "checkpoint-0.1"
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
SCHEMA = "k string, t double"
WINDOW = agg.tumbling("ts", "5 seconds")


def timed(stream: DataFrame) -> DataFrame:
    return stream.withColumn("ts", F.timestamp_seconds("t")).withWatermark("ts", "2 seconds")


def closed(service: StateService, df: DataFrame, name: str) -> DataFrame:
    """Windows, told when they are over."""
    return service.group_by(df, "k", window=WINDOW).aggregate(
        n=agg.count(), outputMode="append", name=name
    )


def rows(*moments: float) -> list[dict[str, Any]]:
    return [{"k": "ab"[at % 2], "t": t} for at, t in enumerate(moments)]


class Reminding(StatefulProcessor):
    """Has a timer that is due with the next batch, whenever that is."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        self._handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        count = sum(len(each) for each in rows)
        yield pd.DataFrame({"k": [key[0]], "n": [count]})

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"k": [key[0]], "n": [-1]})


def is_idle(watched: Watched, batches: int) -> bool:
    """Whether that many batches have run, and the query waits for rows."""
    message = str(watched.query.status["message"])
    return len(watched.rows) >= batches and message.startswith("Waiting for data")


@pytest.mark.slow
def test_batches_without_rows_run_when_sparks_own_would(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each query keeps the setting that it started with; no process of a source is needed."""
    feed = Feed(spark, tmp_path, SCHEMA)
    df = timed(feed.stream())
    native = df.groupBy("k", WINDOW.spark()).agg(F.count("t").alias("n"))
    with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:

        def start(side: str) -> Watched:
            result = native if side == "spark" else closed(service, df, "closed")
            return Watched(result, tmp_path / side, "append")

        spark.conf.set(NO_DATA, "false")
        try:
            with start("spark") as left, start("ours") as right:
                for watched in (left, right):  # no rows yet: no batch
                    wait_for(partial(is_idle, watched, 0), watched)
                spark.conf.set(NO_DATA, "true")  # of no use to a query that runs
                play(feed, [rows(1, 2, 9), rows(12, 13), rows(31)], left, right)
        finally:
            spark.conf.unset(NO_DATA)
        check_equal(left.batches(), right.batches())
        assert list(right.rows) == [0, 1, 2]
        offsets = source_offsets(spark, str(tmp_path / "ours"))
        assert offsets == ['{"logOffset":2}'], "the source without rows has none yet"
        with start("spark") as left, start("ours") as right:
            play(feed, [rows(50), rows(51, 60)], left, right)
            started = [line for line in command_lines() if "streaming_source_runner" in line]
        check_equal(left.batches(), right.batches())
        assert len(right.rows) == 4
        assert [row for batch in (4, 6) for row in right.rows[batch]]
    assert not started


@pytest.mark.slow
def test_processing_time_without_such_batches(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path, SCHEMA)
    arguments = (Reminding(), "k string, n long", "Update", "ProcessingTime")
    native = feed.stream().groupBy("k").transformWithStateInPandas(*arguments)
    spark.conf.set(NO_DATA, "false")
    try:
        with StateService(spark, str(tmp_path / "state"), workers=1, fsync=False) as service:
            grouped = service.group_by(feed.stream(), "k")
            ours = grouped.transformWithStateInPandas(*arguments, name="reminding")
            feed.add(rows(1, 2))
            with Watched(native, tmp_path / "spark") as left:
                wait_for(lambda: is_idle(left, 1), left)
                with Watched(ours, tmp_path / "ours") as right:
                    wait_for(lambda: is_idle(right, 1), right)
                    play(feed, [rows(3)], left, right)
    finally:
        spark.conf.unset(NO_DATA)
    check_equal(left.batches(), right.batches())
    assert [Row(k="a", n=-1) in right.rows[batch] for batch in (0, 1)] == [False, True]


def test_a_checkpoint_of_an_earlier_release_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Its last batch ran on a tick and was not committed: it runs again, then new rows come."""
    shutil.copytree(OLD, tmp_path, dirs_exist_ok=True)
    for path in (tmp_path / "checkpoint/sources/0").iterdir():
        path.write_text(path.read_text().replace("FOLDER", f"file://{tmp_path}"))
    for number in range(2):  # as in that log; Git does not keep times
        os.utime(tmp_path / f"input/{number}.json", (1_700_000_000 + number,) * 2)
    (tmp_path / "checkpoint/commits/3").unlink()
    expected = json.loads((OLD / "expected.json").read_text())
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    df = timed(stream.json(str(tmp_path / "input")))
    location = str(tmp_path / "state")
    with StateService(spark, location, workers=1, lanes=1, key_groups=4, fsync=False) as service:
        result = closed(service, df, "closed")
        with Watched(result, tmp_path / "checkpoint", "append") as watched:
            watched.query.processAllAvailable()
            (tmp_path / "new.json").write_text('{"k": "a", "t": 50}')
            os.replace(tmp_path / "new.json", tmp_path / "input/2.json")
            watched.query.processAllAvailable()
    seen = {
        batch: sorted([row.k, int(row.window.start.timestamp()), row.n] for row in found)
        for batch, found in watched.rows.items()
    }
    closing = [["a", 30, 1], ["b", 30, 1]]
    assert seen == {3: expected["3"], 4: [], 5: closing}
    for batch, tick in ((3, 2), (4, 2), (5, 3)):
        offsets = (tmp_path / f"checkpoint/offsets/{batch}").read_text().splitlines()
        assert offsets[3] == f'{{"tick": {tick}}}'


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("load_seconds", [15, pytest.param(60, marks=pytest.mark.soak)])
def test_four_queries_start_on_loaded_cores(tmp_path: Path, load_seconds: int) -> None:
    """In a JVM of its own, of low priority, beside processes that take all of its core.

    Longer than the 10 s that Spark gives a process of a source.
    """
    script = Path(__file__).with_name("starting_under_load.py")
    command = [sys.executable, str(script), str(tmp_path), str(load_seconds)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=540, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    assert json.loads(run.stdout.splitlines()[-1]) == {f"query-{at}": 3 for at in range(4)}
