"""Key groups that are owned here while something of them is elsewhere."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.protocol.residency_messages import (
    PartFailed,
    PartInstalled,
    PartOffered,
    ReplicaOrigin,
    Residency,
)


class Activity(Enum):
    """Whether something of a key group comes in just now, beside transactions."""

    IDLE = "idle"
    RECEIVING = "receiving"
    INSTALLING = "installing"


@dataclass(slots=True)
class ArrivingGroup:
    """A key group that is owned here while something of it is elsewhere."""

    source: WorkerId
    """Who has what is missing: a worker, or STORE."""
    version: int
    """At which it was granted."""
    session: int
    """Number of this arrival in this worker: what belongs to an earlier one is of no use."""
    missing: set[int]
    """Bins that are not here."""
    phase: Residency = Residency.AWAITED
    """AWAITED, STAGED, PARTIAL or STORED."""
    arrival: Arrival = Arrival.KEY
    origin: Epoch | None = None
    """As of which the source has it; of the store, the last epoch that was used: what is missing
    has not changed since."""
    replica: ReplicaOrigin | None = None
    """What a delta of the source can bring up to date."""
    activity: Activity = Activity.IDLE
    is_importing: bool = False
    """Whether an import is going to bring it."""
    pieces: int = 0
    """So many have come in."""
    is_broken: bool = False
    """Whether a part was put in place only half: nobody may use what is here."""
    offer: PartOffered | None = None
    """What is being installed."""


@dataclass(slots=True)
class Arrivals:
    """All key groups on their way to this worker."""

    bins: int
    """In each key group."""
    groups: dict[str, dict[KeyGroup, ArrivingGroup]] = field(default_factory=dict)
    """By operator."""
    offers: list[PartOffered] = field(default_factory=list)
    """Parts that wait until no transaction has taken their key group."""
    ended: list[tuple[str, KeyGroup]] = field(default_factory=list)
    """Those of which nothing needs to be known any more; told at the end of the event."""
    sessions: int = 0
    pieces: Counter[WorkerId] = field(default_factory=Counter)
    """So many have come in from each source."""

    def add(self, operator: str, group: KeyGroup, source: WorkerId, version: int) -> ArrivingGroup:
        """A key group begins to arrive; nothing of it is here."""
        self.sessions += 1
        missing = set(range(self.bins))
        record = ArrivingGroup(source, version, self.sessions, missing)
        self.groups[operator][group] = record
        return record

    def end(self, operator: str, group: KeyGroup) -> bool:
        """A key group arrives no longer; whether it did."""
        if self.groups[operator].pop(group, None) is None:
            return False
        self.ended.append((operator, group))
        return True

    def find(self, operator: str, group: KeyGroup) -> ArrivingGroup | None:
        """The record of a key group that arrives."""
        return self.groups.get(operator, {}).get(group)

    def current(self, event: PartOffered | PartInstalled | PartFailed) -> ArrivingGroup | None:
        """The record that an event is about, unless another arrival has taken its place."""
        record = self.find(event.operator, event.group)
        return record if record is not None and record.session == event.session else None
