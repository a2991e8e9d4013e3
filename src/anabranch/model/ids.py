"""Identifiers: one word, one thing."""

from __future__ import annotations

from typing import NewType

KeyGroup = NewType("KeyGroup", int)
"""Unit of ownership; fixed number for the life of the state."""

WorkerId = NewType("WorkerId", str)
"""A worker's name ("w1"); stays the same when its process is replaced."""

Epoch = NewType("Epoch", int)
"""Spark's micro-batch id; state as of epoch e is the effect of batches 0..e."""

Lane = NewType("Lane", int)
"""One Spark task of the operator's stage; key group g belongs to lane g % lanes."""
