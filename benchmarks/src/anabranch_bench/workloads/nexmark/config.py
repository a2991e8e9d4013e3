"""Parameters of the NEXMark generator, and the arithmetic that needs no randomness."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.chance import Longs

FIRST_ID = 1000
"""Persons and auctions are numbered from here on."""
BLOCK = 100
"""One in so many persons and auctions is a hot one."""
LEAD = 10
"""Bids and auctions may name auctions and persons that are so many ahead of the newest one."""
FIRST_CATEGORY = 10
CATEGORIES = 5
_SHUFFLE = 953
"""A prime: multiples of it permute every group whose size it does not divide."""
_YEARS_100_MS = 100 * 365 * 86_400_000
_RATE_MAX = 1e8


@dataclass(frozen=True)
class NexmarkConfig:
    """Parameters of the generator; the defaults are the benchmark's usual ones."""

    rate: float = 10_000
    """Events a second of event time."""
    seed: int = 0
    base_ms: int = 1_436_918_400_000
    """Event time of event 0, in milliseconds since 1970."""
    persons: int = 1
    auctions: int = 3
    bids: int = 46
    """Of so many events in a row (persons + auctions + bids), how many are of each kind."""
    hot_auction_ratio: int = 2
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    """All but one in so many choose the hot auction, seller, bidder; 1: none does."""
    in_flight_auctions: int = 100
    """Auctions that are open at a time: sets how long one lasts, and how old one may be to get a
    bid that is not for the hot one."""
    active_people: int = 1000
    """Persons among whom sellers and bidders are, apart from the hot ones."""
    person_bytes: int = 200
    auction_bytes: int = 500
    bid_bytes: int = 100
    """Average sizes to which the column `extra` fills an event up."""
    text: bool = False
    """Whether columns that no query needs are filled (they are null otherwise): e-mail, credit
    card, item name, description, channel, url, extra."""
    group: int = 1
    """Events are sent out of order within groups of so many."""
    delayed: float = 0.0
    """Share of the events that are sent late."""
    delay_ms: int = 3000
    """Such events are held back evenly by 1 ms up to this."""
    stub: bool = False
    """No randomness: always hot, prices, categories and states by formula, auctions never end. For
    tests whose results are known in closed form."""

    def __post_init__(self) -> None:
        for name in ("persons", "auctions", "bids", "seed", "base_ms", "delay_ms"):
            self._check(name, getattr(self, name) >= 0, "must not be negative")
        for name in (
            *("hot_auction_ratio", "hot_seller_ratio", "hot_bidder_ratio", "group"),
            *("in_flight_auctions", "active_people"),
            *("person_bytes", "auction_bytes", "bid_bytes"),
        ):
            self._check(name, getattr(self, name) >= 1, "must be at least 1")
        self._check("rate", 0 < self.rate <= _RATE_MAX, f"must be in (0, {_RATE_MAX:,.0f}]")
        self._check("delayed", 0 <= self.delayed <= 1, "must be a share between 0 and 1")
        self._check("persons", self.persons + self.auctions + self.bids > 0, "of all kinds is 0")
        self._check("persons", self.persons > 0 or not self.auctions, "sellers need persons")
        needs_auctions = "is 0 but bids need auctions and persons (or set both to 0)"
        both = (self.auctions > 0) == (self.persons > 0)
        self._check("auctions", both or not self.bids, needs_auctions)
        shuffles = math.gcd(_SHUFFLE, self.group) == 1
        self._check("group", shuffles, f"must not be a multiple of {_SHUFFLE}")

    def _check(self, name: str, is_right: bool, rule: str) -> None:
        if not is_right:
            raise InvalidArgument(f"NEXMark's {name} {rule}, got {getattr(self, name)!r}.")

    @classmethod
    def from_options(cls, options: dict[str, str]) -> NexmarkConfig:
        """From texts, as Spark's `option()` has them; names in any case, `_` or not."""
        kinds = {f.name.replace("_", ""): f for f in fields(cls)}
        values: dict[str, Any] = {}
        for name, text in options.items():
            known = kinds.get(name.lower().replace("_", ""))
            if known is None:
                names = ", ".join(f.name for f in fields(cls))
                raise InvalidArgument(f"NEXMark has no option '{name}'. Known: {names}.")
            values[known.name] = _parse(known.name, str(known.type), text)
        return cls(**values)

    # -- event numbers and times --

    @property
    def total(self) -> int:
        """Events of one round: all kinds together."""
        return self.persons + self.auctions + self.bids

    @property
    def interval_us(self) -> float:
        """Time between two events."""
        return 1e6 / self.rate

    def time_ms(self, events: Longs) -> Longs:
        """Event time of events."""
        micros = np.floor(events * self.interval_us).astype(np.int64)
        return np.asarray(self.base_ms + micros // 1000, np.int64)

    def last_person(self, events: Longs) -> Longs:
        """Ordinal of the newest person at each event."""
        rounds, place = np.divmod(events, self.total)
        return np.asarray(rounds * self.persons + np.minimum(place, self.persons - 1), np.int64)

    def last_auction(self, events: Longs) -> Longs:
        """Ordinal of the newest auction at each event; -1 before the first one."""
        rounds, place = np.divmod(events, self.total)
        within = np.clip(place - self.persons, -1, self.auctions - 1)
        return np.asarray(rounds * self.auctions + within, np.int64)

    def kind(self, events: Longs) -> npt.NDArray[np.int8]:
        """0 for persons, 1 for auctions, 2 for bids."""
        place = events % self.total
        return ((place >= self.persons) * 1 + (place >= self.persons + self.auctions)).astype(
            np.int8
        )

    def shuffled(self, numbers: Longs) -> Longs:
        """The event that has a place in the order of sending, before delays."""
        if self.group == 1:
            return numbers
        start = numbers // self.group * self.group
        return start + (_SHUFFLE * numbers) % self.group

    @property
    def longest_delay_ms(self) -> int:
        """Of events that are sent late."""
        return max(1, self.delay_ms)

    def places(self, held_ms: Longs) -> Longs:
        """How many places of the stream pass in these times."""
        return np.floor(held_ms * self.rate / 1000).astype(np.int64)

    @property
    def delay_places(self) -> int:
        """The longest delay, in places of the stream."""
        return int(self.places(np.array([self.longest_delay_ms]))[0]) if self.delayed else 0

    @property
    def disorder_ms(self) -> float:
        """How much older than the newest event before it an event can be."""
        held_ms = self.longest_delay_ms if self.delayed else 0
        return (self.group - 1) * self.interval_us / 1000 + held_ms

    def horizon_ms(self, events: Longs) -> Longs:
        """Half the longest life of an auction: the time in which `in_flight_auctions` begin."""
        ahead = self.in_flight_auctions * self.total // max(1, self.auctions)
        return self.time_ms(events + ahead) - self.time_ms(events)

    @property
    def never_ms(self) -> int:
        """When auctions end that never do."""
        return self.base_ms + _YEARS_100_MS


def _parse(name: str, kind: str, text: str) -> Any:
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        return int(text) if kind == "int" else float(text)
    except (KeyError, ValueError):
        wanted = {"bool": "true or false", "int": "a whole number"}.get(kind, "a number")
        raise InvalidArgument(f"NEXMark's {name} must be {wanted}, got '{text}'.") from None
