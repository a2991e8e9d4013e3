"""Bids meet auctions in any order: Q4, Q6 and the auction query against a loop over all events."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from benchmarks.tests.unit.workloads.support import START_MS, TIME, Operator, Watermark
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_bench.workloads.auction import OpenAuctions
from anabranch_bench.workloads.nexmark.q4 import WinningBids
from anabranch_bench.workloads.nexmark.q6 import LastSales, Sales

INPUT = {
    "auction": pa.int64(),
    "dateTime": TIME,
    "price": pa.int64(),
    "category": pa.int64(),
    "seller": pa.int64(),
    "expires": TIME,
}
RISES = {"category": pa.int64(), "rise": pa.int64(), "auctions": pa.int64()}
CHANGES = {"popular": pa.bool_(), "auction": pa.int64(), **RISES}
SALES = {"seller": pa.int64(), "auction": pa.int64(), "closed": TIME, "price": pa.int64()}
AVERAGES = {"seller": pa.int64(), "auction": pa.int64(), "average": pa.float64()}
DELAY_MS = 200


def auction(number: int, at: int, expires: int, category: int = 10, seller: int = 1) -> Any:
    return {
        "auction": number,
        "dateTime": at * 1000,
        "expires": expires * 1000,
        "category": category,
        "seller": seller,
        "price": None,
    }


def bid(number: int, at: int, price: int) -> Any:
    nothing = {"category": None, "seller": None, "expires": None}
    return {"auction": number, "dateTime": at * 1000, "price": price, **nothing}


def auctions() -> Operator:
    return Operator(OpenAuctions(), ["auction"], INPUT, CHANGES, late="dateTime")


T = START_MS


def rises(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return sorted((r["rise"], r["auctions"]) for r in rows if not r["popular"])


def popular(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(r["auction"] for r in rows if r["popular"])


# -- what counts --


def test_a_higher_bid_tells_the_difference() -> None:
    operator = auctions()
    assert rises(operator.run([auction(1, T, T + 100), bid(1, T + 1, 50)])) == [(50, 1)]
    assert rises(operator.run([bid(1, T + 2, 80), bid(1, T + 3, 70)])) == [(30, 0)]


def test_equal_bids_change_nothing() -> None:
    operator = auctions()
    operator.run([auction(1, T, T + 100), bid(1, T + 1, 50)])
    assert operator.run([bid(1, T + 2, 50)]) == []


@pytest.mark.parametrize(
    ("at", "counts"), [(T - 1, False), (T, True), (T + 100, True), (T + 101, False)]
)
@pytest.mark.parametrize("order", ["auction first", "bid first", "together"])
def test_both_ends_count(at: int, counts: bool, order: str) -> None:
    operator = auctions()
    rows = [auction(1, T, T + 100), bid(1, at, 7)]
    if order == "together":
        found = operator.run(rows)
    else:
        first, second = rows if order == "auction first" else rows[::-1]
        found = operator.run([first]) + operator.run([second])
    assert rises(found) == ([(7, 1)] if counts else [])


def test_bids_wait_for_their_auction() -> None:
    operator = auctions()
    assert operator.run([bid(1, T + 5, 30), bid(1, T + 1, 40), bid(2, T, 1)]) == []
    assert operator.run([bid(1, T + 6, 20)]) == []
    assert rises(operator.run([auction(1, T, T + 100)])) == [(40, 1)]


def test_the_eleventh_bid_makes_popular_once() -> None:
    operator = auctions()
    operator.run([auction(1, T, T + 100)])
    assert popular(operator.run([bid(1, T + i, 5) for i in range(10)])) == []
    assert popular(operator.run([bid(1, T + 101, 9)])) == [], "after the end"
    assert popular(operator.run([bid(1, T + 11, 5)])) == [1]
    assert popular(operator.run([bid(1, T + 12, 5)])) == []


def test_early_bids_count_for_popularity() -> None:
    operator = auctions()
    operator.run([bid(1, T + i, 5) for i in range(11)] + [bid(2, T + i, 5) for i in range(10)])
    assert popular(operator.run([auction(1, T, T + 100), auction(2, T, T + 100)])) == [1]


# -- the end of state --


def test_state_ends_with_the_auction() -> None:
    operator = auctions()
    operator.run([auction(1, T, T + 100), bid(1, T, 7)])
    operator.run([], watermark_ms=T + 99)
    assert operator.entries == 1
    operator.run([], watermark_ms=T + 100)
    assert operator.entries == 0


def test_bids_do_not_wait_for_ever() -> None:
    operator = auctions()
    operator.run([bid(1, T + 9, 30), bid(1, T + 5, 30)], watermark_ms=T)
    assert operator.entries == 1
    operator.run([], watermark_ms=T + 8)
    assert operator.entries == 1
    operator.run([], watermark_ms=T + 9)
    assert operator.entries == 0


# -- against a loop, for any order and any batches --


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[int]]:
    """Events out of order by less than the watermark's delay, and sizes of batches."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for number in range(draw(st.integers(1, 5))):
        at = T + draw(st.integers(0, 1500))
        end = at + draw(st.integers(1, 300))
        category, seller = draw(st.integers(10, 11)), draw(st.integers(1, 2))
        rows.append((at, auction(number, at, end, category, seller)))
        for _ in range(draw(st.integers(0, 14))):
            when = draw(st.integers(at - 100, end + 100))
            rows.append((when, bid(number, when, draw(st.integers(1, 6)))))
    sent = [(at + draw(st.integers(0, DELAY_MS - 1)), n) for n, (at, _) in enumerate(rows)]
    ordered = [rows[n][1] for _, n in sorted(sent)]
    return ordered, draw(st.lists(st.integers(0, 12), max_size=12))


def batches(rows: list[Any], sizes: list[int]) -> list[list[Any]]:
    """Cut rows; the last pieces are empty, which lets the watermark catch up."""
    found = []
    for size in sizes:
        found.append(rows[:size])
        rows = rows[size:]
    return [*found, rows, [], []]


def run_all(operator: Operator, rows: list[Any], sizes: list[int]) -> list[list[dict[str, Any]]]:
    watermark = Watermark(DELAY_MS)
    return [
        operator.run(some, *watermark.batch([r["dateTime"] // 1000 for r in some]))
        for some in batches(rows, sizes)
    ]


def valid_bids(rows: list[Any]) -> dict[int, list[int]]:
    """Prices of the bids that count, by auction."""
    found = defaultdict(list)
    known = {r["auction"]: r for r in rows if r["expires"] is not None}
    for row in rows:
        mine = known[row["auction"]]
        if row["price"] and mine["dateTime"] <= row["dateTime"] <= mine["expires"]:
            found[row["auction"]].append(row["price"])
    return found


@settings(max_examples=40)
@given(streams())
def test_auction_query_against_a_loop(stream: tuple[list[Any], list[int]]) -> None:
    rows, sizes = stream
    category = {r["auction"]: r["category"] for r in rows if r["expires"] is not None}
    operator = auctions()
    told = [r for some in run_all(operator, rows, sizes) for r in some]
    expected = valid_bids(rows)
    for kind in (10, 11):
        mine = [r for r in told if r["category"] == kind and not r["popular"]]
        best = [max(prices) for a, prices in expected.items() if category[a] == kind]
        assert sum(r["rise"] for r in mine) == sum(best)
        assert sum(r["auctions"] for r in mine) == len(best)
    assert popular(told) == sorted(a for a, prices in expected.items() if len(prices) > 10)


@settings(max_examples=40)
@given(streams())
def test_q4_tells_the_same_rises(stream: tuple[list[Any], list[int]]) -> None:
    rows, sizes = stream
    q4 = Operator(WinningBids(), ["auction"], INPUT, RISES, late="dateTime")
    for mine, both in zip(run_all(q4, rows, sizes), run_all(auctions(), rows, sizes), strict=True):
        assert sorted((r["category"], r["rise"], r["auctions"]) for r in mine) == sorted(
            (r["category"], r["rise"], r["auctions"]) for r in both if not r["popular"]
        )


@settings(max_examples=40)
@given(streams())
def test_q6_against_a_loop(stream: tuple[list[Any], list[int]]) -> None:
    rows, sizes = stream
    newest = max(r["dateTime"] for r in rows)
    sales = Operator(Sales(), ["auction"], INPUT, SALES, late="dateTime")
    averages = Operator(LastSales(), ["seller"], SALES, AVERAGES)
    found = []
    for some in run_all(sales, rows, sizes):
        sold = [r | {"closed": int(r["closed"].timestamp() * 1_000_000)} for r in some]
        found += averages.run(sold)

    bids = valid_bids(rows)
    closing = sorted(
        (r["expires"], r["auction"], r["seller"])
        for r in rows
        if r["expires"] is not None
        and bids[r["auction"]]
        and r["expires"] <= newest - DELAY_MS * 1000
    )
    prices: dict[int, list[int]] = defaultdict(list)
    expected = []
    for _, number, seller in closing:
        prices[seller].append(max(bids[number]))
        last = prices[seller][-10:]
        expected.append({"seller": seller, "auction": number, "average": sum(last) / len(last)})
    key = lambda row: row["auction"]  # noqa: E731
    assert sorted(found, key=key) == sorted(expected, key=key)


@pytest.mark.parametrize("batch_rows", [1, 4, 11, 60])
def test_last_ten_sales(batch_rows: int) -> None:
    """Many more than ten of each of two sellers, in batches of any size."""
    operator = Operator(LastSales(), ["seller"], SALES, AVERAGES)
    rows = [
        {"seller": n * n % 7 % 2, "auction": n, "closed": (T + n // 3) * 1000, "price": n * n % 101}
        for n in range(60)
    ]
    found = {}
    for at in range(0, len(rows), batch_rows):
        # Within a batch rows come in any order.
        for row in operator.run(rows[at : at + batch_rows][::-1]):
            found[row["auction"]] = row["average"]
    for n, row in enumerate(rows):
        mine = [r["price"] for r in rows[: n + 1] if r["seller"] == row["seller"]][-10:]
        assert found[n] == sum(mine) / len(mine)
