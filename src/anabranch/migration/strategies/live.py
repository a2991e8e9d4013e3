"""Copy ahead while the source goes on, flip in milliseconds; else post-copy: ours."""

from __future__ import annotations

from collections.abc import Generator

from anabranch.migration.plan import GroupMove, first_round
from anabranch.migration.steps import (
    AddCount,
    Arrival,
    CatchUp,
    Clean,
    Copy,
    Flip,
    Import,
    ImportPriority,
    NextEpoch,
    Outcome,
    Step,
    Steps,
)

CATCH_UPS_MAX = 5
WAVE_BYTES = 32 << 20
"""For a target: the longer a copy takes, the more of it has changed when it is there."""
SMALL_BYTES = 4 << 20
"""So much is over before the next batch needs it: a copy ahead would only cost calls."""


def live(moves: tuple[GroupMove, ...], *, wave: int = 4, delta: int = 50_000) -> Steps:
    """Waves of at most `wave` key groups per target; flip when fewer than `delta` entries lag.

    One source after the other: a wave has fewer pairs of workers to talk to, and lanes that have
    one owner keep it for longer.
    """
    left, size, group_bytes = tuple(sorted(moves, key=lambda move: move.source)), wave, 0
    while left:
        step, left = first_round(left, size)
        yield AddCount("waves")
        if 0 < size * group_bytes <= SMALL_BYTES:
            yield AddCount("small_waves")
            brought = yield from _at_once(step)
        else:
            brought = yield from _pre_copy(step, delta)
            yield Clean(step)
        group_bytes = brought // len(step)  # 0: not known, as where replicas were there already
        size = max(1, min(wave, WAVE_BYTES // max(1, group_bytes)))


def _pre_copy(step: tuple[GroupMove, ...], delta: int) -> Generator[Step, Outcome, int]:
    """Copy while the source goes on; bytes that were copied."""
    copied = yield Copy(step)
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
        yield AddCount("post_copies")
        yield from _post_copy(step)
    return copied["bytes"]


def _at_once(step: tuple[GroupMove, ...]) -> Generator[Step, Outcome, int]:
    """In as few calls as can be, and what the sources still hold goes at the end of the move."""
    yield NextEpoch()
    yield Flip(step)
    imported = yield Import(step)
    return imported["bytes"]


def _post_copy(step: tuple[GroupMove, ...]) -> Generator[Step, Outcome, int]:
    """Change owners first: transactions fetch the keys that they need; bytes that were fetched."""
    yield Flip(step, Arrival.KEY)
    imported = yield Import(step, ImportPriority.HOT, by_bin=True)
    return imported["bytes"]
