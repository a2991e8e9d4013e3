"""The families of workloads, by the word that `anabranch run` knows them by."""

from __future__ import annotations

from importlib import import_module

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.contract import Family

FAMILIES = {
    "nexmark": (
        "an auction site: queries Q0 to Q8 of the NEXMark benchmark",
        "anabranch_bench.workloads.nexmark.family:NexmarkFamily",
    ),
    "auction": (
        "average winning bids of categories; auctions with more than 10 bids",
        "anabranch_bench.workloads.auction:AuctionFamily",
    ),
    "key-count": (
        "how often each key has come",
        "anabranch_bench.workloads.keycount:KeyCountFamily",
    ),
    "riotbench": (
        "IoT dataflows over sensor messages: ETL, statistics, model training, prediction",
        "anabranch_bench.workloads.riotbench.family:RiotbenchFamily",
    ),
}
"""What each family is, and where: imported when it is asked for, so that help stays fast."""


def find_family(name: str) -> Family:
    """A family by its word."""
    if name not in FAMILIES:
        raise InvalidArgument(f"There is no workload '{name}'. Known: {', '.join(FAMILIES)}.")
    module, _, kind = FAMILIES[name][1].partition(":")
    made = getattr(import_module(module), kind)()
    assert isinstance(made, Family)
    return made
