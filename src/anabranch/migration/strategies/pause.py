"""Hold back only what touches moving key groups until they have arrived: Flux, SEEP, FUGU."""

from __future__ import annotations

from anabranch.migration.plan import Move
from anabranch.migration.steps import Arrival, Flip, Gate, Import, Steps, Ungate


def pause(moves: tuple[Move, ...]) -> Steps:
    """Lanes without moving key groups go on."""
    yield Gate(moves)
    yield Flip(moves, Arrival.BLOCK)
    yield Import(moves)
    yield Ungate()
