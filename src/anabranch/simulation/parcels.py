"""What workers ask each other for, and what they send: key groups, bins, keys, changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup
from anabranch.simulation.oracle import GROUPS, Changes

BINS = 2
ALL_BINS = frozenset(range(BINS))
NO_KEYS: frozenset[int] = frozenset()


def bin_of(key: int) -> int:
    """The bin of a key inside its key group."""
    return key // GROUPS % BINS


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked for of one key group."""

    group: KeyGroup
    version: int
    """At which the one who asks owns it."""
    as_of: int | None = None
    any_epoch: bool = False
    """Whether the state is wanted as of whatever epoch the source has."""
    mode: Arrival = Arrival.GROUP
    epoch: int = -1
    """The batch's clock: what is due in it is sent too."""
    bins: frozenset[int] = ALL_BINS
    keys: frozenset[int] = NO_KEYS
    replica: tuple[int, int | None] | None = None
    """Copy session and epoch of what is here already."""


class ParcelKind(Enum):
    """How a parcel relates to what is here."""

    FULL = "full"
    DELTA = "delta"
    PART = "part"


@dataclass(frozen=True, slots=True)
class SimulatedParcel:
    """What a source sends of one key group."""

    kind: ParcelKind
    as_of: Epoch | None
    entries: Changes
    bins: frozenset[int] = ALL_BINS
    keys: frozenset[int] = NO_KEYS


@dataclass(slots=True)
class CopyJournal:
    """Changes that a source keeps while a key group is being copied."""

    session: int
    start: int | None
    reader: str = ""
    """The process that copies."""
    log: list[tuple[int, Changes]] = field(default_factory=list)

    def since(self, as_of: int | None) -> Changes:
        """Everything that has changed after an epoch."""
        found: Changes = {}
        for epoch, changes in self.log:
            if as_of is None or epoch > as_of:
                found.update(changes)
        return found
