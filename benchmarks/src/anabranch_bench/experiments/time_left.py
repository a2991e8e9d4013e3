"""How long the rest of a benchmark takes: guesses, corrected by how wrong they have been."""

from __future__ import annotations

import time
from collections.abc import Callable

LEARNT_SECONDS = 30.0
"""Work after which guesses are corrected."""


class TimeLeft:
    """From the beginning of a benchmark that may take `whole` seconds."""

    def __init__(self, whole: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._whole, self._clock, self._begun = whole, clock, clock()

    def told(self, left: float) -> str:
        """In words, of work that was guessed to take so many seconds."""
        done = self._whole - left
        wrong = (self._clock() - self._begun) / done if done > LEARNT_SECONDS else 1.0
        return time_left(left * wrong)


def time_left(seconds: float) -> str:
    """In words, no more exact than a guess can be."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
