"""A query under load from a source inside of the JVM, and what its state must be."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import StateService, agg

ROWS = 4000
"""Rows of a batch."""
KEYS = 30_000
SPREAD = 7919


def orders(spark: SparkSession, service: StateService) -> DataFrame:
    """Batch b has the values from b * ROWS on; counted by customer."""
    rows = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
    )
    customers = rows.select(((F.col("value") * SPREAD) % KEYS).alias("customer"))
    return service.group_by(customers, "customer").aggregate(orders=agg.count(), name="totals")


class Totals:
    """The sink: the last count of each customer, and how many batches there were."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.batches = 0

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """foreachBatch's function."""
        rows: dict[str, list[Any]] = batch.toArrow().to_pydict()
        self.of.update(zip(rows["customer"], rows["orders"], strict=True))
        self.batches = batch_id + 1

    def expected(self) -> dict[int, int]:
        """The same, from a sequential run."""
        return Counter(value * SPREAD % KEYS for value in range(self.batches * ROWS))
