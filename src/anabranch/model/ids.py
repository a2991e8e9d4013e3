"""Identifiers: one word, one thing."""

from __future__ import annotations

from typing import NewType

KeyGroup = NewType("KeyGroup", int)
"""Unit of ownership; fixed number for the life of the state."""

WorkerId = NewType("WorkerId", str)
"""A worker's name ("w1"); stays the same when its process is replaced."""

HostId = NewType("HostId", str)
"""A host's name ("h1"): a machine that can run workers."""

AgentId = NewType("AgentId", str)
"""One agent process; never used twice."""

Epoch = NewType("Epoch", int)
"""Spark's micro-batch id; state as of epoch e is the effect of batches 0..e."""

Lane = NewType("Lane", int)
"""One Spark task of the operator's stage; key group g belongs to lane g % lanes."""

BEFORE_FIRST = -1
"""No epoch as a number: the state before the first batch, empty or of a savepoint."""


def number_of(epoch: int | None) -> int:
    """An epoch as a number that can be compared."""
    return BEFORE_FIRST if epoch is None else epoch


def epoch_of(number: int) -> Epoch | None:
    """The reverse."""
    return None if number == BEFORE_FIRST else Epoch(number)
