"""The joins and windows of Q3, Q5, Q7 and Q8 without Spark, for any order and any batches."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from benchmarks.tests.unit.workloads.support import START_MS, TIME, Operator, Watermark
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch_bench.workloads.nexmark.highest import HighestOfWindow
from anabranch_bench.workloads.nexmark.q3 import LocalItems
from anabranch_bench.workloads.nexmark.q7 import HighestBids
from anabranch_bench.workloads.nexmark.q8 import NewSellers

TEXT, LONG = pa.string(), pa.int64()
WINDOW_MS = 10_000
DELAY_MS = 4000


def cut(rows: list[Any], sizes: list[int]) -> list[list[Any]]:
    found = []
    for size in sizes:
        found.append(rows[:size])
        rows = rows[size:]
    return [*found, rows]


# -- Q3 --

PERSONS = st.dictionaries(st.integers(0, 5), st.booleans())
AUCTIONS = st.lists(st.integers(0, 5), max_size=20)
SIZES = st.lists(st.integers(0, 8), max_size=8)


@settings(max_examples=40)
@given(PERSONS, AUCTIONS, SIZES, st.randoms())
def test_q3_against_a_join(
    persons: dict[int, bool], sellers: list[int], sizes: list[int], chance: Any
) -> None:
    operator = Operator(
        LocalItems(),
        ["seller"],
        {"seller": LONG, "is_person": pa.bool_(), "name": TEXT, "city": TEXT, "state": TEXT}
        | {"auction": LONG},
        {"name": TEXT, "city": TEXT, "state": TEXT, "auction": LONG},
    )
    nobody = {"name": None, "city": None, "state": None}
    rows = [
        {"seller": p, "is_person": True, "auction": None}
        | ({"name": f"n{p}", "city": f"c{p}", "state": "OR"} if local else nobody)
        for p, local in persons.items()
    ] + [{"seller": s, "is_person": False, "auction": n, **nobody} for n, s in enumerate(sellers)]
    chance.shuffle(rows)
    found = [row for some in cut(rows, sizes) for row in operator.run(some)]
    assert sorted((r["auction"], r["name"], r["city"]) for r in found) == [
        (n, f"n{s}", f"c{s}") for n, s in enumerate(sellers) if persons.get(s)
    ]
    state = [
        r
        for t in operator.worker.tables.values()
        for s in t.export().values()
        for r in s.to_pylist()
    ]
    waiting = sum(len(row["waiting"]) for row in state)
    assert waiting == sum(s not in persons for s in sellers), "auctions of known sellers are gone"


# -- windows --


def bids() -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """(time, auction, price), not far out of order."""
    one = st.tuples(st.integers(0, 45_000), st.integers(1, 3), st.integers(1, 4))
    return st.lists(st.tuples(one, st.integers(0, DELAY_MS - 1)), max_size=40).map(
        lambda found: [b for b, _ in sorted(found, key=lambda f: f[0][0] + f[1])]
    )


@settings(max_examples=40)
@given(bids(), SIZES)
def test_q7_against_a_loop(made: list[tuple[int, int, int]], sizes: list[int]) -> None:
    row = {"ends": TIME, "auction": LONG, "bidder": LONG, "price": LONG, "dateTime": TIME}
    candidates = Operator(HighestBids(), ["ends", "auction"], row, row, late="dateTime")
    highest = Operator(HighestOfWindow("price"), ["ends"], row, row)
    rows = [
        {
            "ends": ((START_MS + at) // WINDOW_MS + 1) * WINDOW_MS * 1000,
            "auction": auction,
            "bidder": number,
            "price": price,
            "dateTime": (START_MS + at) * 1000,
        }
        for number, (at, auction, price) in enumerate(made)
    ]
    watermark, found = Watermark(DELAY_MS), []
    for some in [*cut(rows, sizes), [], []]:
        told = candidates.run(some, *watermark.batch([r["dateTime"] // 1000 for r in some]))
        plain = [
            r | {n: int(r[n].timestamp() * 1_000_000) for n in ("ends", "dateTime")} for r in told
        ]
        found += [r["bidder"] for r in highest.run(plain)]
    closed = [r for r in rows if r["ends"] <= watermark.now * 1000]
    best = {
        e: max(r["price"] for r in closed if r["ends"] == e) for e in {r["ends"] for r in closed}
    }
    assert sorted(found) == [r["bidder"] for r in closed if r["price"] == best[r["ends"]]]
    still_open = {(r["ends"], r["auction"]) for r in rows if r not in closed}
    assert candidates.entries == len(still_open)
    assert highest.entries == 0


def test_ties_are_all_told() -> None:
    row = {"starts": TIME, "auction": LONG, "bids": LONG}
    operator = Operator(HighestOfWindow("bids"), ["starts"], row, row)
    counts = [(1, 1, 5), (1, 2, 5), (1, 3, 4), (2, 1, 1)]
    found = operator.run([dict(zip(row, values, strict=True)) for values in counts])
    assert sorted((r["auction"], r["bids"]) for r in found) == [(1, 1), (1, 5), (2, 5)]


def new_sellers() -> Operator:
    return Operator(
        NewSellers(),
        ["id", "starts", "ends"],
        {"id": LONG, "starts": TIME, "ends": TIME, "name": TEXT, "dateTime": TIME},
        {"id": LONG, "name": TEXT, "starts": TIME},
        late="dateTime",
    )


def test_q8_tells_a_person_once() -> None:
    operator = new_sellers()
    window = {"id": 1, "starts": START_MS * 1000, "ends": (START_MS + WINDOW_MS) * 1000}
    auction = window | {"name": None, "dateTime": (START_MS + 5) * 1000}
    person = window | {"name": "Kate Smith", "dateTime": (START_MS + 9) * 1000}
    told = [len(operator.run(rows)) for rows in ([auction], [auction], [person], [auction])]
    assert told == [0, 0, 1, 0]


@settings(max_examples=40)
@given(bids(), SIZES)
def test_q8_against_a_loop(made: list[tuple[int, int, int]], sizes: list[int]) -> None:
    """Times and keys of bids, taken as persons (price 1) and auctions (others)."""
    operator = new_sellers()
    persons: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    for at, key, price in made:
        start = (START_MS + at) // WINDOW_MS * WINDOW_MS
        if price == 1 and key in persons:
            continue  # a person comes once
        if price == 1:
            persons[key] = start
        rows.append(
            {
                "id": key,
                "starts": start * 1000,
                "ends": (start + WINDOW_MS) * 1000,
                "name": f"n{key}" if price == 1 else None,
                "dateTime": (START_MS + at) * 1000,
            }
        )
    watermark, found = Watermark(DELAY_MS), []
    for some in [*cut(rows, sizes), [], []]:
        found += operator.run(some, *watermark.batch([r["dateTime"] // 1000 for r in some]))
    sold = {(r["id"], r["starts"] // 1000) for r in rows if r["name"] is None}
    told = Counter((r["id"], r["name"], int(r["starts"].timestamp() * 1000)) for r in found)
    assert told == Counter((k, f"n{k}", s) for k, s in persons.items() if (k, s) in sold)
    still_open = {(r["id"], r["ends"]) for r in rows if r["ends"] > watermark.now * 1000}
    assert operator.entries == len(still_open)
