"""Switch owners, then bring state in index order, whatever rows wait for: Meces' baseline."""

from __future__ import annotations

from anabranch.migration.plan import GroupMove
from anabranch.migration.steps import Arrival, Flip, Import, Steps


def order_unaware(moves: tuple[GroupMove, ...]) -> Steps:
    """Rows wait at the target until the import has come to their key groups."""
    yield Flip(moves, Arrival.BLOCK)
    yield Import(moves)
