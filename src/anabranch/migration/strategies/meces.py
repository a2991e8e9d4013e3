"""Switch owners in rounds, fetch the bins that rows need first, the rest gradually: Meces."""

from __future__ import annotations

from anabranch.migration.plan import GroupMove, in_rounds
from anabranch.migration.steps import (
    AddCount,
    Arrival,
    Clean,
    Connect,
    Flip,
    Import,
    ImportPriority,
    NextEpoch,
    Steps,
)


def meces(moves: tuple[GroupMove, ...], *, batch: int = 4) -> Steps:
    """The four control messages of each round; the next one waits for all acknowledgements.

    The published system moves 10 of 128 key groups in a round, and a record waits for its own bin.
    A micro-batch has records for every bin of a round and waits for all, so rounds are smaller.
    """
    for step in in_rounds(moves, batch):
        yield Connect(step)  # PREPARE
        yield NextEpoch()
        yield AddCount("rounds")
        yield Flip(step, Arrival.BIN)  # CREATE
        yield Import(step, ImportPriority.HOT, by_bin=True)  # GRADUAL_FETCH
        yield Clean(step)  # CLEAN
