"""Q0 to Q8 over a whole stream at once, in pandas: what the streaming queries must come to."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_bench.workloads.columns import TIME
from anabranch_bench.workloads.nexmark.generator import AUCTION, BID, PERSON

MICROS = 1_000_000


class Site:
    """Persons, auctions and bids of a stream as data frames; times in microseconds (`at`)."""

    def __init__(self, events: pa.Table, watermark_delay_us: int, kinds: Sequence[int]) -> None:
        """A query that reads events of some `kinds` only."""
        self.persons = _frame(events, PERSON, "person")
        self.auctions = _frame(events, AUCTION, "auction")
        self.bids = _frame(events, BID, "bid")
        read = [(self.persons, self.auctions, self.bids)[kind] for kind in kinds]
        newest = max((int(frame["at"].max()) for frame in read if len(frame)), default=0)
        self.watermark = newest - watermark_delay_us
        """Where the query's watermark ends up: others' events do not move it."""


def _frame(events: pa.Table, kind: int, column: str) -> pd.DataFrame:
    mine = events.filter(pc.equal(events.column("event_type"), kind)).combine_chunks()
    structs = mine.column(column).combine_chunks()
    columns = {field.name: structs.field(i) for i, field in enumerate(structs.type)}
    columns["at"] = mine.column("dateTime")
    columns["event"] = mine.column("event")
    plain = {
        name: values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
        for name, values in columns.items()
    }
    return pa.table(plain).to_pandas()


def winners(site: Site) -> pd.DataFrame:
    """Auctions that have had a bid that counts: with the highest one (`best`) and their number."""
    pairs = site.bids.merge(
        site.auctions[["id", "at", "expires", "seller", "category"]],
        left_on="auction",
        right_on="id",
        suffixes=("", "_auction"),
    )
    pairs = pairs[(pairs["at"] >= pairs["at_auction"]) & (pairs["at"] <= pairs["expires"])]
    found = pairs.groupby(["id", "category", "seller", "expires"], as_index=False)
    return found.agg(best=("price", "max"), bids=("price", "size"))


def q4(site: Site) -> pa.Table:
    """Exact averages of whole numbers."""
    sums = winners(site).groupby("category")["best"].agg(["sum", "count"])
    averages = sums["sum"] / sums["count"]
    return pa.table({"category": sums.index.to_numpy(), "average": averages.to_numpy()})


def q0(site: Site) -> pa.Table:
    """Every bid."""
    bids = site.bids
    return _table(bids, ["auction", "bidder", "price"], at="dateTime", texts=["extra"])


def q1(site: Site) -> pa.Table:
    """Thousandths of a cent are exact: 908 times the price."""
    bids = q0(site)
    thousandths = [Decimal(908 * price).scaleb(-3) for price in bids.column("price").to_pylist()]
    at = bids.schema.get_field_index("price")
    return bids.set_column(at, "price", pa.array(thousandths, pa.decimal128(23, 3)))


def q2(site: Site) -> pa.Table:
    """Bids on every 123rd auction."""
    return _table(site.bids[site.bids["auction"] % 123 == 0], ["auction", "price"])


def q3(site: Site) -> pa.Table:
    """A plain join."""
    auctions = site.auctions[site.auctions["category"] == 10][["id", "seller"]]
    persons = site.persons[site.persons["state"].isin(["OR", "ID", "CA"])]
    pairs = auctions.rename(columns={"id": "auction"}).merge(
        persons, left_on="seller", right_on="id"
    )
    return _table(pairs, ["auction"], texts=["name", "city", "state"])


def q5(site: Site) -> pa.Table:
    """Every bid into its five windows."""
    bids = site.bids[["auction", "at"]]
    last = bids["at"] // (2 * MICROS) * 2 * MICROS
    windows = pd.concat([bids.assign(starts=last - 2 * MICROS * n) for n in range(5)])
    counts = windows.groupby(["starts", "auction"], as_index=False).agg(bids=("at", "size"))
    counts = counts[counts["starts"] + 10 * MICROS <= site.watermark]
    highest = counts.groupby("starts")["bids"].transform("max")
    return _table(counts[counts["bids"] == highest], ["auction", "bids"], starts="starts")


def q6(site: Site) -> pa.Table:
    """Auction by auction, in the order in which they close."""
    closed = winners(site)
    closed = closed[closed["expires"] <= site.watermark].sort_values(["expires", "id"])
    prices: dict[int, list[int]] = {}
    averages = []
    for seller, best in zip(closed["seller"], closed["best"], strict=True):
        last = prices.setdefault(seller, [])
        last.append(best)
        del last[:-10]
        averages.append(sum(last) / len(last))
    closed = closed.rename(columns={"id": "auction"})
    return _table(closed, ["seller", "auction"]).append_column(
        "average", pa.array(averages, pa.float64())
    )


def q7(site: Site) -> pa.Table:
    """Every bid into its window."""
    bids = site.bids.assign(ends=(site.bids["at"] // (10 * MICROS) + 1) * 10 * MICROS)
    bids = bids[bids["ends"] <= site.watermark]
    highest = bids[bids["price"] == bids.groupby("ends")["price"].transform("max")]
    return _table(highest, ["auction", "bidder", "price"], ends="ends", at="dateTime")


def q8(site: Site) -> pa.Table:
    """Distinct pairs of person and window that both sides have."""

    def windowed(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(starts=frame["at"] // (10 * MICROS) * 10 * MICROS)

    sellers = windowed(site.auctions)[["seller", "starts"]].drop_duplicates()
    pairs = windowed(site.persons).merge(
        sellers, left_on=["id", "starts"], right_on=["seller", "starts"]
    )
    return _table(pairs, ["id"], texts=["name"], starts="starts")


def _table(
    frame: pd.DataFrame, numbers: list[str], texts: Sequence[str] = (), **timestamps: str
) -> pa.Table:
    """Columns of a frame with the types of the queries; timestamps as `column=name`."""
    columns = {n: pa.array(frame[n].to_numpy(), pa.int64()) for n in numbers}
    columns |= {n: pa.array(frame[n].to_numpy(), pa.string()) for n in texts}
    columns |= {
        name: pa.array(frame[column].to_numpy(), pa.int64()).view(TIME)
        for column, name in timestamps.items()
    }
    return pa.table(columns)
