"""Old and new owner both process until the new one keeps pace, then switch: ChronoStream, Gloss."""

from __future__ import annotations

from anabranch.migration.plan import GroupMove
from anabranch.migration.steps import CatchUp, Copy, Flip, Import, Lag, NextEpoch, Shadow, Steps

ROUNDS_MAX = 20
VAIN_MAX = 3
"""Rounds that bring more than the copy did: the source changes faster than we copy."""


def replicate(moves: tuple[GroupMove, ...]) -> Steps:
    """The outputs of the new owner are dropped until the switch."""
    copied = yield Copy(moves)
    yield Shadow(moves)
    vain = 0
    for _ in range(ROUNDS_MAX):
        caught = yield CatchUp(moves)
        vain += caught["delta_rows"] > copied["rows"]
        if vain == VAIN_MAX:
            break  # it will not keep pace, and batches can fetch what is missing
        yield NextEpoch()
        lag = yield Lag(moves)
        if not lag["behind"]:
            break
    yield Flip(moves)
    yield Shadow(moves, on=False)
    yield Import(moves)
