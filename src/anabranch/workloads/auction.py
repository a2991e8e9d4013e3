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

Both outputs come from one operator, which has the state of every open auction. Its rows are
differences for the categories (see NEXMark's Q4) and popular auctions, told apart by a column. The
state of an auction ends when the watermark has reached its expiry.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch import agg
from anabranch.processor.columnar.api import KeyedBatch
from anabranch.service import StateService
from anabranch.workloads.contract import Family, Output, Workload
from anabranch.workloads.nexmark import oracle
from anabranch.workloads.nexmark.bidding import (
    KEY,
    NO_BID,
    Bidding,
    Standings,
    auctions_and_bids,
)
from anabranch.workloads.nexmark.config import NexmarkConfig
from anabranch.workloads.nexmark.family import add_generator_options, config_from
from anabranch.workloads.nexmark.generator import NexmarkEvents
from anabranch.workloads.nexmark.workload import (
    WATERMARK_DELAY_MS,
    check_disorder,
    with_watermark,
)

POPULAR = 10
"""An auction with more bids than this is popular."""

AVERAGES_OUTPUT, POPULAR_OUTPUT = "averages", "popular"
CHANGES = "popular boolean, auction long, category long, rise long, auctions long"


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


def build(service: StateService, events: DataFrame) -> dict[str, DataFrame]:
    """Both outputs; `events` have a watermark."""
    changes = service.group_by(auctions_and_bids(events), "auction").process(
        OpenAuctions(), CHANGES, name="open_auctions", event_time="dateTime", own_stage=True
    )
    totals = service.group_by(changes.where("not popular"), "category").aggregate(
        total=agg.sum("rise"),
        auctions=agg.sum("auctions"),
        name="category_totals",
        own_stage=True,
    )
    return {
        AVERAGES_OUTPUT: totals.selectExpr(
            "category", "cast(total as double) / auctions as average"
        ),
        POPULAR_OUTPUT: changes.where("popular").select("auction", "category"),
    }


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

    def build(self, service: StateService, events: DataFrame) -> Mapping[str, DataFrame]:
        """Both outputs."""
        return build(service, with_watermark(events))

    def expected(self, events: pa.Table) -> Mapping[str, pa.Table]:
        """A join over all events at once."""
        site = oracle.Site(events, WATERMARK_DELAY_MS * 1000)
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
