"""Hold back only what touches moving key groups until they have arrived: Flux, SEEP, FUGU."""

from __future__ import annotations

from anabranch.migration.plan import GroupMove
from anabranch.migration.steps import Arrival, CloseGate, Flip, Import, OpenGate, Steps


def pause(moves: tuple[GroupMove, ...]) -> Steps:
    """Lanes without moving key groups go on."""
    yield CloseGate(moves)
    yield Flip(moves, Arrival.BLOCK)
    yield Import(moves)
    yield OpenGate()
