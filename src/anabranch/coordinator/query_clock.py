"""What the coordinator wants to know of a query (contract; Spark's: `spark/clock.py`)."""

from __future__ import annotations

from typing import Protocol

from anabranch.processor.contract import BatchTimes


class QueryClock(Protocol):
    """Spark's clocks for a query's batch, and whether there is one."""

    def times(self, operator: str, query_id: str, epoch: int) -> BatchTimes:
        """Clock readings of a batch that is running."""

    def wants_batch(self, operator: str, query_id: str) -> bool:
        """Whether a batch should run although no source has new rows."""

    def is_running(self, operator: str, query_id: str) -> bool | None:
        """Whether a query is active; None: that is not known."""
