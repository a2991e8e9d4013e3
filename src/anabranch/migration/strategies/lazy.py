"""Switch at once; push rows in flight, pull state on demand: the state-service poster."""

from __future__ import annotations

from anabranch.migration.plan import GroupMove
from anabranch.migration.steps import Arrival, Clean, Connect, Flip, Import, ImportPriority, Steps


def lazy(moves: tuple[GroupMove, ...]) -> Steps:
    """Start, in transition, finish."""
    yield Connect(moves)
    yield Flip(moves, Arrival.KEY)
    yield Import(moves, ImportPriority.HOT, by_bin=True)
    yield Clean(moves)
