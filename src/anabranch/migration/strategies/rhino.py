"""Replicas are kept up to date all the time; a handover ships only the last delta: Rhino."""

from __future__ import annotations

from anabranch.migration.plan import Move
from anabranch.migration.steps import CatchUp, Copy, Count, Flip, Import, NextEpoch, Steps


def rhino(moves: tuple[Move, ...]) -> Steps:
    """Key groups without a replica get one first; `standby()` has made them all in advance."""
    yield Copy(moves)  # nothing to do where a replica is
    yield NextEpoch()
    yield CatchUp(moves)
    yield Count("handovers")
    yield Flip(moves)
    yield Import(moves)


def standby(moves: tuple[Move, ...]) -> Steps:
    """Keep replicas up to date until somebody else takes over."""
    yield Copy(moves)
    while True:
        yield NextEpoch()
        yield CatchUp(moves)
        yield Count("replications")
