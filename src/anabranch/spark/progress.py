"""What operators did, in their query's progress, with Spark's own field names."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from anabranch.errors import InvalidArgument
from anabranch.model.stats import STATE_BYTES, STATE_ROWS
from anabranch.processor.columnar.aggregates import AggregateProcessor
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.sessions import SessionProcessor
from anabranch.processor.contract import OperatorDefinition
from anabranch.processor.rows.definition import RowOperatorDefinition
from anabranch.spark.java_classes import java_object
from anabranch.spark.query_progress import OBSERVED

_log = logging.getLogger("anabranch.service")

SWITCH = "spark.anabranch.observedMetrics.enabled"
"""Of the session: whether the numbers are in `observedMetrics` too."""

_FIELDS = {
    "numRowsTotal": STATE_ROWS,
    "numRowsUpdated": "rows_updated",
    "allUpdatesTimeMs": "apply_ms",
    "numRowsRemoved": "rows_removed",
    "commitTimeMs": "write_ms",
    "memoryUsedBytes": STATE_BYTES,
    "numRowsDroppedByWatermark": "rows_dropped_late",
    # Custom metrics: the rest.
    "numExpiredTimers": "timers_fired",
    "rowsInput": "rows_input",
    "rowsForwarded": "rows_forwarded",
    "rowsDeferred": "rows_deferred",
    "loadTimeMs": "load_ms",
    "waitTimeMs": "wait_ms",
}
"""Spark's names, and those of our batches' stats."""


class OperatorProgress:
    """Of one operator, whichever query it runs in."""

    def __init__(self, session: SparkSession, name: str, definition: OperatorDefinition) -> None:
        self._session = session
        self._name = name
        self._shown_name = _shown_name(definition)
        self._constants = _variables(definition)
        is_observed = str(session.conf.get(SWITCH, "true")).strip().lower() == "true"
        self._observed = f"{OBSERVED}{name}" if is_observed else ""
        self._works = True
        self._try(lambda: java_object(session, "StateProgress"))  # compiled before a batch waits

    def report(self, query_id: str, epoch: int, lanes: int, stats: Mapping[str, int]) -> None:
        """To be called before Spark knows that the batch has ended; one call into the JVM."""
        values = {field: stats.get(stat, 0) for field, stat in _FIELDS.items()}
        values |= {"numShufflePartitions": lanes, "numStateStoreInstances": lanes}
        values |= self._constants
        text = " ".join([self._shown_name, *(f"{name}={value}" for name, value in values.items())])
        session: Any = self._session._jsparkSession
        self._try(
            lambda: java_object(self._session, "StateProgress").report(
                session, query_id, self._name, epoch, text, self._observed
            )
        )

    def _try(self, action: Callable[[], object]) -> None:
        try:
            if self._works:
                action()
        except (Py4JError, InvalidArgument) as error:
            # Nobody's result depends on it: the query goes on without.
            self._works = False
            _log.warning(
                "lastProgress.stateOperators stays empty for operator '%s' with this release of "
                "Spark; service.status() has the same numbers. %s",
                self._name,
                str(error).partition("\n\tat ")[0],
            )


def _shown_name(definition: OperatorDefinition) -> str:
    """As Spark calls its operator that does the same."""
    if isinstance(definition, RowOperatorDefinition):
        return f"transformWithStateIn{'Pandas' if definition.use_pandas else 'PySpark'}Exec"
    processor = definition.processor if isinstance(definition, ColumnarDefinition) else None
    if isinstance(processor, SessionProcessor):
        return "sessionWindowStateStoreSaveExec"
    return "stateStoreSave" if isinstance(processor, AggregateProcessor) else "columnar"


def _variables(definition: OperatorDefinition) -> dict[str, int]:
    """Spark's custom metrics of state variables: here the number of those that are defined."""
    if not isinstance(definition, RowOperatorDefinition):
        return {}
    found = Counter(
        f"num{spec.kind.capitalize()}State{'WithTTL' if spec.ttl_ms is not None else ''}Vars"
        for spec in definition.variables
    )
    return {**found, "numDeletedStateVars": len(definition.deleted)}
