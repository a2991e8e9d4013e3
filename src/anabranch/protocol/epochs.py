"""One operator's epochs as the coordinator sees them: which batch runs, which lanes have finished.

An epoch exists if and only if its manifest does. So an epoch goes

    (nothing) --begin--> RUNNING --last lane finished--> COMMITTING --manifest written--> COMMITTED

and may go round again: Spark runs the last batch again after a restart, or a task again after a
failure, and the reports of that execution then replace the earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anabranch.model.ids import Epoch, Lane


@dataclass(frozen=True, slots=True)
class TransactionReport:
    """What a worker did for a lane: the changelog file that counts for these key groups."""

    worker: str
    groups: tuple[int, ...]
    changelog: str | None
    """Opaque reference to the file or files; None where nothing changed."""
    deferred: tuple[int, ...] = ()
    """Key groups of these whose rows wait: their outputs come with a later epoch."""


@dataclass(frozen=True, slots=True)
class LaneReport:
    """A lane's finish: one report for each worker it met."""

    transactions: tuple[TransactionReport, ...]


class EpochPhase(Enum):
    """How far an epoch has come."""

    RUNNING = "running"
    COMMITTING = "committing"
    COMMITTED = "committed"


@dataclass(slots=True)
class EpochProgress:
    """One execution of an epoch."""

    epoch: Epoch
    lanes: int
    phase: EpochPhase = EpochPhase.RUNNING
    finished: dict[Lane, LaneReport] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether every lane has finished."""
        return len(self.finished) == self.lanes

    def missing(self) -> list[int]:
        """Lanes that have not finished."""
        return [lane for lane in range(self.lanes) if lane not in self.finished]

    def transactions(self) -> tuple[TransactionReport, ...]:
        """All reports, in lane order."""
        return tuple(t for lane in sorted(self.finished) for t in self.finished[lane].transactions)
