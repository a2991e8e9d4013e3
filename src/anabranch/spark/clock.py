"""Spark's own clocks: watermark and batch time of a running batch, read from the query's execution.

Spark persists both in its offset log, so a batch that runs again sees the same readings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from anabranch.durability.spark_checkpoint import SparkCheckpoint
from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.processor.contract import BatchTimes
from anabranch.spark.plan import OperatorPlan

_log = logging.getLogger("anabranch.service")


class SparkClock:
    """Reads through the JVM gateway, in the driver."""

    def __init__(self) -> None:
        self._sessions: dict[str, SparkSession] = {}
        self._time_modes: dict[str, str] = {}
        self._readers: set[str] = set()

    def watch(self, operator: str, plan: OperatorPlan) -> None:
        """Say where the operator's query will run."""
        self._sessions[operator] = plan.input.sparkSession
        self._time_modes[operator] = plan.time_mode
        if plan.reads_clock:
            self._readers.add(operator)
        else:
            self._readers.discard(operator)

    def times(self, operator: str, query_id: str, epoch: int) -> BatchTimes:
        """Clock readings of the batch that is running; zeros for an operator that has no use."""
        if operator not in self._readers:
            return BatchTimes(0, 0, 0)
        execution = self._execution(operator, query_id)
        last = execution.lastExecution() if execution is not None else None
        if last is None or last.currentBatchId() != epoch:
            raise ServiceUnavailable(
                f"Batch {epoch} of query {query_id} is not the one that Spark runs now; "
                "the task that asked is a late one and its result is not used."
            )
        metadata = last.offsetSeqMetadata()
        previous = last.prevOffsetSeqMetadata()
        late = previous.get().batchWatermarkMs() if previous.isDefined() else 0
        return BatchTimes(metadata.batchTimestampMs(), metadata.batchWatermarkMs(), late)

    def wants_batch(self, operator: str, query_id: str) -> bool:
        """Spark's own rule for batches without new rows: always for processing time, else when the
        watermark has moved since the last batch."""
        execution = self._execution(operator, query_id)
        last = execution.lastExecution() if execution is not None else None
        if last is None:
            return False
        if self._time_modes[operator] == "processingtime":
            return True
        watermark = int(execution.watermarkTracker().currentWatermark())
        return watermark > int(last.offsetSeqMetadata().batchWatermarkMs())

    def checkpoints(self, query_of: Callable[[str], str | None]) -> list[SparkCheckpoint]:
        """Those of the operators' queries that run now, as far as they can be read from here."""
        found: dict[str, SparkCheckpoint] = {}
        for operator in list(self._sessions):
            query_id = query_of(operator)
            if query_id is None or query_id in found:
                continue
            execution = self._execution(operator, query_id)
            if execution is None:
                continue
            try:
                found[query_id] = SparkCheckpoint(str(execution.resolvedCheckpointRoot()))
            except AnabranchError as error:
                _log.warning("Offsets of query %s are not saved: %s", query_id, error)
        return list(found.values())

    def is_running(self, operator: str, query_id: str) -> bool:
        """Whether a query is active."""
        return self._execution(operator, query_id) is not None

    def _execution(self, operator: str, query_id: str) -> Any:
        query = self._sessions[operator]._jsparkSession.streams().get(query_id)
        if query is None:
            return None
        return query.streamingQuery() if hasattr(query, "streamingQuery") else query
