"""Old and new owner both process until the new one keeps pace, then switch: ChronoStream, Gloss."""

from __future__ import annotations

from anabranch.migration.plan import Move
from anabranch.migration.steps import CatchUp, Copy, Flip, Import, Lag, NextEpoch, Shadow, Steps

ROUNDS_MAX = 20


def replicate(moves: tuple[Move, ...]) -> Steps:
    """The outputs of the new owner are dropped until the switch."""
    yield Copy(moves)
    yield Shadow(moves)
    for _ in range(ROUNDS_MAX):
        yield CatchUp(moves)
        yield NextEpoch()
        lag = yield Lag(moves)
        if not lag["behind"]:
            break
    yield Flip(moves)
    yield Shadow(moves, on=False)
    yield Import(moves)
