"""Whether sharing key groups out again would help, or one of them is too hot for any worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.autoscale.signals import GroupRows

SKEW = 1.3
"""Busiest worker to the mean: more is rebalanced."""
BETTER = 0.5
"""Sharing out must take away this share of what is above the mean."""


@dataclass(frozen=True, slots=True)
class Balance:
    """What key groups say about a skew."""

    hottest: int
    """The key group with the most rows."""
    share: float
    """Of all rows, that it has."""
    owner: str
    reachable: float
    """Busiest worker to the mean, after sharing out."""

    def is_worth(self, skew: float) -> bool:
        """Whether sharing out takes enough of a skew away."""
        return skew - self.reachable >= BETTER * (skew - 1)

    @property
    def workers_max(self) -> int:
        """More workers than this do not make the busiest one less busy."""
        return math.ceil(1 / self.share - 1e-9)


def balance_of(groups: Sequence[GroupRows], workers: int) -> Balance | None:
    """None: no rows are known."""
    total = sum(each.rows for each in groups)
    if total <= 0:
        return None
    hottest = max(groups, key=lambda each: (each.rows, -each.group))
    # Largest first to the least loaded: what `rebalance` comes near to.
    loads = [0.0] * workers
    for rows in sorted((each.rows for each in groups), reverse=True):
        loads[loads.index(min(loads))] += rows
    return Balance(
        hottest.group,
        hottest.rows / total,
        hottest.owner,
        max(loads) * workers / total,
    )
