"""Q5: the auctions with the most bids of the last 10 seconds, every 2 seconds.

All auctions that share the highest number are told. Windows begin at multiples of 2 seconds since
1970 and do not contain their end.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch import agg
from anabranch.service import StateService
from anabranch_bench.workloads.nexmark.highest import HighestOfWindow

SIZE, SLIDE = "10 seconds", "2 seconds"
RESULT = "starts timestamp, auction long, bids long"


def build(service: StateService, events: DataFrame) -> DataFrame:
    """(starts, auction, bids), when the watermark has passed the end of the window."""
    bids = events.where("event_type = 2").select(F.col("bid.auction").alias("auction"), "dateTime")
    counts = service.group_by(
        bids, "auction", window=agg.sliding("dateTime", SIZE, SLIDE)
    ).aggregate(bids=agg.count(), name="bids_of_auctions", outputMode="append")
    rows = counts.select(F.col("window.start").alias("starts"), "auction", "bids")
    return service.group_by(rows, "starts").process(
        HighestOfWindow("bids"), RESULT, name="hot_items"
    )
