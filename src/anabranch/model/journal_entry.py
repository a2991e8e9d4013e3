"""What a service writes down of what happens to it, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class EntryKind(Enum):
    """What has happened."""

    SERVICE_STARTED = "service-started"
    SERVICE_STOPPED = "service-stopped"
    BATCH = "batch"
    BATCH_FAILED = "batch-failed"
    MOVE_STARTED = "move-started"
    MOVE_ENDED = "move-ended"
    WORKER_STARTED = "worker-started"
    WORKER_ENDED = "worker-ended"
    USER_CODE_STUCK = "user-code-stuck"
    """A call of user code does not come back."""
    USER_CODE_BACK = "user-code-back"
    """One that was told of came back."""
    SPARK = "spark"
    """What Spark itself took for the last batches of an operator: planning, offsets, commits."""
    OWNERSHIP = "ownership"
    """Owners of key groups: all of them now and then, else those that have changed."""
    SAVEPOINT = "savepoint"
    AUTOSCALE = "autoscale"
    """A decision of the autoscaler that differs from the one before."""
    LOAD = "load"
    """How busy each worker was so far, and what it holds."""
    LOST = "entries-lost"
    """Not written: the location took too long, or there was no room."""


FREQUENT = (EntryKind.BATCH, EntryKind.LOAD, EntryKind.SPARK, EntryKind.OWNERSHIP)
"""Come by the thousand: who asks what has happened wants the others."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One thing that has happened; fields that say nothing for its kind are None."""

    kind: EntryKind
    time: float
    """Unix time."""
    operator: str | None = None
    worker: str | None = None
    epoch: int | None = None
    seconds: float | None = None
    rows: int | None = None
    bytes: int | None = None
    load_ms: int | None = None
    wait_ms: int | None = None
    apply_ms: int | None = None
    write_ms: int | None = None
    text: str | None = None
    """A sentence for people."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What else belongs to it, as JSON can say it."""

    @property
    def is_urgent(self) -> bool:
        """Whether somebody may look for it at once; batches come by the thousand."""
        return self.kind not in FREQUENT
