"""What the coordinator wants to know of a query (contract; Spark's: `spark/clock.py`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from anabranch.model.query_reports import QueryReports
from anabranch.processor.contract import BatchTimes


class QueryClock(Protocol):
    """Spark's clocks for a query's batch, and whether there is one."""

    def times(self, operator: str, query_id: str, epoch: int) -> BatchTimes:
        """Clock readings of a batch that is running."""

    def note_batch(
        self, operator: str, query_id: str, epoch: int, lanes: int, stats: Mapping[str, int]
    ) -> None:
        """What an operator did in a batch that is committed; the query still waits for it."""

    def is_running(self, operator: str, query_id: str) -> bool | None:
        """Whether a query is active; None: that is not known."""


class QueryWatch(Protocol):
    """Who reads what queries say about their batches (Spark's: `spark/query_reports.py`)."""

    def reports(self, operator: str, query_id: str) -> QueryReports:
        """Of a query that has this operator; nothing if it does not run."""


class QuerySide(Protocol):
    """What a definition's operators have to do with the queries that it is started as."""

    @property
    def family(self) -> str | None:
        """Under `service.enable()`, the name that those of its class are numbered after."""

    def watch(self, operator: str) -> None:
        """The clock is asked for an operator of the definition from now on."""

    def definitions(self, query_id: str) -> Collection[int]:
        """Numbers of the definitions in a query."""
