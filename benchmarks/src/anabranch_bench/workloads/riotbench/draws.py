"""Named draws: numbers for (seed, what for, counter), whatever was drawn before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anabranch_bench.workloads.chance import GAMMA, mixed, unit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_TEXT_BASE = 131


@dataclass(frozen=True, slots=True)
class Draws:
    """Independent draws for every name; equal counters have equal draws."""

    seed: int

    def bits(self, name: str, counters: Any) -> npt.NDArray[np.uint64]:
        """64 random bits for each counter."""
        salt = self.seed % 2**64
        for letter in name.encode():
            salt = (salt * _TEXT_BASE + letter) % 2**64
        start = mixed(np.array([salt], np.uint64))
        return mixed(start + np.asarray(counters).astype(np.uint64) * GAMMA)

    def uniform(self, name: str, counters: Any) -> Floats:
        """Evenly in [0, 1)."""
        return unit(self.bits(name, counters))

    def below(self, name: str, counters: Any, limit: int) -> Ints:
        """Whole numbers, evenly in [0, limit)."""
        return (self.uniform(name, counters) * limit).astype(np.int64)

    def normal(self, name: str, counters: Any) -> Floats:
        """Standard normal (Box-Muller)."""
        radius = np.sqrt(-2.0 * np.log1p(-self.uniform(name, counters)))
        drawn: Floats = radius * np.cos(2.0 * np.pi * self.uniform(name + "'", counters))
        return drawn

    def exponential(self, name: str, counters: Any) -> Floats:
        """With mean 1."""
        drawn: Floats = -np.log1p(-self.uniform(name, counters))
        return drawn

    def smooth(self, name: str, places: Floats, rows: Ints) -> Floats:
        """Noise that changes slowly along `places`: drawn at whole places, linear between them.

        Every row number (a subject, say) has a line of its own.
        """
        left = np.floor(places)
        share = places - left
        knots = left.astype(np.int64) + (rows << 40)
        at, after = self.normal(name, knots), self.normal(name, knots + 1)
        return at + share * (after - at)
