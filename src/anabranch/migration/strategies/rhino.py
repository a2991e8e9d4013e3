"""Replicas are kept up to date all the time; a handover ships only the last delta: Rhino."""

from __future__ import annotations

from anabranch.migration.plan import GroupMove
from anabranch.migration.steps import AddCount, CatchUp, Copy, Flip, Import, NextEpoch, Steps


def rhino(moves: tuple[GroupMove, ...]) -> Steps:
    """Key groups without a replica get one first; `standby()` has made them all in advance."""
    yield Copy(moves)  # nothing to do where a replica is
    yield NextEpoch()
    yield CatchUp(moves)
    yield AddCount("handovers")
    yield Flip(moves)
    yield Import(moves)


def standby(moves: tuple[GroupMove, ...]) -> Steps:
    """Keep replicas up to date until somebody else takes over."""
    yield Copy(moves)
    while True:
        yield NextEpoch()
        yield CatchUp(moves)
        yield AddCount("replications")
