"""A request for a move: how the user wants it, and what it started from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.coordinator.planning import TargetLayout


@dataclass(frozen=True, slots=True)
class MoveWish:
    """How a user wants a reconfiguration to be done."""

    strategy: str
    options: Mapping[str, Any]
    bytes_per_second: int | None = None
    latency_target: float | None = None
    assignment: str = "minimal"
    """Of key groups to as many workers as are asked for."""
    cause: str = "program"
    """Who asks: for the journal."""


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that has not ended."""

    move: MoveHandle
    wish: MoveWish
    before: TargetLayout
    """To go back to: the last that nothing had changed."""
    wanted: TargetLayout
    """To reach."""
