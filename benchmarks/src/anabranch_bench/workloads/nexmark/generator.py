"""The NEXMark stream: every event is a function of its number, so any piece can be made alone.

Persons, auctions and bids come in fixed proportions. Sellers, bidders and the auctions of bids are
partly hot ones, one in a block of a hundred. Ids of bids and sellers may run up to ten ahead of
what exists, and with `group` and `delayed` events come out of order: a join must not expect one.

Money is in cents. As in Beam and Megaphone the bidder's id counts from 1000, as the person's does
(the generator for Flink adds 1000 twice).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_bench.workloads.chance import Chance, Longs
from anabranch_bench.workloads.nexmark import text
from anabranch_bench.workloads.nexmark.config import (
    BLOCK,
    CATEGORIES,
    FIRST_CATEGORY,
    FIRST_ID,
    LEAD,
    NexmarkConfig,
)

PERSON, AUCTION, BID = 0, 1, 2
"""Values of `event_type`."""

TIME = pa.timestamp("us", "UTC")

PERSON_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("emailAddress", pa.string()),
        ("creditCard", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("extra", pa.string()),
    ]
)
AUCTION_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("itemName", pa.string()),
        ("description", pa.string()),
        ("initialBid", pa.int64()),
        ("reserve", pa.int64()),
        ("expires", TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("extra", pa.string()),
    ]
)
BID_TYPE = pa.struct(
    [
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
        ("extra", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        ("event", pa.int64()),
        ("event_type", pa.int32()),
        ("dateTime", TIME),
        ("person", PERSON_TYPE),
        ("auction", AUCTION_TYPE),
        ("bid", BID_TYPE),
    ]
)

# Draws of an event. Those of a kind may overlap with those of another kind.
_DELAYED, _DELAY = 0, 1
_NAME, _CITY, _STATE, _EMAIL, _CARD, _PERSON_EXTRA = 2, 3, 4, 8, 12, 16
_SELLER, _CATEGORY, _LENGTH, _INITIAL, _RESERVE = 2, 4, 5, 6, 7
_ITEM, _DESCRIPTION, _AUCTION_EXTRA = 8, 10, 12
_AUCTION, _BIDDER, _PRICE, _CHANNEL, _BID_EXTRA = 2, 4, 6, 8, 12

_BID_BYTES = 32
"""Size of a bid without texts, as NEXMark counts."""
_AUCTION_BYTES = 48
_PERSON_BYTES = 8


class NexmarkEvents:
    """The stream of a configuration."""

    def __init__(self, config: NexmarkConfig) -> None:
        self.config = config

    @property
    def schema(self) -> pa.Schema:
        """Event number, kind, event time, and one struct for each kind; two of them are null."""
        return SCHEMA

    def between(self, first: int, end: int) -> pa.RecordBatch:
        """Events that are sent in the places [first, end)."""
        return self.events(self.sent(first, end))

    def sent(self, first: int, end: int) -> Longs:
        """Numbers of the events of these places, in the order of sending."""
        config = self.config
        if not config.delayed:
            return config.shuffled(np.arange(first, end, dtype=np.int64))
        numbers = np.arange(max(0, first - config.delay_places), end, dtype=np.int64)
        events = config.shuffled(numbers)
        chance = Chance(config.seed, events)
        held = config.places(1 + chance.below(_DELAY, config.longest_delay_ms))
        places = numbers + np.where(chance.unit(_DELAYED) < config.delayed, held, 0)
        inside = np.flatnonzero((places >= first) & (places < end))
        return np.asarray(events[inside[np.argsort(places[inside], kind="stable")]])

    def events(self, numbers: Longs) -> pa.RecordBatch:
        """The events with these numbers."""
        kinds = self.config.kind(numbers)
        columns = [
            pa.array(numbers),
            pa.array(kinds, pa.int32()),
            _times(self.config.time_ms(numbers)),
        ]
        for kind, make in ((PERSON, self._persons), (AUCTION, self._auctions), (BID, self._bids)):
            chosen = np.flatnonzero(kinds == kind)
            columns.append(_spread(make(numbers[chosen]), chosen, len(numbers)))
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    # -- the three kinds --

    def _persons(self, events: Longs) -> Any:
        config, chance = self.config, Chance(self.config.seed, events)
        ordinals = config.last_person(events)
        state = ordinals % 6 if config.stub else chance.below(_STATE, len(text.STATES))
        names, cities = text.names(chance, _NAME), text.cities(chance, _CITY)
        email = card = extra = pa.nulls(len(events), pa.string())
        if config.text:
            email, card = text.emails(chance, _EMAIL), text.cards(chance, _CARD)
            size = _PERSON_BYTES + 2 + sum(_sizes(c) for c in (names, cities, email, card))
            extra = text.padding(chance, _PERSON_EXTRA, size, config.person_bytes)
        ids = pa.array(FIRST_ID + ordinals)
        fields = [ids, names, email, card, cities, text.states(state), extra]
        return pa.StructArray.from_arrays(fields, fields=list(PERSON_TYPE))

    def _auctions(self, events: Longs) -> Any:
        config, chance = self.config, Chance(self.config.seed, events)
        ordinals = config.last_auction(events)
        category = chance.below(_CATEGORY, CATEGORIES)
        life = 1 + chance.below(_LENGTH, np.maximum(2 * config.horizon_ms(events), 1))
        expires = config.time_ms(events) + life
        if config.stub:
            category = (ordinals + ordinals // BLOCK) % CATEGORIES
            expires = np.full(len(events), config.never_ms)
        initial = self._prices(chance, _INITIAL, events)
        reserve = initial + self._prices(chance, _RESERVE, events)
        item = description = extra = pa.nulls(len(events), pa.string())
        if config.text:
            item = text.words(chance, _ITEM, 20)
            description = text.words(chance, _DESCRIPTION, 100)
            size = _AUCTION_BYTES + _sizes(item) + _sizes(description)
            extra = text.padding(chance, _AUCTION_EXTRA, size, config.auction_bytes)
        fields = [
            pa.array(FIRST_ID + ordinals),
            item,
            description,
            pa.array(initial),
            pa.array(reserve),
            _times(expires),
            pa.array(self._people(chance, _SELLER, events, config.hot_seller_ratio, 0)),
            pa.array(FIRST_CATEGORY + category),
            extra,
        ]
        return pa.StructArray.from_arrays(fields, fields=list(AUCTION_TYPE))

    def _bids(self, events: Longs) -> Any:
        config, chance = self.config, Chance(self.config.seed, events)
        last = np.maximum(config.last_auction(events), 0)
        first = np.maximum(last - config.in_flight_auctions, 0)
        cold = first + chance.below(_AUCTION, last - first + 1 + LEAD)
        is_hot = self._is_hot(chance, _AUCTION + 1, config.hot_auction_ratio)
        auction = FIRST_ID + np.where(is_hot, last // BLOCK * BLOCK, cold)
        channel = url = extra = pa.nulls(len(events), pa.string())
        if config.text:
            channel, url = text.channels(chance, _CHANNEL)
            sizes = np.full(len(events), _BID_BYTES)
            extra = text.padding(chance, _BID_EXTRA, sizes, config.bid_bytes)
        fields = [
            pa.array(auction),
            # The second of the block: the hot bidder is never the hot seller.
            pa.array(self._people(chance, _BIDDER, events, config.hot_bidder_ratio, 1)),
            pa.array(self._prices(chance, _PRICE, events)),
            channel,
            url,
            extra,
        ]
        return pa.StructArray.from_arrays(fields, fields=list(BID_TYPE))

    # -- laws --

    def _is_hot(self, chance: Chance, draw: int, ratio: int) -> Any:
        return True if self.config.stub else chance.below(draw, ratio) > 0

    def _people(self, chance: Chance, draw: int, events: Longs, ratio: int, hot: int) -> Longs:
        """Ids of persons: the one with place `hot` in its block, or one of the active ones."""
        last = np.maximum(self.config.last_person(events), 0)
        active = np.minimum(last + 1, self.config.active_people)
        cold = last + 1 - active + chance.below(draw, active + LEAD)
        is_hot = self._is_hot(chance, draw + 1, ratio)
        return np.asarray(FIRST_ID + np.where(is_hot, last // BLOCK * BLOCK + hot, cold))

    def _prices(self, chance: Chance, draw: int, events: Longs) -> Longs:
        """From 1 to a million, even on a logarithmic scale; in cents."""
        if self.config.stub:
            return 100 + events
        return np.round(100 * np.power(10.0, 6 * chance.unit(draw))).astype(np.int64)


def _times(millis: Longs) -> Any:
    return pa.array(millis * 1000).view(TIME)


def _sizes(texts: Any) -> Longs:
    return np.asarray(pc.binary_length(texts).to_numpy(zero_copy_only=False), np.int64)


def _spread(values: Any, places: Any, size: int) -> Any:
    """An array with values in some places and null elsewhere."""
    at = np.zeros(size, np.int64)
    at[places] = np.arange(len(places))
    is_null = np.ones(size, bool)
    is_null[places] = False
    return values.take(pa.array(at, mask=is_null))
