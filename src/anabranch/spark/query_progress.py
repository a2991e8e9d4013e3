"""What a query and its operators did last, for programs: `service.progress`, and a listener."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

from anabranch.spark.source_lag import lag_of

OBSERVED = "anabranch."
"""Before an operator's name, in `observedMetrics`."""

_log = logging.getLogger("anabranch.service")


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A query as of its last progress."""

    query_id: str
    batch: int | None
    """None: before the first progress."""
    source_lag_rows: int | None = None
    """Rows that its sources have and it has not read; None: they do not count rows."""
    operators: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of each operator of the service: numbers of that batch, with the names of Spark's progress.

    See "What a query's progress tells" in docs/operations.md.
    """


def query_progress(query_id: str, batch: int, text: str, observed: Mapping[str, Any]) -> Any:
    """From the JSON of a progress, and its observed metrics as rows or as plain values."""
    operators = {
        name.removeprefix(OBSERVED): _plain(row)
        for name, row in observed.items()
        if name.startswith(OBSERVED)
    }
    return QueryProgress(query_id, batch, lag_of(text), operators)


def last_progress(query: Any) -> QueryProgress:
    """Of a `StreamingQuery` running or ended."""
    progress = query.lastProgress
    if progress is None:
        return QueryProgress(str(query.id), None)
    found: QueryProgress = query_progress(
        str(query.id), progress.batchId, progress.json, progress.observedMetrics
    )
    return found


def _plain(row: Any) -> dict[str, int]:
    return {
        name: int(value)
        for name, value in (row.asDict() if hasattr(row, "asDict") else row).items()
    }


class ProgressListener(StreamingQueryListener):
    """Calls a function with a `QueryProgress` after each batch of any query of a session.

    `spark.streams.addListener(ProgressListener(print))`. Spark calls it in a thread of its own, and
    each event costs the driver some milliseconds.
    """

    def __init__(self, tell: Callable[[QueryProgress], object]) -> None:
        self._tell = tell

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing has happened yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """A batch has ended."""
        progress = event.progress
        try:
            self._tell(
                query_progress(
                    str(progress.id), progress.batchId, progress.json, progress.observedMetrics
                )
            )
        except Exception:  # Spark would say so once, and hide where
            _log.exception("A listener of progress failed")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """No batch has run."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """It is over."""
