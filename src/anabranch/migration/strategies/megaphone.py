"""Key groups move in planned steps, each at an epoch of its own: Megaphone.

Its bin, the unit of routing, is our key group: choose `key_groups` as fine as its bins.
"""

from __future__ import annotations

from anabranch.errors import InvalidArgument
from anabranch.migration.plan import GroupMove, without_clashes
from anabranch.migration.steps import AddCount, Arrival, Flip, Import, NextEpoch, Steps

PLANS = ("all-at-once", "fluid", "batched")


def megaphone(moves: tuple[GroupMove, ...], *, plan: str = "batched", batch: int = 4) -> Steps:
    """A key group that moves is frozen until it has arrived; the rest goes on."""
    for step in rounds(moves, plan, batch):
        yield NextEpoch()
        yield AddCount("steps")
        yield Flip(step, Arrival.BLOCK)
        yield Import(step)


def rounds(moves: tuple[GroupMove, ...], plan: str, batch: int) -> list[tuple[GroupMove, ...]]:
    """The moves of each step."""
    if plan == "all-at-once":
        return [moves]
    if plan == "fluid":
        return [(move,) for move in moves]
    if plan == "batched":
        return without_clashes(moves, batch)
    raise InvalidArgument(f"plan must be one of {', '.join(PLANS)}, not {plan!r}.")
