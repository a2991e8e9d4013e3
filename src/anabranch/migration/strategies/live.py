"""Copy ahead while the source goes on, flip in milliseconds; else post-copy: ours."""

from __future__ import annotations

from anabranch.migration.plan import Move, in_rounds
from anabranch.migration.steps import (
    Arrival,
    CatchUp,
    Clean,
    Copy,
    Count,
    Flip,
    Import,
    NextEpoch,
    Order,
    Steps,
)

CATCH_UPS_MAX = 5


def live(moves: tuple[Move, ...], *, wave: int = 4, delta: int = 50_000) -> Steps:
    """Waves of at most `wave` key groups per target; flip when fewer than `delta` entries lag."""
    for step in in_rounds(moves, wave):
        yield Count("waves")
        yield Copy(step)
        converged = False
        before: int | None = None
        for _ in range(CATCH_UPS_MAX):
            caught = yield CatchUp(step)
            lag = caught["delta_rows"]
            if lag <= delta:
                converged = True
                break
            if before is not None and lag >= before:
                break  # the source changes faster than we copy
            before = lag
        if converged:
            # Right after a commit: the next batch is still being planned.
            yield NextEpoch()
            yield CatchUp(step)
            yield Flip(step)
            yield Import(step)
        else:
            yield Count("post_copies")
            yield Flip(step, Arrival.KEY)
            yield Import(step, Order.HOT, by_bin=True)
        yield Clean(step)
