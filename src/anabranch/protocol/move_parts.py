"""The parts that a running move is made of: phases of key groups, tasks of its strategy."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from anabranch.migration import steps as step
from anabranch.migration.plan import GroupMove
from anabranch.protocol.move_orders import OrderKind

SIMPLE = {
    step.Connect: OrderKind.CONNECT,
    step.Copy: OrderKind.COPY,
    step.CatchUp: OrderKind.CATCH_UP,
    step.Import: OrderKind.IMPORT,
    step.Lag: OrderKind.LAG,
}
"""Steps that are one order to each target, for each of its sources."""

ON_HOST, ACROSS_HOSTS = "bytes_on_host", "bytes_across_hosts"
"""Counters: bytes that workers brought from others on the same host, and on other hosts."""

ATOMIC = (step.Flip, step.Restart)
"""Steps that are finished before a reconfiguration gives way to another."""


class MovePhase(Enum):
    """How far a key group has come."""

    PLANNED = "planned"
    COPIED = "copied"
    FLIPPED = "flipped"
    SETTLED = "settled"


NOT_FLIPPED = (MovePhase.PLANNED, MovePhase.COPIED)
"""Phases of key groups that still have their source as owner."""

STEPS_ON = {
    OrderKind.COPY: (MovePhase.PLANNED, MovePhase.COPIED),
    OrderKind.IMPORT: (MovePhase.FLIPPED, MovePhase.SETTLED),
}
"""Orders that take a key group on. The import of an inherited move can look like that of one which
has not flipped yet: there, back and there again."""


@dataclass(slots=True, eq=False)
class StrategyTask:
    """A strategy, or a part of one, that runs beside others."""

    steps: step.Steps
    parent: StrategyTask | None = None
    current: Any = None
    waiting: set[int] = field(default_factory=set)
    """Orders that have not ended."""
    counters: dict[str, int] = field(default_factory=dict)
    acked: dict[GroupMove, int] = field(default_factory=dict)
    """Moves of a flip that the target has acknowledged, with its incarnation."""
    is_flipping: bool = False
    queue: list[step.Steps] = field(default_factory=list)
    """Parts of Together that have not begun."""
    running: int = 0


def settle(moves: tuple[GroupMove, ...]) -> step.Steps:
    """Bring what earlier moves have left behind."""
    yield step.Import(moves)
    yield step.Clean(moves)
