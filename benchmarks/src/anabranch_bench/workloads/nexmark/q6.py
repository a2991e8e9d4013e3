"""Q6: the average selling price of each seller's last 10 auctions.

An auction sells at its highest bid, when it closes (bids as in Q4; an auction without one sells
nothing). The last 10 are by closing time, then by id. Each auction that sells gives a row with the
average so far, over fewer than 10 at first. (In SQL this is an average over the current row and 9
before it. Megaphone's version goes by the winning bidder instead of the seller.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.service import StateService
from anabranch_bench.workloads.columns import elements, grouped, longs, owners, times
from anabranch_bench.workloads.nexmark.bidding import (
    NO_BID,
    Bidding,
    Standings,
    auctions_and_bids,
    standings,
)

LAST = 10
SALES = "seller long, auction long, closed timestamp, price long"
RESULT = "seller long, auction long, average double"


class Sales(Bidding):
    """Tells the selling price of an auction when it closes."""

    def changed(self, before: Standings, after: Standings) -> Any:
        """Only a new highest bid matters."""
        return after.best != before.best

    def tell(self, batch: KeyedBatch, before: Standings, after: Standings) -> None:
        """Nothing before the end."""

    def expire(self, batch: KeyedBatch) -> Update:
        """The auction closes, or bids have waited in vain."""
        last = standings(batch)
        sold = np.flatnonzero(last.best != NO_BID)
        output = {
            "seller": last.seller[sold],
            "auction": longs(batch.keys.column("auction"))[sold],
            "closed": times(last.expires[sold]),
            "price": last.best[sold],
        }
        drop = np.ones(batch.num_keys, bool)
        return Update(drop=drop, output=pa.table(output), output_keys=sold)


class LastSales(ColumnarProcessor):
    """Keeps the last prices of each seller."""

    state_schema = pa.schema([("prices", pa.list_(pa.int64()))])

    def process(self, batch: KeyedBatch) -> Update:
        """Averages over the prices that are kept and those of this batch, one after the other."""
        kept = batch.state.column("prices")
        rows = batch.rows.take(
            np.lexsort(
                (
                    longs(batch.rows.column("auction")),
                    longs(batch.rows.column("closed")),
                    batch.key_of_row(),
                )
            )
        )
        of_row = np.sort(batch.key_of_row())
        of = np.concatenate((owners(kept), of_row))
        prices = np.concatenate((longs(elements(kept)), longs(rows.column("price"))))
        is_new = np.repeat((False, True), (len(of) - len(of_row), len(of_row)))
        order = np.argsort(of, kind="stable")
        of, prices, is_new = of[order], prices[order], is_new[order]

        ends = np.arange(1, len(of) + 1)
        begins = np.maximum(np.searchsorted(of, of), ends - LAST)
        sums = np.concatenate(([0], np.cumsum(prices)))
        averages = (sums[ends] - sums[begins]) / (ends - begins)
        is_kept = np.searchsorted(of, of, side="right") - ends < LAST
        return Update(
            state=pa.table(
                {"prices": grouped(of[is_kept], pa.array(prices[is_kept]), batch.num_keys)}
            ),
            output=pa.table(
                {
                    "seller": rows.column("seller"),
                    "auction": rows.column("auction"),
                    "average": averages[is_new],
                }
            ),
            output_keys=of_row,
        )


def build(service: StateService, events: DataFrame) -> DataFrame:
    """(seller, auction, average), one row for each auction that sells."""
    sales = service.group_by(auctions_and_bids(events), "auction").process(
        Sales(), SALES, name="sales", event_time="dateTime"
    )
    return service.group_by(sales, "seller").process(LastSales(), RESULT, name="last_sales")
