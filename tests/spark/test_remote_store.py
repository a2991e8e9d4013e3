"""A streaming aggregation with its state on S3, over HTTP, as a user would run it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.faults.s3 import Proxy, proxy

from anabranch import StateService, agg

WAIT_SECONDS = 60


@pytest.fixture
def spoiled() -> Iterator[Proxy]:
    with proxy() as running:
        yield running


class Run:
    """One query over files that come one by one; restarted with the same checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._written = 0
        (folder / "input").mkdir()

    def feed(self, files: int) -> None:
        """New input, each file a batch."""
        for _ in range(files):
            number, self._written = self._written, self._written + 1
            rows = [{"k": v % 7, "v": v} for v in range(number * 50, number * 50 + 50)]
            path = self._folder / "input" / f"{number}.json"
            path.write_text("\n".join(map(json.dumps, rows)))
            os.utime(path, (1_700_000_000 + number,) * 2)

    def start(self, service: StateService) -> Any:
        rows = (
            self._spark.readStream.schema("k long, v long")
            .option("maxFilesPerTrigger", 1)
            .json(str(self._folder / "input"))
        )
        totals = service.group_by(rows, "k").aggregate(
            n=agg.count(), total=agg.sum("v"), name="totals"
        )
        return (
            totals.writeStream.outputMode("update")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .foreachBatch(self._sink)
            .start()
        )

    def _sink(self, rows: DataFrame, epoch: int) -> None:
        rows.write.mode("overwrite").parquet(str(self._folder / "output" / f"{epoch:03d}"))

    def outputs(self) -> list[tuple[int, int, int, int]]:
        """(batch, k, n, total) of everything that was emitted."""
        folders = sorted((self._folder / "output").iterdir())
        return sorted(
            (int(folder.name), row.k, row.n, row.total)
            for folder in folders
            for row in self._spark.read.parquet(str(folder)).collect()
        )

    def oracle(self) -> list[tuple[int, int, int, int]]:
        """The same, computed one row after the other."""
        found = []
        totals: dict[int, tuple[int, int]] = {}
        for number in range(self._written):
            for value in range(number * 50, number * 50 + 50):
                n, total = totals.get(value % 7, (0, 0))
                totals[value % 7] = n + 1, total + value
            found += [(number, k, *values) for k, values in totals.items()]
        return sorted(found)


def wait_for_batch(query: Any, batch: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (query.lastProgress or {"batchId": -1})["batchId"] < batch:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, "no progress"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_killed_workers_a_broken_store_and_a_restart(
    spark: SparkSession, tmp_path: Path, spoiled: Proxy
) -> None:
    run = Run(spark, tmp_path)
    location = spoiled.location(retry_seconds=1)
    with StateService(spark, location, workers=2, lanes=2, key_groups=16) as service:
        assert "secret" not in repr(service)
        run.feed(2)
        query = run.start(service)
        wait_for_batch(query, 1)
        # 1. A worker dies: its successor loads from S3 while some requests fail.
        os.kill(service.status()["workers"]["w1"]["pid"], signal.SIGKILL)
        spoiled.spoil("status", times=3)
        spoiled.spoil("lose", method="PUT", times=2)
        run.feed(1)
        wait_for_batch(query, 2)
        # 2. The store stays away: the query fails and says why.
        spoiled.spoil("drop", times=100_000)
        run.feed(1)
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(WAIT_SECONDS)
        assert "Nothing is lost" in str(caught.value)
        assert "s3://states/" in str(caught.value)
        spoiled.mend()
        # 3. Started again in the same service.
        query = run.start(service)
        wait_for_batch(query, 3)
        query.stop()
    # 4. And in a new one, with other parallelism.
    run.feed(1)
    with StateService(spark, location, workers=3, lanes=3, key_groups=16) as service:
        query = run.start(service)
        wait_for_batch(query, 4)
        query.stop()
    assert run.outputs() == run.oracle()
