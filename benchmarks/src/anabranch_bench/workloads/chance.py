"""Randomness without a sequence: every draw is a hash of (seed, row, number of the draw)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Doubles = npt.NDArray[np.float64]

DRAWS = 64
"""Draws that a row has."""

GAMMA = np.uint64(0x9E3779B97F4A7C15)
"""2^64 divided by the golden ratio: counters times this are far apart."""
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def mixed(values: Words) -> Words:
    """The finaliser of splitmix64: a bijection that spreads every bit."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))


def below(words: Words, bounds: Longs | int) -> Longs:
    """Words as whole numbers in [0, bound), for bounds below 2^31."""
    limits = np.asarray(bounds, np.uint64)
    return (((words >> np.uint64(32)) * limits) >> np.uint64(32)).astype(np.int64)


def unit(words: Words) -> Doubles:
    """Words as numbers in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Chance:
    """The draws of some rows: splitmix64 with (row, draw) as its counter."""

    def __init__(self, seed: int, rows: Longs) -> None:
        start = mixed(np.array([seed & 0xFFFFFFFFFFFFFFFF], np.uint64))
        self._counters: Words = rows.astype(np.uint64) * np.uint64(DRAWS) + start

    def words(self, draw: int) -> Words:
        """64 random bits for each row."""
        return mixed((self._counters + np.uint64(draw)) * GAMMA)

    def below(self, draw: int, bounds: Longs | int) -> Longs:
        """A whole number in [0, bound) for each row; the bound may differ between rows."""
        return below(self.words(draw), bounds)

    def unit(self, draw: int) -> Doubles:
        """A number in [0, 1) for each row."""
        return unit(self.words(draw))

    def bytes(self, draw: int, sizes: Longs) -> tuple[npt.NDArray[np.uint8], Longs]:
        """Random bytes, `sizes[i]` for row i: all of them in one array, and where each begins.

        The array has one offset more than rows, as Arrow wants them.
        """
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        blocks = -(-sizes // 8)
        firsts = np.concatenate(([0], np.cumsum(blocks)))
        owner = np.repeat(np.arange(len(sizes)), blocks)
        within = (np.arange(firsts[-1]) - firsts[owner]).astype(np.uint64)
        noise: Any = mixed(self.words(draw)[owner] + within * GAMMA).view(np.uint8)
        if firsts[-1]:
            used = np.arange(8)[None, :] < (sizes[owner] - within.astype(np.int64) * 8)[:, None]
            noise = noise.reshape(-1, 8)[used]
        return noise, offsets
