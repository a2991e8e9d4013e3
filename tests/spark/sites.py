"""Devices at sites: the same rows in every run, and what their state must be after each batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.moving import Sink
from tests.spark.tallies import TALLY, Tally

from anabranch import StateService, agg

ROWS = 60
"""Rows of a batch."""
DEVICES = 41
SITES = ("berlin", "oslo", "paris", None, "rome")
"""Device d is at site d % 5; null is a site like others."""


def site_of(device: int) -> str | None:
    return SITES[device % len(SITES)]


def source(spark: SparkSession) -> DataFrame:
    """Batch b has the values from b * ROWS on, all at second b."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .option("startTimestamp", 0)
        .option("advanceMillisPerBatch", 1000)
        .load()
    )
    device = (F.col("value") * 7) % DEVICES
    names = F.array(*(F.lit(site) for site in SITES))
    return rows.select(
        F.element_at(names, (device % len(SITES)).cast("int") + 1).alias("site"),
        device.alias("k"),
        F.col("value").alias("v"),
        F.col("timestamp").alias("ts"),
    )


def batch_rows(batch: int) -> list[tuple[int, int]]:
    """Devices and values of a batch."""
    return [(v * 7 % DEVICES, v) for v in range(batch * ROWS, (batch + 1) * ROWS)]


def sums_of(batch: int) -> set[tuple[str | None, int, int, int]]:
    """Outputs of a batch: site, device, number and sum of all its values so far."""
    count: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for each in range(batch + 1):
        for device, value in batch_rows(each):
            count[device] += 1
            total[device] += value
    return {(site_of(d), d, count[d], total[d]) for d in {d for d, _ in batch_rows(batch)}}


def value_of(device: int, batches: int) -> tuple[int, int] | None:
    """Number and sum of a device's values after some batches."""
    values = [v for b in range(batches) for d, v in batch_rows(b) if d == device]
    return (len(values), sum(values)) if values else None


def windowed(batch: int) -> set[tuple[str | None, int]]:
    """Outputs of a batch: rows of each of its sites in the window of four seconds."""
    first = batch // 4 * 4
    count = Counter(site_of(d) for b in range(first, batch + 1) for d, _ in batch_rows(b))
    return {(site, count[site]) for site in {site_of(d) for d, _ in batch_rows(batch)}}


class Running:
    """Sums by device, a row operator and windows, in three queries."""

    def __init__(self, spark: SparkSession, folder: Path, service: StateService) -> None:
        rows = source(spark)
        grouped = service.group_by(rows, "site", "k", placed_by="site")
        sums = grouped.aggregate(n=agg.count(), total=agg.sum("v"), name="sums")
        rows_of = service.group_by(rows, "k", "site", placed_by="site")
        tally = rows_of.transformWithState(Tally(), TALLY, "Update", "None", name="tally")
        opened = agg.tumbling("ts", "4 seconds")
        window = service.group_by(rows, "site", window=opened, placed_by="site")
        windows = window.aggregate(n=agg.count(), name="windows")
        self.sinks = Sink(), Sink(), Sink()
        self.queries = [
            df.writeStream.foreachBatch(sink.write)
            .outputMode("update")
            .option("checkpointLocation", str(folder / f"checkpoint-{n}"))
            .start()
            for n, (df, sink) in enumerate(zip((sums, tally, windows), self.sinks, strict=True))
        ]

    def batches(self, count: int) -> None:
        for query, sink in zip(self.queries, self.sinks, strict=True):
            sink.wait_for(query, len(sink.rows) + count)

    def stop(self) -> None:
        for query in self.queries:
            query.stop()

    def check(self) -> None:
        """Outputs of every batch."""
        for batch, rows in self.sinks[0].rows.items():
            assert set(rows) == sums_of(batch), batch
            assert len(rows) == len(set(rows))
        for batch, rows in self.sinks[1].rows.items():
            assert {k for k, *_ in rows} == {d for d, _ in batch_rows(batch)}
            for k, total, items in rows:
                assert (items, total) == value_of(k, batch + 1)
        for batch, rows in self.sinks[2].rows.items():
            assert {(site, n) for site, _, n in rows} == windowed(batch), batch
