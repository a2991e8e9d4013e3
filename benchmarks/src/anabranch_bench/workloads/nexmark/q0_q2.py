"""Q0, Q1 and Q2: bids passed on, converted and selected; no state."""

from __future__ import annotations

from pyspark.sql import DataFrame

from anabranch.service import StateService

SKIP = 123
"""Q2 keeps auctions whose id is a multiple of this."""


def _bids(events: DataFrame) -> DataFrame:
    return events.where("event_type = 2").select("bid.*", "dateTime")


def build_q0(service: StateService, events: DataFrame) -> DataFrame:
    """Every bid: what a query costs that does nothing."""
    return _bids(events).select("auction", "bidder", "price", "dateTime", "extra")


def build_q1(service: StateService, events: DataFrame) -> DataFrame:
    """Every bid with its price in euros: exactly 0.908 of that in dollars, to a tenth of a cent."""
    return _bids(events).selectExpr(
        "auction", "bidder", "cast(0.908 * price as decimal(23, 3)) as price", "dateTime", "extra"
    )


def build_q2(service: StateService, events: DataFrame) -> DataFrame:
    """Bids on some auctions."""
    return _bids(events).where(f"auction % {SKIP} = 0").select("auction", "price")
