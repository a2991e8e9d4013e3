"""Which of several runs stands for all of them: one rule for tables, verdicts and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

MEDIAN_RULE = "the median of all runs; of an even number, the worse of the middle two"
"""A figure of an actual run, so that a table and a curve can have the same one."""


def median_place(values: Sequence[float], low_is_worse: bool = False) -> int | None:
    """Where the median is, as `MEDIAN_RULE` says; None if no value is a number."""
    places = [place for place, value in enumerate(values) if not math.isnan(value)]
    places.sort(key=lambda place: values[place], reverse=low_is_worse)
    return places[len(places) // 2] if places else None


def median_value(values: Iterable[float], low_is_worse: bool = False) -> float:
    """The median itself; NaN of nothing."""
    known = list(values)
    place = median_place(known, low_is_worse)
    return math.nan if place is None else known[place]
