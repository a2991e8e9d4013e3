"""`anabranch run nexmark`: the options of the generator and the choice of a query."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.contract import Family, Workload
from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.workload import QUERIES, NexmarkWorkload

_OPTIONS = {
    "seed": (int, "of the generator"),
    "hot_auction_ratio": (int, "all but one in N bids are for the hot auction"),
    "hot_seller_ratio": (int, "all but one in N auctions are the hot seller's"),
    "hot_bidder_ratio": (int, "all but one in N bids are the hot bidder's"),
    "in_flight_auctions": (int, "auctions that are open at a time: the size of the state"),
    "active_people": (int, "persons who sell and bid"),
    "group": (int, "events are out of order within groups of N"),
    "delayed": (float, "share of the events that are sent late"),
    "delay_ms": (int, "longest delay of such events"),
    "person_bytes": (int, "average size of a person, with --text"),
    "auction_bytes": (int, "average size of an auction, with --text"),
    "bid_bytes": (int, "average size of a bid, with --text"),
}
"""Parameters of the generator that are options, with what they mean."""


def add_generator_options(parser: argparse.ArgumentParser) -> None:
    """Options of the stream; without them the benchmark's usual values count."""
    options = parser.add_argument_group("stream")
    usual = NexmarkConfig()
    for name, (kind, meaning) in _OPTIONS.items():
        options.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar="N",
            default=getattr(usual, name),
            help=f"{meaning} ({getattr(usual, name):,})",
        )
    options.add_argument("--text", action="store_true", help="fill all text columns")


def config_from(options: argparse.Namespace) -> NexmarkConfig:
    """The generator's parameters; event time runs as fast as the load."""
    values = {name: getattr(options, name) for name in _OPTIONS}
    return NexmarkConfig(rate=options.rate, text=options.text, **values)


class NexmarkFamily(Family):
    """Q0 to Q8."""

    name = "nexmark"
    description = "an auction site: queries Q0 to Q8 of the NEXMark benchmark"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """The query and the stream."""
        known = "; ".join(f"{name}: {query.description}" for name, query in QUERIES.items())
        parser.add_argument("--query", metavar="QN", required=True, help=known)
        add_generator_options(parser)

    def from_options(self, options: argparse.Namespace) -> Workload:
        """One query."""
        query = options.query.lower()
        if query not in QUERIES:
            raise InvalidArgument(
                f"There is no query '{options.query}'. Known: {', '.join(QUERIES)}."
            )
        return NexmarkWorkload(query, config_from(options))

    def standard(self, rate: float) -> Sequence[Workload]:
        """All queries."""
        return [NexmarkWorkload(query, NexmarkConfig(rate=rate)) for query in QUERIES]
