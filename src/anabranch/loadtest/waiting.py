"""A query whose rows cost waiting, as a call to another service would: its capacity is workers.

On a machine with two cores more workers add no CPU. A worker that waits needs none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from anabranch.loadtest.schedule import row_numbers

if TYPE_CHECKING:
    from anabranch.service import StateService

OPERATOR = "checks"
CUSTOMERS = 20_000
SPREAD = 2_654_435_761
"""Knuth's multiplicative constant: spreads row numbers over customers."""
SCHEMA = "customer long, checks long"


class OrderChecks(StatefulProcessor):
    """Asks another service about each order, and counts the answers of each customer."""

    def __init__(self, row_seconds: float) -> None:
        self._row_seconds = row_seconds

    def init(self, handle: StatefulProcessorHandle) -> None:
        """The count of a customer."""
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(
        self, key: tuple[Any, ...], rows: Iterator[Row], timerValues: Any
    ) -> Iterator[Row]:
        """Wait for each row."""
        new = sum(1 for _ in rows)
        time.sleep(new * self._row_seconds)
        # no limit: state is in this process
        before = self._count.get()
        total = new + (before[0] if before is not None else 0)
        self._count.update((total,))
        yield Row(customer=key[0], checks=total)

    def close(self) -> None:
        """Nothing is open."""


def checks_query(
    spark: SparkSession, service: StateService, row_seconds: float, customers: int = CUSTOMERS
) -> Callable[[Path], DataFrame]:
    """Makes it, for a source that follows a schedule file."""

    def make(schedule: Path) -> DataFrame:
        orders = row_numbers(spark, schedule).select(
            ((F.col("row") * SPREAD) % customers).alias("customer")
        )
        return service.group_by(orders, "customer").transformWithState(
            OrderChecks(row_seconds), SCHEMA, "update", "none", name=OPERATOR
        )

    return make


@dataclass
class Answers:
    """An idempotent sink: the last count of each customer."""

    checks: dict[int, int] = field(default_factory=dict)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """foreachBatch's function."""
        rows = batch.toArrow().to_pydict()
        self.checks.update(zip(rows["customer"], rows["checks"], strict=True))

    def wrong(self, rows: int, customers: int = CUSTOMERS) -> int:
        """Customers that differ from a sequential count of so many orders."""
        import numpy as np

        numbers = np.arange(rows, dtype=np.int64)
        counts = np.bincount((numbers * SPREAD) % customers, minlength=customers)
        expected = {c: int(counts[c]) for c in np.flatnonzero(counts).tolist()}
        both = expected.keys() | self.checks.keys()
        return sum(1 for c in both if expected.get(c) != self.checks.get(c))
