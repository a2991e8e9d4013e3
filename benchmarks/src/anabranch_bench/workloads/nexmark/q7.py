"""Q7: the highest bids of every 10 seconds.

First for each auction, which spreads the work and the state over all workers; then for the window.
All bids with the highest price are told. Windows begin at multiples of 10 seconds since 1970 and do
not contain their end (the benchmark's SQL for Flink includes it, which tells a bid that is made
exactly then twice).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.service import StateService
from anabranch_bench.workloads.columns import elements, flat, grouped, longs, owners
from anabranch_bench.workloads.nexmark.highest import HighestOfWindow

WINDOW = "10 seconds"
BID = pa.struct([("bidder", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
RESULT = "ends timestamp, auction long, bidder long, price long, dateTime timestamp"


class HighestBids(ColumnarProcessor):
    """Keeps the highest bids of each auction in each window until the window ends."""

    expiry = "ends"
    state_schema = pa.schema([("price", pa.int64()), ("bids", pa.list_(BID))])

    def process(self, batch: KeyedBatch) -> Update:
        """Only bids that reach the highest price so far matter."""
        before = longs(batch.state.column("price"), -1)
        highest = np.maximum(batch.reduce(np.maximum, "price"), before)
        of_row = batch.key_of_row()
        rows = np.flatnonzero(longs(batch.rows.column("price")) == highest[of_row])
        kept = batch.state.column("bids")
        still = np.flatnonzero((before == highest)[owners(kept)])
        came = batch.rows.take(rows)
        new = pa.StructArray.from_arrays(
            [flat(came.column("bidder")), flat(came.column("dateTime"))], fields=list(BID)
        )
        bids = pa.concat_arrays([elements(kept).take(still), new])
        of = np.concatenate((owners(kept)[still], of_row[rows]))
        write = np.zeros(batch.num_keys, bool)
        write[of_row[rows]] = True
        state = pa.table({"price": highest, "bids": grouped(of, bids, batch.num_keys)})
        return Update(state=state, write=write)

    def expire(self, batch: KeyedBatch) -> Update:
        """The window has ended."""
        of, bids = owners(batch.state.column("bids")), elements(batch.state.column("bids"))
        keys = batch.keys.take(of)
        output = {
            "ends": keys.column("ends"),
            "auction": keys.column("auction"),
            "bidder": bids.field("bidder"),
            "price": batch.state.column("price").take(of),
            "dateTime": bids.field("at"),
        }
        drop = np.ones(batch.num_keys, bool)
        return Update(drop=drop, output=pa.table(output), output_keys=of)


def build(service: StateService, events: DataFrame) -> DataFrame:
    """(ends, auction, bidder, price, dateTime), when the watermark has passed the window's end."""
    bids = events.where("event_type = 2").select(
        F.window("dateTime", WINDOW)["end"].alias("ends"),
        F.col("bid.auction").alias("auction"),
        F.col("bid.bidder").alias("bidder"),
        F.col("bid.price").alias("price"),
        "dateTime",
    )
    candidates = service.group_by(bids, "ends", "auction").process(
        HighestBids(), RESULT, name="highest_of_auctions", event_time="dateTime"
    )
    return service.group_by(candidates, "ends").process(
        HighestOfWindow("price"), RESULT, name="highest_bids"
    )
