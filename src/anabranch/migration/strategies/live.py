"""Copy ahead while the source goes on, flip in milliseconds; else post-copy: ours."""

from __future__ import annotations

from anabranch.migration.plan import Move, first_round
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
WAVE_BYTES = 32 << 20
"""For a target: the longer a copy takes, the more of it has changed when it is there."""


def live(moves: tuple[Move, ...], *, wave: int = 4, delta: int = 50_000) -> Steps:
    """Waves of at most `wave` key groups per target; flip when fewer than `delta` entries lag."""
    left, size = moves, wave
    while left:
        step, left = first_round(left, size)
        yield Count("waves")
        copied = yield Copy(step)
        size = _size(wave, copied["bytes"] // len(step))
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


def _size(wave: int, group_bytes: int) -> int:
    """Of the next wave, by how large key groups have been in this one."""
    return max(1, min(wave, WAVE_BYTES // max(1, group_bytes)))
