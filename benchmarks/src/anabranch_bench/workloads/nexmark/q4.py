"""Q4: the average of the winning bids of each category, updated with every new winner.

The average is over all auctions that have had a bid that counts, those that are still open with
their highest bid so far. Flink rounds the average down to whole cents; here it is exact.

A highest bid that rises changes an average that has counted it already. So the first operator sends
differences: by how much the category's sum grows, and by how many auctions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch import agg
from anabranch.processor.columnar.api import KeyedBatch
from anabranch.service import StateService
from anabranch_bench.workloads.nexmark.bidding import (
    KEY,
    NO_BID,
    Bidding,
    Standings,
    auctions_and_bids,
)

RISES = "category long, rise long, auctions long"


class WinningBids(Bidding):
    """Tells by how much the winning bids of an auction's category have risen."""

    def changed(self, before: Standings, after: Standings) -> Any:
        """Only a new highest bid matters."""
        return after.best != before.best

    def tell(self, batch: KeyedBatch, before: Standings, after: Standings) -> pa.Table:
        """One row for each auction with a new highest bid."""
        at = np.flatnonzero(after.best != before.best)
        is_first = before.best[at] == NO_BID
        return pa.table(
            {
                "category": after.category[at],
                "rise": after.best[at] - np.where(is_first, 0, before.best[at]),
                "auctions": is_first.astype(np.int64),
                KEY: at,
            }
        )


def category_totals(service: StateService, rises: DataFrame) -> DataFrame:
    """The sum of rises is the sum of winning bids."""
    totals = service.group_by(rises, "category").aggregate(
        total=agg.sum("rise"), auctions=agg.sum("auctions"), name="category_totals"
    )
    return totals.selectExpr("category", "cast(total as double) / auctions as average")


def build(service: StateService, events: DataFrame) -> DataFrame:
    """(category, average), a row whenever an average changes; `events` have a watermark."""
    rises = service.group_by(auctions_and_bids(events), "auction").process(
        WinningBids(), RISES, name="winning_bids", event_time="dateTime"
    )
    return category_totals(service, rises)
