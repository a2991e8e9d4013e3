"""Laws of the NEXMark stream: proportions, ids, hot keys, prices, times, order, independence."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.nexmark.config import NexmarkConfig
from anabranch_bench.workloads.nexmark.generator import AUCTION, BID, PERSON, NexmarkEvents
from anabranch_bench.workloads.nexmark.text import CITIES, HOT_CHANNELS, NAMES, STATES

SIGMAS = 4.5
ROWS = 200_000


def table(config: NexmarkConfig, rows: int = ROWS) -> Any:
    return pa.Table.from_batches([NexmarkEvents(config).between(0, rows)])


def of_kind(events: Any, kind: int) -> Any:
    """The events of a kind, with the fields of their struct as columns."""
    mine = events.filter(pc.equal(events.column("event_type"), kind)).combine_chunks()
    struct = mine.column(("person", "auction", "bid")[kind]).combine_chunks()
    columns = {f.name: struct.field(i) for i, f in enumerate(struct.type)}
    return pa.table({"event": mine.column("event"), "dateTime": mine.column("dateTime")} | columns)


def numbers(rows: Any, column: str) -> Any:
    return rows.column(column).cast(pa.int64()).to_numpy()


@pytest.fixture(scope="module")
def usual() -> Any:
    return table(NexmarkConfig())


def has_share(found: Any, share: float) -> bool:
    """Whether truth values are true with a probability, as far as chance allows."""
    found = np.asarray(found)
    sigma = math.sqrt(share * (1 - share) / len(found))
    return abs(float(found.mean()) - share) < SIGMAS * sigma


# -- numbers and proportions --


@pytest.mark.parametrize(
    ("event", "person", "auction"),
    [
        *((0, 0, -1), (1, 0, 0), (3, 0, 2), (4, 0, 2), (50, 1, 2), (51, 1, 3), (54, 1, 5)),
        *((4999, 99, 299), (5000, 100, 299)),
    ],
)
def test_newest_person_and_auction(event: int, person: int, auction: int) -> None:
    config, events = NexmarkConfig(), np.array([event])
    assert config.last_person(events)[0] == person
    assert config.last_auction(events)[0] == auction


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 20), st.integers(0, 700), st.booleans())
def test_counts_and_ids(persons: int, auctions: int, bids: int, rows: int, stub: bool) -> None:
    config = NexmarkConfig(persons=persons, auctions=auctions, bids=bids, stub=stub)
    events = table(config, rows)
    rounds, rest = divmod(rows, config.total)
    expected = {
        PERSON: rounds * persons + min(rest, persons),
        AUCTION: rounds * auctions + min(max(rest - persons, 0), auctions),
        BID: rounds * bids + max(rest - persons - auctions, 0),
    }
    for kind, count in expected.items():
        found = of_kind(events, kind)
        assert found.num_rows == count
        if kind != BID:
            assert numbers(found, "id").tolist() == list(range(1000, 1000 + count))
    assert events.column("event").to_pylist() == list(range(rows))


def test_only_bids() -> None:
    events = table(NexmarkConfig(persons=0, auctions=0, bids=50), 1000)
    assert of_kind(events, BID).num_rows == 1000
    assert set(numbers(of_kind(events, BID), "auction").tolist()) == set(range(1000, 1011))


# -- chance --


def test_auctions_of_bids(usual: Any) -> None:
    bids = of_kind(usual, BID)
    auction = numbers(bids, "auction") - 1000
    last = NexmarkConfig().last_auction(numbers(bids, "event"))
    hot = last // 100 * 100
    assert np.all(
        (auction == hot) | ((auction >= np.maximum(last - 100, 0)) & (auction <= last + 10))
    )
    steady = last >= 200
    # The hot one is also among the 111 cold ones.
    assert has_share((auction == hot)[steady], 0.5 + 0.5 / 111)
    ahead = (auction > last)[steady]
    assert has_share(ahead, 0.5 * 10 / 111)
    assert np.max(auction - last) == 10


@pytest.mark.parametrize(
    ("kind", "column", "place"),
    [(AUCTION, "seller", 0), (BID, "bidder", 1)],
    ids=["seller", "bidder"],
)
def test_sellers_and_bidders(usual: Any, kind: int, column: str, place: int) -> None:
    rows = of_kind(usual, kind)
    person = numbers(rows, column) - 1000
    last = NexmarkConfig().last_person(numbers(rows, "event"))
    hot = last // 100 * 100 + place
    assert np.all((person == hot) | ((person >= np.maximum(last - 999, 0)) & (person <= last + 10)))
    steady = last >= 1000
    assert has_share((person == hot)[steady], 0.75 + 0.25 / 1010)
    assert np.max(person - last) == 10


def test_hot_ratio_of_one_means_none() -> None:
    events = table(NexmarkConfig(hot_auction_ratio=1, hot_seller_ratio=1), 50_000)
    bids = of_kind(events, BID)
    last = NexmarkConfig().last_auction(numbers(bids, "event"))
    is_hot = numbers(bids, "auction") - 1000 == last // 100 * 100
    assert float(is_hot[last >= 200].mean()) < 0.02


def test_prices(usual: Any) -> None:
    prices = numbers(of_kind(usual, BID), "price")
    assert prices.min() >= 100
    assert prices.max() <= 100_000_000
    unit = np.sort(np.log10(prices / 100) / 6)
    steps = np.arange(1, len(unit) + 1) / len(unit)
    # Kolmogorov and Smirnov's distance; prices are rounded to cents, which shows at the low end.
    assert float(np.max(np.abs(unit - steps))) < 1.95 / math.sqrt(len(unit)) + 0.001
    auctions = of_kind(usual, AUCTION)
    initial, reserve = numbers(auctions, "initialBid"), numbers(auctions, "reserve")
    assert initial.min() >= 100
    assert (reserve - initial).min() >= 100


def test_categories_states_and_names(usual: Any) -> None:
    category = numbers(of_kind(usual, AUCTION), "category")
    assert set(category.tolist()) == {10, 11, 12, 13, 14}
    assert all(has_share(category == c, 0.2) for c in range(10, 15))
    persons = of_kind(usual, PERSON)
    for column, values in (("state", STATES), ("city", CITIES), ("name", NAMES.to_pylist())):
        found = np.array(persons.column(column).to_pylist())
        assert set(found) == set(values)
        assert all(has_share(found == v, 1 / len(values)) for v in values)


# -- time --


@pytest.mark.parametrize(
    ("rate", "event", "expected"),
    [(10_000, 9, 0), (10_000, 10, 1), (10_000, 1000, 100), (1000, 77, 77), (3, 3, 1000)],
)
def test_times(rate: int, event: int, expected: int) -> None:
    config = NexmarkConfig(rate=rate, base_ms=5_000_000)
    assert config.time_ms(np.array([event]))[0] == 5_000_000 + expected


def test_times_do_not_fall(usual: Any) -> None:
    assert np.all(np.diff(numbers(usual, "dateTime")) >= 0)


def test_lives_of_auctions(usual: Any) -> None:
    auctions = of_kind(usual, AUCTION)
    config = NexmarkConfig()
    life = (numbers(auctions, "expires") - numbers(auctions, "dateTime")) // 1000
    horizon = config.horizon_ms(numbers(auctions, "event"))
    assert set(horizon.tolist()) == {166}
    assert life.min() >= 1
    assert np.all(life <= 2 * horizon)
    sigma = 332 / math.sqrt(12 * len(life))
    assert abs(life.mean() - 166.5) < SIGMAS * sigma


# -- order --


@given(st.integers(1, 400).filter(lambda g: g % 953), st.integers(0, 3))
def test_groups_are_permuted(group: int, seed: int) -> None:
    config = NexmarkConfig(group=group, seed=seed, rate=1000)
    events = NexmarkEvents(config).between(0, 3 * group)
    sent = numbers(events, "event").reshape(3, group)
    assert np.array_equal(np.sort(sent, axis=1), np.arange(3 * group).reshape(3, group))
    first = config.time_ms(np.arange(0, 3 * group, group))
    assert np.all(numbers(events, "dateTime").reshape(3, group) >= first[:, None] * 1000)


def test_disorder_changes_the_order_only() -> None:
    plain, shuffled = table(NexmarkConfig(), 5000), table(NexmarkConfig(group=100), 5000)
    assert shuffled.column("event") != plain.column("event")
    assert shuffled.sort_by("event") == plain


def test_delayed_events() -> None:
    config = NexmarkConfig(rate=1000, delayed=0.1, delay_ms=500, group=10)
    generator = NexmarkEvents(config)
    sent = generator.sent(0, 20_000)
    assert len(np.unique(sent)) == len(sent)
    missing = set(range(20_000)) - set(sent.tolist())
    assert missing, "some are still held back"
    assert min(missing) >= 20_000 - 500 - 10
    newest = np.maximum.accumulate(sent)
    behind_ms = newest - sent
    assert behind_ms.max() <= config.disorder_ms
    assert behind_ms.max() > 450
    # An event counts as delayed if it is behind by more than disorder within a group.
    assert has_share(behind_ms[:19_000] >= 10, 0.1 * 490 / 500)


@given(
    st.lists(st.integers(0, 300), max_size=6),
    st.sampled_from([1, 7, 50]),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.booleans(),
    st.booleans(),
    st.one_of(st.integers(1, 3000), st.floats(0.5, 3000)),
    st.integers(0, 400),
)
def test_any_cut_gives_the_same_events(
    sizes: list[int],
    group: int,
    delayed: float,
    text: bool,
    stub: bool,
    rate: float,
    delay_ms: int,
) -> None:
    config = NexmarkConfig(
        rate=rate, group=group, delayed=delayed, delay_ms=delay_ms, text=text, stub=stub, seed=3
    )
    generator = NexmarkEvents(config)
    bounds = np.cumsum([0, *sizes]).tolist()
    pieces = [generator.between(a, b) for a, b in pairwise(bounds)]
    whole = pa.Table.from_batches([generator.between(0, bounds[-1])])
    assert pa.Table.from_batches(pieces, generator.schema) == whole


@pytest.mark.parametrize(
    ("rate", "delay_ms"), [(100, 290), (3000, 1001), (2000, 0), (0.3, 3333), (9999.9, 77)]
)
def test_no_delayed_event_is_lost_between_pieces(rate: float, delay_ms: int) -> None:
    """Whatever way the longest delay is rounded to places of the stream."""
    generator = NexmarkEvents(NexmarkConfig(rate=rate, delayed=1.0, delay_ms=delay_ms))
    rows = 9000
    pieces = [generator.sent(first, first + 3) for first in range(0, rows, 3)]
    whole = generator.sent(0, rows)
    assert np.array_equal(np.concatenate(pieces), whole)
    assert len(np.unique(whole)) == len(whole)


def test_seeds_differ() -> None:
    def prices(seed: int) -> Any:
        return numbers(of_kind(table(NexmarkConfig(seed=seed), 1000), BID), "price")

    assert np.array_equal(prices(1), prices(1))
    assert np.mean(prices(1) == prices(2)) < 0.05


# -- texts --


def test_texts() -> None:
    events = table(NexmarkConfig(text=True), 60_000)
    persons, auctions, bids = (of_kind(events, kind) for kind in (PERSON, AUCTION, BID))
    assert all(
        pc.match_substring_regex(
            persons.column("emailAddress"), r"^[a-z ]*@[a-z ]*\.com$"
        ).to_pylist()
    )
    cards = persons.column("creditCard")
    assert all(pc.match_substring_regex(cards, r"^\d{4} \d{4} \d{4} \d{4}$").to_pylist())
    items = pc.utf8_length(auctions.column("itemName")).to_numpy()
    assert items.max() == 19
    hot = pc.is_in(bids.column("channel"), pa.array(HOT_CHANNELS)).to_numpy()
    assert has_share(hot, 0.5)
    urls = bids.column("url").filter(pa.array(~hot))
    assert has_share(pc.match_substring(urls, "&channel_id=").to_numpy(), 0.9)


@pytest.mark.parametrize(("kind", "size"), [(PERSON, 200), (AUCTION, 500), (BID, 100)])
def test_average_sizes(kind: int, size: int) -> None:
    events = table(NexmarkConfig(text=True), 60_000)
    rows = of_kind(events, kind)
    counted = {PERSON: 8, AUCTION: 48, BID: 32}[kind]
    texts = {
        PERSON: ("name", "emailAddress", "creditCard", "city", "state", "extra"),
        AUCTION: ("itemName", "description", "extra"),
        BID: ("extra",),
    }[kind]
    sizes = counted + sum(pc.binary_length(rows.column(t)).to_numpy() for t in texts)
    assert abs(sizes.mean() - size) < 0.01 * size


def test_without_texts_they_are_null(usual: Any) -> None:
    bids = of_kind(usual, BID)
    assert all(bids.column(c).null_count == bids.num_rows for c in ("channel", "url", "extra"))


# -- mistakes --


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rate": 0}, "rate"),
        ({"group": 953 * 2}, "multiple of 953"),
        ({"delayed": 1.5}, "share"),
        ({"persons": 0}, "sellers"),
        ({"auctions": 0}, "bids need auctions"),
        ({"hot_auction_ratio": 0}, "at least 1"),
        ({"persons": 0, "auctions": 0, "bids": 0}, "0"),
    ],
)
def test_bad_parameters(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        NexmarkConfig(**options)


def test_options_are_texts() -> None:
    config = NexmarkConfig.from_options({"hotauctionratio": "3", "TEXT": "true", "delay_ms": "5"})
    assert (config.hot_auction_ratio, config.text, config.delay_ms) == (3, True, 5)
    with pytest.raises(InvalidArgument, match="whole number"):
        NexmarkConfig.from_options({"seed": "x"})
    with pytest.raises(InvalidArgument, match="Known: rate, seed"):
        NexmarkConfig.from_options({"sead": "1"})
