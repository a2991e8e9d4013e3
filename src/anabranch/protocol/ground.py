"""What a reconfiguration stands on, and the parts that it is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from anabranch.migration import steps as step
from anabranch.migration.plan import Move
from anabranch.model.ids import WorkerId
from anabranch.model.routing import Routing
from anabranch.protocol.coordinator_messages import Effect
from anabranch.protocol.orders import OrderKind

SIMPLE = {
    step.Connect: OrderKind.CONNECT,
    step.Copy: OrderKind.COPY,
    step.CatchUp: OrderKind.CATCH_UP,
    step.Import: OrderKind.IMPORT,
    step.Lag: OrderKind.LAG,
}
"""Steps that are one order to each target, for each of its sources."""

ATOMIC = (step.Flip, step.Restart)
"""Steps that are finished before a reconfiguration gives way to another."""


class Ground(Protocol):
    """What a reconfiguration may do with the rest of the coordinator."""

    @property
    def routing(self) -> Routing:
        """The present owners."""

    def next_version(self) -> int:
        """A version that nobody has seen."""

    def incarnation_up(self, worker: WorkerId) -> int | None:
        """The worker's incarnation if it is up."""

    def is_given_up(self, worker: WorkerId) -> bool:
        """Whether the worker could not be started."""

    def change_owners(self, moves: Iterable[Move]) -> list[Effect]:
        """Make a new version of the routing; lanes that waited for an owner before go on."""

    def gate(self, groups: frozenset[int] | None) -> None:
        """Hold back batches that begin from now on; None: all of them."""

    def ungate(self) -> list[Effect]:
        """Let them begin."""

    def is_quiet(self) -> bool:
        """Whether no batch runs that began before the gate."""

    def shadow(self, moves: Iterable[Move], on: bool) -> None:
        """Let lanes send rows of moving key groups to their targets too."""

    def start_workers(self, workers: Iterable[WorkerId]) -> list[Effect]:
        """Start workers that are not there yet."""

    def restart_workers(self, keep: Iterable[WorkerId], moves: Iterable[Move]) -> list[Effect]:
        """End all workers, start those that are kept, with the routing after these moves."""

    def stop_workers(self, keep: Iterable[WorkerId]) -> list[Effect]:
        """End workers that own nothing and shall not stay."""


class MovePhase(Enum):
    """How far a key group has come."""

    PLANNED = "planned"
    COPIED = "copied"
    FLIPPED = "flipped"
    SETTLED = "settled"


STEPS_ON = {
    OrderKind.COPY: (MovePhase.PLANNED, MovePhase.COPIED),
    OrderKind.IMPORT: (MovePhase.FLIPPED, MovePhase.SETTLED),
}
"""Orders that take a key group on. The import of an inherited move can look like that of one which
has not flipped yet: there, back and there again."""


@dataclass(slots=True, eq=False)
class Task:
    """A strategy, or a part of one, that runs beside others."""

    steps: step.Steps
    parent: Task | None = None
    current: Any = None
    waiting: set[int] = field(default_factory=set)
    """Orders that have not ended."""
    counters: dict[str, int] = field(default_factory=dict)
    acked: dict[Move, int] = field(default_factory=dict)
    """Moves of a flip that the target has acknowledged, with its incarnation."""
    is_flipping: bool = False
    queue: list[step.Steps] = field(default_factory=list)
    """Parts of Together that have not begun."""
    running: int = 0


def settle(moves: tuple[Move, ...]) -> step.Steps:
    """Bring what earlier moves have left behind."""
    yield step.Import(moves)
    yield step.Clean(moves)
