"""The NEXMark queries as workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.errors import InvalidArgument
from anabranch.service import StateService
from anabranch_bench.workloads.contract import Output, Workload
from anabranch_bench.workloads.nexmark import oracle, q0_q2, q3, q4, q5, q6, q7, q8
from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.generator import AUCTION, BID, PERSON, NexmarkEvents

WATERMARK_DELAY_MS = 4000
"""As in NEXMark for Flink."""

RESULT = "result"
"""Name of the one output."""


@dataclass(frozen=True)
class Query:
    """A query with its oracle."""

    description: str
    kinds: tuple[int, ...]
    """Kinds of events that it reads. The watermark is theirs: Spark filters before it."""
    build: Callable[[StateService, DataFrame], DataFrame]
    expected: Callable[[oracle.Site], pa.Table]
    keys: tuple[str, ...] = ()
    stateful: bool = True


QUERIES = {
    "q0": Query("every bid, as it is", (BID,), q0_q2.build_q0, oracle.q0, stateful=False),
    "q1": Query("every bid in euros", (BID,), q0_q2.build_q1, oracle.q1, stateful=False),
    "q2": Query("bids on every 123rd auction", (BID,), q0_q2.build_q2, oracle.q2, stateful=False),
    "q3": Query(
        "sellers of a category in three states (join)", (PERSON, AUCTION), q3.build, oracle.q3
    ),
    "q4": Query(
        "average winning bid of each category", (AUCTION, BID), q4.build, oracle.q4, ("category",)
    ),
    "q5": Query("auctions with the most bids (sliding windows)", (BID,), q5.build, oracle.q5),
    "q6": Query("average of each seller's last 10 sales", (AUCTION, BID), q6.build, oracle.q6),
    "q7": Query("highest bids (windows)", (BID,), q7.build, oracle.q7),
    "q8": Query(
        "new users who sell at once (windowed join)", (PERSON, AUCTION), q8.build, oracle.q8
    ),
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
        events = with_watermark(events, self._query.kinds)
        return {RESULT: self._query.build(service, events)}

    def expected(self, events: pa.Table) -> Mapping[str, pa.Table]:
        """The same in pandas, over all events at once."""
        site = oracle.Site(events, WATERMARK_DELAY_MS * 1000, self._query.kinds)
        return {RESULT: self._query.expected(site)}


def with_watermark(events: DataFrame, kinds: Sequence[int]) -> DataFrame:
    """Events of some kinds, which may be four seconds late.

    Spark would move the filter of a query below the watermark anyway. Here it stands there for
    everybody to see: the watermark of a query is that of the events that it reads.
    """
    read = events.where(F.col("event_type").isin(*kinds))
    return read.withWatermark("dateTime", f"{WATERMARK_DELAY_MS} milliseconds")


def check_disorder(config: NexmarkConfig) -> None:
    """Refuse streams with late events: results would depend on where batches end."""
    if config.disorder_ms >= WATERMARK_DELAY_MS:
        raise InvalidArgument(
            f"Events can be {config.disorder_ms:,.0f} ms out of order, the watermark waits for "
            f"{WATERMARK_DELAY_MS:,} ms: some would be dropped, which ones depends on batches. "
            "Choose a smaller group or delay."
        )
