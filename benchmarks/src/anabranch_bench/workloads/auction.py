"""The auction query: winning bids of each category, and auctions that many bid on.

Two outputs from one stream of auctions and bids:

`averages`
    The average, over the auctions of a category, of the current winning bids: (category, average),
    a row whenever it changes. It changes when an auction gets its first bid and when a higher bid
    comes.
`popular`
    Auctions that get more than 10 bids during their life: (auction, category), once, with the
    11th.

What counts: a bid that was made while its auction was open, both ends included; there is no reserve
price. A bid that comes before its auction waits for it, and counts if the auction had begun when it
was made. A bid made after the end never counts, whenever it comes. Among equal bids the first one
wins, so a bid that only equals the winning one changes nothing (it counts as one of the 11).

One operator has the state of every open auction, until the watermark has reached its expiry. Its
rows are differences for the categories (see NEXMark's Q4) and popular auctions, told apart by a
column; the next operator makes averages of the former and passes the latter on.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.service import StateService
from anabranch_bench.workloads.columns import flags, longs
from anabranch_bench.workloads.contract import Family, Output, Workload
from anabranch_bench.workloads.nexmark import oracle
from anabranch_bench.workloads.nexmark.bidding import (
    KEY,
    NO_BID,
    Bidding,
    Standings,
    auctions_and_bids,
)
from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.family import add_generator_options, config_from
from anabranch_bench.workloads.nexmark.generator import AUCTION, BID, NexmarkEvents
from anabranch_bench.workloads.nexmark.workload import (
    WATERMARK_DELAY_MS,
    check_disorder,
    with_watermark,
)
from anabranch_bench.workloads.source import tagged

POPULAR = 10
"""An auction with more bids than this is popular."""

KINDS = (AUCTION, BID)
"""What it reads."""

AVERAGES_OUTPUT, POPULAR_OUTPUT = "averages", "popular"
CHANGES = "popular boolean, auction long, category long, rise long, auctions long"
RESULT = "popular boolean, auction long, category long, average double"


class OpenAuctions(Bidding):
    """Winning bid and number of bids of every open auction."""

    def changed(self, before: Standings, after: Standings) -> Any:
        """Bids are counted until there are enough."""
        is_counted = (after.bids != before.bids) & (before.bids <= POPULAR)
        return is_counted | (after.best != before.best)

    def tell(self, batch: KeyedBatch, before: Standings, after: Standings) -> pa.Table:
        """Rows of both kinds."""
        auction = batch.keys.column("auction").to_numpy()
        risen = np.flatnonzero(after.best != before.best)
        is_first = before.best[risen] == NO_BID
        rise = after.best[risen] - np.where(is_first, 0, before.best[risen])
        popular = np.flatnonzero((after.bids > POPULAR) & (before.bids <= POPULAR))
        none = np.zeros(len(popular), np.int64)
        at = np.concatenate((risen, popular))
        return pa.table(
            {
                "popular": np.repeat((False, True), (len(risen), len(popular))),
                "auction": auction[at],
                "category": after.category[at],
                "rise": np.concatenate((rise, none)),
                "auctions": np.concatenate((is_first.astype(np.int64), none)),
                KEY: at,
            }
        )


class Averages(ColumnarProcessor):
    """Keeps sum and number of the winning bids of each category; passes popular auctions on."""

    state_schema = pa.schema([("total", pa.int64()), ("auctions", pa.int64())])

    def process(self, batch: KeyedBatch) -> Update:
        """One average for each category that has changed."""
        total = longs(batch.state.column("total")) + batch.reduce(np.add, "rise")
        auctions = longs(batch.state.column("auctions")) + batch.reduce(np.add, "auctions")
        # A new winner is always a rise: prices are above 0.
        changed = batch.reduce(np.add, "rise") > 0
        at = np.flatnonzero(changed)
        averages = pa.table(
            {
                "popular": np.zeros(len(at), bool),
                "auction": pa.nulls(len(at), pa.int64()),
                "category": batch.keys.column("category").take(at),
                "average": total[at] / auctions[at],
            }
        )
        popular = np.flatnonzero(flags(batch.rows.column("popular")))
        passed = batch.rows.take(popular).select(["popular", "auction", "category"])
        nothing = pa.nulls(len(popular), pa.float64())
        return Update(
            state=pa.table({"total": total, "auctions": auctions}),
            write=changed,
            output=pa.concat_tables([averages, passed.append_column("average", nothing)]),
            output_keys=np.concatenate((at, batch.key_of_row()[popular])),
        )


def build(service: StateService, events: DataFrame) -> DataFrame:
    """Rows of both outputs, told apart by `popular`; `events` have a watermark.

    A sink for both is a function for foreachBatch that writes each kind where it belongs.
    """
    changes = service.group_by(auctions_and_bids(events), "auction").process(
        OpenAuctions(), CHANGES, name="open_auctions", event_time="dateTime"
    )
    return service.group_by(changes, "category").process(Averages(), RESULT, name="averages")


class AuctionWorkload(Workload):
    """The auction query on NEXMark's stream."""

    name = "auction"
    description = "average winning bids of categories; auctions with more than 10 bids"
    outputs: Mapping[str, Output] = {
        AVERAGES_OUTPUT: Output(keys=("category",)),
        POPULAR_OUTPUT: Output(),
    }

    def __init__(self, config: NexmarkConfig | None = None) -> None:
        self.config = config or NexmarkConfig()
        check_disorder(self.config)
        self.events = NexmarkEvents(self.config)

    def build(self, service: StateService, events: DataFrame) -> DataFrame:
        """Both outputs."""
        return tagged(
            build(service, with_watermark(events, KINDS)),
            {
                AVERAGES_OUTPUT: ("not popular", ["category", "average"]),
                POPULAR_OUTPUT: ("popular", ["auction", "category"]),
            },
        )

    def expected(self, events: pa.Table) -> Mapping[str, pa.Table]:
        """A join over all events at once."""
        site = oracle.Site(events, WATERMARK_DELAY_MS * 1000, KINDS)
        auctions = oracle.winners(site)
        popular = auctions[auctions["bids"] > POPULAR]
        return {
            AVERAGES_OUTPUT: oracle.q4(site),
            POPULAR_OUTPUT: pa.table(
                {"auction": popular["id"].to_numpy(), "category": popular["category"].to_numpy()}
            ),
        }


class AuctionFamily(Family):
    """The auction query alone."""

    name = "auction"
    description = AuctionWorkload.description

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """The stream."""
        add_generator_options(parser)

    def from_options(self, options: argparse.Namespace) -> Workload:
        """The only one."""
        return AuctionWorkload(config_from(options))

    def standard(self, rate: float) -> Sequence[Workload]:
        """The only one."""
        return [AuctionWorkload(NexmarkConfig(rate=rate))]
