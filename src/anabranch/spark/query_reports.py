"""What Spark's queries report of their batches: how long, how many rows, how many wait."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError

from anabranch.model.query_reports import BatchReport, QueryReports

_log = logging.getLogger("anabranch.service")

BATCHES_KEPT = 100
AT_ONCE_MAX = 30
"""Reports that are read when a query is seen first; each is a call into the JVM."""

BOOKKEEPING = ("latestOffset", "getBatch", "walCommit", "commitOffsets")
"""What Spark does around a batch for its offsets."""

Execution = Callable[[str, str], Any]
"""Of an operator's query: Spark's execution; None: it does not run."""


class SparkReports:
    """Reads what is new, and keeps it."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._known: dict[str, deque[BatchReport]] = {}
        self._reading = threading.Lock()

    def reports(self, operator: str, query_id: str) -> QueryReports:
        """The last batches of a query."""
        known = self._known.setdefault(query_id, deque(maxlen=BATCHES_KEPT))
        try:
            execution = self._execution(operator, query_id)
            if execution is None:
                return QueryReports()
            with self._reading:
                seen = known[-1].epoch if known else -1
                known.extend(_new_reports(execution, seen))
                return QueryReports(interval_of(str(execution.trigger())), tuple(known))
        except (Py4JError, KeyError, ValueError, TypeError) as error:
            _log.debug("Query %s does not tell of its batches: %s", query_id, error)
            return QueryReports(batches=tuple(known))


def _new_reports(execution: Any, seen: int) -> list[BatchReport]:
    found: list[BatchReport] = []
    reports = list(execution.recentProgress())
    for report in reversed(reports[-AT_ONCE_MAX:]):
        if report.batchId() <= seen:
            break
        read = report_of(json.loads(report.json()))
        if read is not None:
            found.append(read)
    return found[::-1]


def report_of(told: Mapping[str, Any]) -> BatchReport | None:
    """A progress report as a value; None for a trigger without a batch."""
    durations = told["durationMs"]
    if "addBatch" not in durations:
        return None
    started = datetime.fromisoformat(told["timestamp"].replace("Z", "+00:00")).timestamp()
    seconds = durations["triggerExecution"] / 1000
    lag = sum(lag_of(source) for source in told["sources"])
    return BatchReport(
        told["batchId"],
        started,
        seconds,
        told["numInputRows"],
        lag,
        durations["addBatch"],
        durations.get("queryPlanning", 0),
        sum(durations.get(name, 0) for name in BOOKKEEPING),
    )


def lag_of(source: Mapping[str, Any]) -> int:
    """Rows between what a source has and what was taken; 0 if its offsets are no numbers of rows.

    They are if those of the batch count its rows, as Kafka's do.
    """
    start, end, latest = (
        _offset(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset")
    )
    taken = _difference(start, end)
    if taken is None or taken != source.get("numInputRows") or not taken:
        return 0
    return max(0, _difference(end, latest) or 0)


def _offset(told: Any) -> Any:
    """Some sources give text with JSON."""
    return json.loads(told) if isinstance(told, str) and told[:1] in "{[0123456789" else told


def _difference(start: Any, end: Any) -> int | None:
    if isinstance(start, int) and isinstance(end, int):
        return end - start
    if isinstance(start, dict) and isinstance(end, dict) and start.keys() <= end.keys():
        parts = [_difference(start.get(name, 0), value) for name, value in end.items()]
        return None if None in parts else sum(part for part in parts if part is not None)
    return None


def interval_of(trigger: str) -> float:
    """Seconds between triggers, from how Spark writes one."""
    found = re.fullmatch(r"ProcessingTimeTrigger\((\d+)\)", trigger)
    return int(found[1]) / 1000 if found else 0.0
