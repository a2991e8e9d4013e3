"""Who sends: ids in the style of each data set, and what is known about them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_bench.workloads.riotbench.draws import Draws

FOREIGN_IDS = 5000
"""Ids that appear in the stream but are not known."""

STEMS = 88
"""Real stations of CITY; all others are their clones."""

_STEM_LETTERS = 25
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"

_KNOWN: dict[str, list[tuple[str, ...]]] = {
    "city": [
        ("geneva", "outdoor"),
        ("geneva", "indoor"),
        ("rio", "outdoor"),
        ("rio", "rooftop"),
        ("shanghai", "outdoor"),
        ("boston", "indoor"),
        ("boston", "rooftop"),
        ("singapore", "outdoor"),
        ("bangalore", "outdoor"),
        ("sanfrancisco", "rooftop"),
    ],
    "taxi": [(f"company{n % 4}", f"driver{n}", "newyork") for n in range(10)],
    "fit": [(str(24 + 7 * n % 40), "female" if n % 2 else "male") for n in range(10)],
    "grid": [(f"region{n % 5}", "day" if n % 2 else "night") for n in range(10)],
}


@dataclass(frozen=True)
class Sensors:
    """Known ids, foreign ids, and the annotation columns of the known ones."""

    ids: Any
    foreign: Any
    annotations: tuple[Any, ...]

    @staticmethod
    @functools.cache
    def of(dataset: str, count: int, seed: int) -> Sensors:
        """The same for the same arguments."""
        draws = Draws(seed)
        known = _KNOWN[dataset]
        kinds = draws.below("annotation", np.arange(count), len(known))
        columns = [pa.array([row[c] for row in known]) for c in range(len(known[0]))]
        taken = tuple(column.take(pa.array(kinds)) for column in columns)
        return Sensors(
            pa.array(_ids(dataset, draws, count)),
            pa.array([f"{name}x" for name in _ids(dataset, draws, FOREIGN_IDS)]),
            taken,
        )


def _ids(dataset: str, draws: Draws, count: int) -> list[str]:
    numbers = range(count)
    if dataset == "city":
        return [_stem(draws, n % STEMS) + str(n // STEMS) for n in numbers]
    if dataset == "taxi":
        words = draws.bits("taxi id", np.arange(2 * count)).tolist()
        return [f"{words[2 * n]:016X}{words[2 * n + 1]:016X}" for n in numbers]
    if dataset == "fit":
        return [f"subject{n + 1}" for n in numbers]
    return [f"meter{n:05d}" for n in numbers]


@functools.cache
def _stem(draws: Draws, station: int) -> str:
    places = np.arange(_STEM_LETTERS - 2) + station * _STEM_LETTERS
    letters = draws.below("stem", places, len(_ALPHABET)).tolist()
    return "ci" + "".join(_ALPHABET[letter] for letter in letters)
