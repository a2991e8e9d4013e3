"""Loads of a simulated plant: rows a second over time, from a seed."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

Rate = Callable[[float], float]
"""Rows a second at a time."""


@dataclass(frozen=True)
class LoadCurve:
    """Rows that have come until a time; between whole seconds they come evenly."""

    name: str
    rates: tuple[float, ...]
    """Rows a second, of each second."""
    total: list[float] = field(default_factory=list, repr=False)

    @property
    def seconds(self) -> int:
        """How long it lasts."""
        return len(self.rates)

    def rows(self, until: float) -> float:
        """From the beginning."""
        second = min(int(until), self.seconds - 1)
        return self.total[second] + (until - second) * self.rates[second]

    def due(self, rows: float) -> float:
        """When so many rows had come; the reverse of `rows`."""
        second = max(0, min(bisect.bisect_right(self.total, rows) - 1, self.seconds - 1))
        rate = self.rates[second]
        return second + ((rows - self.total[second]) / rate if rate > 0 else 0.0)


def curve(name: str, seconds: int, rate: Rate, random: Random, noise: float = 0.0) -> LoadCurve:
    """Of a rate, with so much noise: 0.2 is up to 20% more or less, another one each second."""
    rates = tuple(
        max(0.0, rate(second) * (1 + random.uniform(-noise, noise))) for second in range(seconds)
    )
    return LoadCurve(name, rates, [0.0, *itertools.accumulate(rates)])


def step(base: float, factor: float, at: float) -> Rate:
    """From one moment on, so many times as much."""
    return lambda t: base * (factor if t >= at else 1.0)


def ramp(base: float, factor: float, at: float, seconds: float) -> Rate:
    """Evenly to so many times as much."""
    return lambda t: base * (1 + (factor - 1) * min(1.0, max(0.0, (t - at) / seconds)))


def sine(low: float, high: float, period: float) -> Rate:
    """Up and down; begins low."""
    return lambda t: low + (high - low) * (1 - math.cos(2 * math.pi * t / period)) / 2


def flash_crowd(base: float, factor: float, at: float, seconds: float) -> Rate:
    """For a while so many times as much."""
    return lambda t: base * (factor if at <= t < at + seconds else 1.0)


def day(base: float, peak: float, spikes: tuple[float, ...] = ()) -> Rate:
    """A day with its night, and spikes of some minutes at these times."""
    slow = sine(base, peak, 86_400)
    return lambda t: slow(t) * (2.0 if any(at <= t < at + 240 for at in spikes) else 1.0)
