"""Spark's own clocks: watermark and batch time of a running batch, read from the query's execution.

Spark persists both in its offset log, so a batch that runs again sees the same readings.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from anabranch.durability.spark_checkpoint import SparkCheckpoint
from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.processor.contract import BatchTimes, OperatorDefinition
from anabranch.spark.plan import OperatorPlan
from anabranch.spark.progress import OperatorProgress
from anabranch.spark.query_reports import SparkReports
from anabranch.spark.source_lag import lag_of

_log = logging.getLogger("anabranch.service")


class SparkClock:
    """Reads through the JVM gateway, in the driver."""

    def __init__(self) -> None:
        self._sessions: dict[str, SparkSession] = {}
        self._readers: set[str] = set()
        self._progress: dict[str, OperatorProgress] = {}
        self.reports = SparkReports(self._execution).reports

    def watch(
        self,
        operator: str,
        session: SparkSession,
        definition: OperatorDefinition,
        reads_clock: bool,
    ) -> None:
        """Say where the operator's query will run."""
        self._sessions[operator] = session
        self._progress[operator] = OperatorProgress(session, operator, definition)
        if reads_clock:
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

    def note_batch(
        self, operator: str, query_id: str, epoch: int, lanes: int, stats: Mapping[str, int]
    ) -> None:
        """Put it into the query's progress."""
        self._progress[operator].report(query_id, epoch, lanes, stats)

    def source_lag(self, operator: str, query_id: str) -> int | None:
        """Rows that the sources of an operator's query are ahead; None: nobody knows."""
        execution = self._execution(operator, query_id)
        last = None if execution is None else execution.lastProgress()
        return None if last is None else lag_of(str(last.json()))

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
        """Whether a query is active, in whichever session."""
        sessions = {id(session): session for session in list(self._sessions.values())}
        return any(_execution(session, query_id) is not None for session in sessions.values())

    def _execution(self, operator: str, query_id: str) -> Any:
        session = self._sessions.get(operator)
        return None if session is None else _execution(session, query_id)


@dataclass(frozen=True)
class PlannedSide:
    """What the driver knows of the queries that a definition is started as (`QuerySide`)."""

    clock: SparkClock
    session: SparkSession
    definition: OperatorDefinition
    reads_clock: bool
    mark: str
    """How the functions of this service's lanes are called in plans, before the number."""
    family: str | None

    @classmethod
    def of(
        cls, clock: SparkClock, plan: OperatorPlan, mark: str, family: str | None
    ) -> PlannedSide:
        """For a plan."""
        session = plan.input.sparkSession
        return cls(clock, session, plan.definition, plan.reads_clock, mark, family)

    def watch(self, operator: str) -> None:
        """The clock is asked for an operator of the definition from now on."""
        self.clock.watch(operator, self.session, self.definition, self.reads_clock)

    def definitions(self, query_id: str) -> set[int]:
        """Numbers of this service's definitions in a query, read from its plan."""
        execution = _execution(self.session, query_id)
        if execution is None:
            raise ServiceUnavailable(f"Query {query_id} has ended; this task's result is not used.")
        plan = str(execution.logicalPlan().toString())
        return {int(number) for number in re.findall(rf"\b{self.mark}(\d+)\(", plan)}


def _execution(session: SparkSession, query_id: str) -> Any:
    query = session._jsparkSession.streams().get(query_id)
    if query is None:
        return None
    return query.streamingQuery() if hasattr(query, "streamingQuery") else query
