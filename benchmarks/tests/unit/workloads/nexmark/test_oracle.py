"""The oracles on the stream without randomness, whose results are known in closed form.

Block j of a hundred auctions gets all its bids on its first one; the last bid of a block, which is
the highest, is event 50 * ((100 j + 97) // 3) + 49.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest

from anabranch_bench.workloads.auction import AuctionWorkload
from anabranch_bench.workloads.nexmark import oracle
from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.generator import AUCTION, BID, PERSON, NexmarkEvents
from anabranch_bench.workloads.nexmark.workload import QUERIES, NexmarkWorkload

CASES = [(150_000, 1000), (300_000, 10_000)]
BASE_MS = 1_436_918_400_000
KINDS = (PERSON, AUCTION, BID)

cases = pytest.mark.parametrize(("rows", "rate"), CASES)


@cache
def events(rows: int, rate: int) -> Any:
    config = NexmarkConfig(rate=rate, stub=True, base_ms=BASE_MS)
    return pa.Table.from_batches([NexmarkEvents(config).between(0, rows)])


@cache
def site(rows: int, rate: int) -> oracle.Site:
    """With a watermark that closes everything."""
    return oracle.Site(events(rows, rate), -(10**12), KINDS)


def test_only_what_a_query_reads_moves_its_watermark() -> None:
    """Ten events a second; the last one, at 20 s, is a person."""
    delay_us = 4_000_000
    kinds = {(BID,): 19.9, (AUCTION, BID): 19.9, (PERSON, AUCTION): 20.0}
    for read, newest in kinds.items():
        found = oracle.Site(events(201, 10), delay_us, read).watermark
        assert found == BASE_MS * 1000 + newest * 1_000_000 - delay_us


def winning_price(block: int) -> int:
    return 100 + 50 * ((100 * block + 97) // 3) + 49


@cases
def test_bids_of_hot_auctions(rows: int, rate: int) -> None:
    found = oracle.winners(site(rows, rate))
    blocks = 3 * rows // 5000
    assert found["id"].tolist() == [1000 + 100 * j for j in range(blocks)]
    assert found["bids"].tolist() == [1564 if j % 3 == 2 else 1518 for j in range(blocks)]
    assert found["best"].tolist() == [winning_price(j) for j in range(blocks)]


@cases
def test_q0_to_q2(rows: int, rate: int) -> None:
    bids = [e for e in range(rows) if e % 50 >= 4]
    assert oracle.q0(site(rows, rate)).column("price").to_pylist() == [100 + e for e in bids]
    total = sum(oracle.q1(site(rows, rate)).column("price").to_pylist())
    assert total == Decimal("0.908") * sum(100 + e for e in bids)
    # Auction 12300 is the first hot one that 123 divides: block 113.
    hits = oracle.q2(site(rows, rate)).num_rows
    assert hits == (1564 if rows > 50 * (11_397 // 3) + 49 else 0)


@cases
def test_q3(rows: int, rate: int) -> None:
    found = oracle.q3(site(rows, rate))
    assert found.num_rows == 60 * rows // 15_000
    assert len(set(found.column("auction").to_pylist())) == found.num_rows


@pytest.mark.parametrize(
    ("rows", "rate", "averages"),
    [
        (150_000, 1000, [72582.33, 74249.00, 75915.67, 77582.33, 79249.00]),
        (300_000, 10_000, [147582.33, 149249.00, 150915.67, 152582.33, 154249.00]),
    ],
)
def test_q4_and_the_auction_query(rows: int, rate: int, averages: list[float]) -> None:
    found = oracle.q4(site(rows, rate)).to_pydict()
    assert found["category"] == [10, 11, 12, 13, 14]
    assert found["average"] == pytest.approx(averages, abs=0.005)
    workload = AuctionWorkload(NexmarkConfig(rate=rate, stub=True, base_ms=BASE_MS))
    both = workload.expected(events(rows, rate))
    assert both["averages"].to_pydict() == found
    assert both["popular"].column("auction").to_pylist() == [
        1000 + 100 * j for j in range(3 * rows // 5000)
    ]


@pytest.mark.parametrize(
    ("rows", "rate", "windows", "lowest"), [(150_000, 1000, 79, 2), (300_000, 10_000, 19, 0)]
)
def test_q5(rows: int, rate: int, windows: int, lowest: int) -> None:
    found = oracle.q5(site(rows, rate)).to_pylist()
    bids = {row["starts"]: row["bids"] for row in found}
    assert len(bids) == windows
    assert sorted(set(bids.values())) == ([1518, 1564] if lowest else [1564])
    assert sum(n == 1518 for n in bids.values()) == lowest


def test_q6_of_one_seller_after_the_other() -> None:
    """Auctions never end in this stream: with a watermark far ahead, all close at once, by id."""
    rows, rate = CASES[0]
    far = oracle.Site(events(rows, rate), -(10**16), KINDS)
    found = oracle.q6(far).to_pydict()
    assert found["auction"] == [1000 + 100 * j for j in range(90)]
    by_seller: dict[int, list[int]] = {}
    for block, (seller, average) in enumerate(zip(found["seller"], found["average"], strict=True)):
        # 300 auctions for each block of 100 persons: three hot auctions a seller.
        assert seller == 1000 + 100 * (block // 3)
        prices = by_seller.setdefault(seller, [])
        prices.append(winning_price(block))
        assert average == sum(prices) / len(prices)


@cases
def test_q7(rows: int, rate: int) -> None:
    found = oracle.q7(site(rows, rate)).sort_by("ends").to_pydict()
    windows = rows // (10 * rate)
    assert found["price"] == [100 + 10 * rate * (w + 1) - 1 for w in range(windows)]


@cases
def test_q8(rows: int, rate: int) -> None:
    assert oracle.q8(site(rows, rate)).num_rows == -(-rows // 5000)


def test_windows_that_are_open_are_left_out() -> None:
    rows, rate = CASES[0]
    workload = NexmarkWorkload("q7", NexmarkConfig(rate=rate, stub=True, base_ms=BASE_MS))
    found = workload.expected(events(rows, rate))["result"]
    assert found.num_rows == 14, "the last window ends after the last watermark"


def test_every_query_has_its_oracle() -> None:
    assert list(QUERIES) == [f"q{n}" for n in range(9)]
    for query in QUERIES:
        workload = NexmarkWorkload(query, NexmarkConfig(rate=1000))
        expected = workload.expected(pa.Table.from_batches([workload.events.between(0, 60_000)]))
        assert expected["result"].num_rows > 0, query
