"""The texts of NEXMark events: names, addresses, channels, padding; all from draws of the event."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_bench.workloads.chance import Chance, Longs

FIRST_NAMES = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah"),
    *("Deiter", "Walter"),
)
LAST_NAMES = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones"),
    "Noris",
)
CITIES = (
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond"),
    *("Seattle", "Kent", "Cheyenne"),
)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000
"""Channels that are not hot."""

NAMES = pa.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
_CITIES = pa.array(CITIES)
_STATES = pa.array(STATES)
_SEPARATOR_BYTES = 20
"""Of 256 byte values, so many stand for a separator: one in 13."""


def names(chance: Chance, draw: int) -> Any:
    """First and last names."""
    return NAMES.take(pa.array(chance.below(draw, len(NAMES))))


def cities(chance: Chance, draw: int) -> Any:
    """One of ten cities."""
    return _CITIES.take(pa.array(chance.below(draw, len(CITIES))))


def states(numbers: Longs) -> Any:
    """States by number."""
    return _STATES.take(pa.array(numbers))


def words(chance: Chance, draw: int, limit: int, separator: str = " ") -> Any:
    """3 to `limit - 1` letters and separators, trimmed."""
    sizes = 3 + chance.below(draw, limit - 3)
    noise, offsets = chance.bytes(draw + 1, sizes)
    letters = ord("a") + (noise.astype(np.int64) - _SEPARATOR_BYTES) * 26 // 236
    letters = np.where(noise < _SEPARATOR_BYTES, ord(separator), letters).astype(np.uint8)
    return pc.utf8_trim(_texts(letters, offsets), separator)


def letters(chance: Chance, draw: int, sizes: Longs) -> Any:
    """Exactly so many letters."""
    noise, offsets = chance.bytes(draw, sizes)
    return _texts((ord("a") + noise.astype(np.int64) * 26 // 256).astype(np.uint8), offsets)


def padding(chance: Chance, draw: int, sizes: Any, average: int) -> Any:
    """Letters that fill events of these sizes up to an average; none where they are above it."""
    missing = np.maximum(average - np.asarray(sizes, np.int64), 0)
    spread = np.round(missing * 0.2).astype(np.int64)
    wanted = missing - spread + chance.below(draw, 2 * np.maximum(spread, 1)) * (spread > 0)
    return letters(chance, draw + 1, wanted)


def emails(chance: Chance, draw: int) -> Any:
    """Two words, an at sign, and .com."""
    name, host = words(chance, draw, 7), words(chance, draw + 2, 5)
    return pc.binary_join_element_wise(name, "@", host, ".com", "")


def cards(chance: Chance, draw: int) -> Any:
    """Four groups of four digits."""
    digits = [
        pc.utf8_lpad(pa.array(chance.below(draw + i, 10_000)).cast(pa.string()), 4, "0")
        for i in range(4)
    ]
    return pc.binary_join_element_wise(*digits, " ")


def channels(chance: Chance, draw: int) -> tuple[Any, Any]:
    """Channel and url of bids: half of them of four hot channels, the others of a table."""
    number = chance.below(draw, CHANNELS) + len(HOT_CHANNELS)
    is_hot = chance.below(draw + 1, 2) == 0
    chosen = pa.array(np.where(is_hot, chance.below(draw + 2, len(HOT_CHANNELS)), number))
    known_channels, known_urls = _channel_table()
    return known_channels.take(chosen), known_urls.take(chosen)


@cache
def _channel_table() -> tuple[Any, Any]:
    """Every channel with its url; the same in all streams, whatever their seed."""
    count = len(HOT_CHANNELS) + CHANNELS
    chance = Chance(0, np.arange(count))
    parts = [words(chance, 2 * i, 5, "_") for i in range(3)]
    paths = pc.binary_join_element_wise("https://www.nexmark.com", *parts, "item.htm?query=1", "/")
    numbers = np.arange(CHANNELS)
    reversed_bits = [int(f"{n:032b}"[::-1], 2) for n in numbers.tolist()]
    signed = np.array(reversed_bits, np.uint32).view(np.int32).astype(np.int64)
    ids = pa.array(np.abs(signed)).cast(pa.string())
    has_id = np.concatenate((np.zeros(len(HOT_CHANNELS), bool), chance.below(6, 10)[4:] > 0))
    hot_ids = pa.array([""] * len(HOT_CHANNELS))
    suffixes = pc.binary_join_element_wise("&channel_id=", pa.concat_arrays([hot_ids, ids]), "")
    urls = pc.binary_join_element_wise(paths, pc.if_else(pa.array(has_id), suffixes, ""), "")
    channels = [*HOT_CHANNELS, *(f"channel-{n}" for n in range(CHANNELS))]
    return pa.array(channels), urls


def _texts(characters: Any, offsets: Longs) -> Any:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(characters)]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)
