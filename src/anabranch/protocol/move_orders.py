"""What the coordinator asks of workers; one call each, done or failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from anabranch.migration.steps import Arrival, ImportPriority
from anabranch.model.ids import KeyGroup, WorkerId


class OrderKind(Enum):
    """What is to be done."""

    CONNECT = "connect"
    COPY = "copy"
    CATCH_UP = "catch-up"
    GRANT = "grant"
    RELEASE = "release"
    IMPORT = "import"
    CLEAN = "clean"
    LAG = "lag"
    SAVE = "save"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """One order; `peer` is the other end of the move."""

    kind: OrderKind
    groups: tuple[KeyGroup, ...] = ()
    peer: WorkerId | None = None
    version: int = 0
    arrival: Arrival = Arrival.GROUP
    ready_first: bool = False
    order: ImportPriority = ImportPriority.INDEX
    by_bin: bool = False

    @property
    def is_first_grant(self) -> bool:
        """Whether it is no part of a move: it tells a process that has started what it owns."""
        return self.kind is OrderKind.GRANT and self.peer is None
