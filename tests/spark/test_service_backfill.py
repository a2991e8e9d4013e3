"""A first batch that is much larger than the memory that workers may use for rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from anabranch import StateService, agg

LIMIT = 16 << 20


class CountRows(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        count = sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(k=key[0], n=count)


def totals(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").aggregate(n=agg.count(), name="totals")


def counts(service: StateService, df: DataFrame) -> DataFrame:
    return service.group_by(df, "k").transformWithState(
        CountRows(), "k long, n long", "Update", "None", name="counts"
    )


def first_batch(
    spark: SparkSession, folder: Path, rows: int, keys: int, operator: Any
) -> tuple[Row, int]:
    """Run one batch; a summary of its outputs and the workers' highest resident memory."""
    source = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", rows)
        .option("numPartitions", 4)
        .load()
        .select(F.pmod("value", F.lit(keys)).alias("k"), F.lit("x" * 20).alias("payload"), "value")
    )
    found: dict[int, tuple[Row, int]] = {}
    with StateService(spark, str(folder / "state"), memory_bytes=LIMIT) as service:

        def sink(batch: DataFrame, batch_id: int) -> None:
            if batch_id:  # one may begin before the query is stopped
                batch.write.format("noop").mode("append").save()
                return
            summary = batch.agg(
                F.count("*").alias("keys"),
                F.sum("n").alias("rows"),
                F.min("n").alias("least"),
                F.max("n").alias("most"),
            ).collect()[0]
            pids = [worker["pid"] for worker in service.status()["workers"].values()]
            found[0] = summary, max(map(peak_bytes, pids))

        query = (
            operator(service, source)
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        try:
            while query.isActive and not found:
                query.awaitTermination(0.2)
        finally:
            query.stop()
        if query.exception() is not None and not found:
            raise AssertionError(str(query.exception()))
    return found[0]


def peak_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) << 10


@pytest.mark.parametrize("operator", [totals, counts])
def test_rows_beyond_the_limit_go_to_disk(
    spark: SparkSession, tmp_path: Path, operator: Any
) -> None:
    rows, keys = 600_000, 20_000
    summary, _ = first_batch(spark, tmp_path, rows, keys, operator)
    assert summary == Row(keys=keys, rows=rows, least=rows // keys, most=rows // keys)


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_backfill_of_50_million_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows, keys = 50_000_000, 1_000_000
    summary, peak = first_batch(spark, tmp_path, rows, keys, totals)
    assert summary == Row(keys=keys, rows=rows, least=rows // keys, most=rows // keys)
    # 25 million rows of 44 bytes went through each worker: more than a gigabyte.
    assert peak < 800 << 20
