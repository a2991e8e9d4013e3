"""Bids meet their auctions: the state that Q4, Q6 and the auction query share.

A bid counts if it was made while its auction was open, both ends included (`dateTime <= t <=
expires`); there is no reserve price. The winning bid is the highest one.

Rows come in any order. A bid that comes before its auction waits for it. It can wait until the
watermark has reached its own time: an auction that began before it would be late from then on, and
one that begins after it does not take it. In the same way the state of an auction ends when the
watermark has reached its expiry: bids that count would be late.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch_bench.workloads.chance import Longs
from anabranch_bench.workloads.columns import (
    TIME,
    Places,
    elements,
    flags,
    grouped,
    longs,
    owners,
    times,
)

NO_BID = -1


def auctions_and_bids(events: DataFrame) -> DataFrame:
    """Rows for the operator, all under the auction's id: auctions (without price) and bids."""
    return events.where("event_type > 0").select(
        F.coalesce("auction.id", "bid.auction").alias("auction"),
        "dateTime",
        F.col("bid.price").alias("price"),
        F.col("auction.category").alias("category"),
        F.col("auction.seller").alias("seller"),
        F.col("auction.expires").alias("expires"),
    )


@dataclass(frozen=True)
class Standings:
    """What is known of some auctions, one value for each; times in microseconds."""

    known: npt.NDArray[np.bool_]
    """Whether the auction itself has come."""
    category: Longs
    seller: Longs
    starts: Longs
    expires: Longs
    """Of an auction that has not come: when the last bid that waits for it is dropped."""
    best: Longs
    """The highest bid that counts, or NO_BID."""
    bids: Longs
    """Number of bids that count."""


@dataclass(frozen=True)
class Bids:
    """Some bids: the number of the auction within the batch, time, price."""

    of: Places
    at: Longs
    price: Longs

    def where(self, chosen: npt.NDArray[np.bool_]) -> Bids:
        """Some of them."""
        return Bids(self.of[chosen], self.at[chosen], self.price[chosen])


class Bidding(ColumnarProcessor):
    """Keeps the winning bid of every open auction. Subclasses say what to tell downstream."""

    expiry = "expires"
    state_schema = pa.schema(
        [
            ("known", pa.bool_()),
            ("category", pa.int64()),
            ("seller", pa.int64()),
            ("starts", TIME),
            ("expires", TIME),
            ("best", pa.int64()),
            ("bids", pa.int64()),
            ("early_times", pa.list_(pa.int64())),
            ("early_prices", pa.list_(pa.int64())),
        ]
    )

    @abstractmethod
    def changed(self, before: Standings, after: Standings) -> npt.NDArray[np.bool_]:
        """Auctions whose best bid or number of bids must be kept."""

    @abstractmethod
    def tell(self, batch: KeyedBatch, before: Standings, after: Standings) -> pa.Table | None:
        """Rows for downstream; the column `KEY` has the number of each row's auction."""

    def process(self, batch: KeyedBatch) -> Update:
        """Auctions first, then all bids that have one."""
        before = standings(batch)
        opened = _with_auctions(before, batch)
        bids = _all_bids(batch)
        has_auction = opened.known[bids.of]
        after = _with_bids(opened, bids.where(has_auction))
        waiting = bids.where(~has_auction)
        np.maximum.at(after.expires, waiting.of, waiting.at)
        write = (opened.known != before.known) | self.changed(before, after)
        write[waiting.of] = True
        output, output_keys = _split(self.tell(batch, before, after))
        return Update(
            state=_state(after, waiting), write=write, output=output, output_keys=output_keys
        )


KEY = "__key"


def _split(told: pa.Table | None) -> tuple[pa.Table | None, Places | None]:
    if told is None:
        return None, None
    return told.drop_columns([KEY]), np.asarray(told.column(KEY).to_numpy(), np.intp)


def standings(batch: KeyedBatch) -> Standings:
    """What the state has."""
    state = batch.state
    return Standings(
        known=flags(state.column("known")),
        category=longs(state.column("category")),
        seller=longs(state.column("seller")),
        starts=longs(state.column("starts")),
        expires=longs(state.column("expires")),
        best=longs(state.column("best"), NO_BID),
        bids=longs(state.column("bids")),
    )


def _with_auctions(before: Standings, batch: KeyedBatch) -> Standings:
    """With the auctions that this batch brings."""
    rows = np.flatnonzero(batch.rows.column("expires").is_valid().to_numpy())
    at, came = batch.key_of_row()[rows], batch.rows.take(rows)

    def placed(values: Any, column: str) -> Any:
        values = values.copy()
        values[at] = longs(came.column(column))
        return values

    known = before.known.copy()
    known[at] = True
    return replace(
        before,
        known=known,
        category=placed(before.category, "category"),
        seller=placed(before.seller, "seller"),
        starts=placed(before.starts, "dateTime"),
        expires=placed(before.expires, "expires"),
    )


def _all_bids(batch: KeyedBatch) -> Bids:
    """Those of this batch and those that have waited."""
    rows = np.flatnonzero(batch.rows.column("price").is_valid().to_numpy())
    came = batch.rows.take(rows)
    early_times = batch.state.column("early_times")
    early_prices = batch.state.column("early_prices")
    return Bids(
        np.concatenate((batch.key_of_row()[rows], owners(early_times))),
        np.concatenate((longs(came.column("dateTime")), longs(elements(early_times)))),
        np.concatenate((longs(came.column("price")), longs(elements(early_prices)))),
    )


def _with_bids(auctions: Standings, bids: Bids) -> Standings:
    """With the bids that count; `bids` are of auctions that are known."""
    made_in_time = (bids.at >= auctions.starts[bids.of]) & (bids.at <= auctions.expires[bids.of])
    bids = bids.where(made_in_time)
    best = auctions.best.copy()
    np.maximum.at(best, bids.of, bids.price)
    count = auctions.bids + np.bincount(bids.of, minlength=len(best))
    return replace(auctions, best=best, bids=count, expires=auctions.expires.copy())


def _state(after: Standings, waiting: Bids) -> pa.Table:
    count = len(after.known)
    columns = [
        pa.array(after.known),
        pa.array(after.category),
        pa.array(after.seller),
        times(after.starts),
        times(after.expires),
        pa.array(after.best),
        pa.array(after.bids),
        grouped(waiting.of, pa.array(waiting.at), count),
        grouped(waiting.of, pa.array(waiting.price), count),
    ]
    return pa.Table.from_arrays(columns, schema=Bidding.state_schema)
