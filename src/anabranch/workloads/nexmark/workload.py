"""The NEXMark queries as workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.errors import InvalidArgument
from anabranch.service import StateService
from anabranch.workloads.contract import Output, Workload
from anabranch.workloads.nexmark import oracle, q0_q2, q3, q4, q5, q6, q7, q8
from anabranch.workloads.nexmark.config import NexmarkConfig
from anabranch.workloads.nexmark.generator import NexmarkEvents

WATERMARK_DELAY_MS = 4000
"""As in NEXMark for Flink."""

RESULT = "result"
"""Name of the one output."""


@dataclass(frozen=True)
class Query:
    """A query with its oracle."""

    description: str
    build: Callable[[StateService, DataFrame], DataFrame]
    expected: Callable[[oracle.Site], pa.Table]
    keys: tuple[str, ...] = ()
    stateful: bool = True


QUERIES = {
    "q0": Query("every bid, as it is", q0_q2.build_q0, oracle.q0, stateful=False),
    "q1": Query("every bid in euros", q0_q2.build_q1, oracle.q1, stateful=False),
    "q2": Query("bids on every 123rd auction", q0_q2.build_q2, oracle.q2, stateful=False),
    "q3": Query("sellers of a category in three states (join)", q3.build, oracle.q3),
    "q4": Query("average winning bid of each category", q4.build, oracle.q4, ("category",)),
    "q5": Query("auctions with the most bids (sliding windows)", q5.build, oracle.q5),
    "q6": Query("average of each seller's last 10 sales", q6.build, oracle.q6),
    "q7": Query("highest bids (windows)", q7.build, oracle.q7),
    "q8": Query("new users who sell at once (windowed join)", q8.build, oracle.q8),
}


class NexmarkWorkload(Workload):
    """One query on one stream."""

    def __init__(self, query: str, config: NexmarkConfig | None = None) -> None:
        self.config = config or NexmarkConfig()
        check_disorder(self.config)
        if query not in QUERIES:
            raise InvalidArgument(f"There is no query '{query}'. Known: {', '.join(QUERIES)}.")
        self._query = QUERIES[query]
        self.name = f"nexmark {query}"
        self.description = self._query.description
        self.stateful = self._query.stateful
        self.events = NexmarkEvents(self.config)
        self.outputs = {RESULT: Output(self._query.keys)}

    def build(self, service: StateService, events: DataFrame) -> Mapping[str, DataFrame]:
        """The query."""
        return {RESULT: self._query.build(service, with_watermark(events))}

    def expected(self, events: pa.Table) -> Mapping[str, pa.Table]:
        """The same in pandas, over all events at once."""
        return {RESULT: self._query.expected(oracle.Site(events, WATERMARK_DELAY_MS * 1000))}


def with_watermark(events: DataFrame) -> DataFrame:
    """Events that may be four seconds late."""
    return events.withWatermark("dateTime", f"{WATERMARK_DELAY_MS} milliseconds")


def check_disorder(config: NexmarkConfig) -> None:
    """Refuse streams with late events: results would depend on where batches end."""
    if config.disorder_ms >= WATERMARK_DELAY_MS:
        raise InvalidArgument(
            f"Events can be {config.disorder_ms:,.0f} ms out of order, the watermark waits for "
            f"{WATERMARK_DELAY_MS:,} ms: some would be dropped, which ones depends on batches. "
            "Choose a smaller group or delay."
        )
