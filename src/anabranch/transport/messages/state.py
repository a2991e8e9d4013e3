"""What workers ask of each other, and lookups: parcels of state, each with a head."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from anabranch.model.batch_times import BatchTimes
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.transport.messages.kinds import Call, Stream

# --- heads --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SliceHead:
    """Some bins of a key group."""

    group: int
    bins: tuple[int, ...]
    as_of: int
    """An epoch as a number, as everywhere in this module (`model.ids.number_of`)."""


@dataclass(frozen=True, slots=True)
class DeltaHead:
    """The changes of an epoch, or of several up to it, in a key group."""

    group: int
    epoch: int
    rows: int


@dataclass(frozen=True, slots=True)
class KeysHead:
    """Single keys of a key group."""

    group: int
    due: str
    """Hashes of keys that were not asked for but have something due (`packing.pack_hashes`)."""


@dataclass(frozen=True, slots=True)
class DoneHead:
    """Everything that was asked for of a key group has come."""

    group: int
    as_of: int
    wear: tuple[int, ...]
    """How worn its files are (`OperatorSlot.wear_of`)."""
    log: int | None
    """Number of the log with the changes from now on; None: none is kept."""
    is_replica: bool = False
    """Whether only changes since the caller's replica have come, not the state."""


@dataclass(frozen=True, slots=True)
class GoneHead:
    """The key group is not here, or not as it is wanted."""

    group: int


@dataclass(frozen=True, slots=True)
class RestartHead:
    """What has come of the key group does not count: it was loaded anew, and comes again."""

    group: int


GroupHead = SliceHead | DeltaHead | KeysHead | DoneHead | GoneHead | RestartHead


@dataclass(frozen=True, slots=True)
class FoundHead:
    """Some of the keys that were looked up."""


# --- streams ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyGroups(Stream[GroupHead]):
    """Give key groups, slice by slice, while they change."""

    operator: str
    definition: int
    groups: tuple[int, ...]
    is_limited: bool
    """Whether there is a rate: then slices wait for moments between transactions."""


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A replica, as its source knows it."""

    log: int
    as_of: int


@dataclass(frozen=True, slots=True)
class Deltas(Stream[GroupHead]):
    """Give what has changed since."""

    operator: str
    definition: int
    replicas: dict[int, ReplicaLog]
    """By key group."""


class Need(Enum):
    """What the caller needs of a key group."""

    ALL = "all"
    BINS = "bins"
    """Those that were named, and those with something due."""
    KEYS = "keys"
    """Those that were named, and those with something due."""


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """What is asked for of one key group."""

    group: int
    as_of: int | None
    """The epoch that it must be of; None: any."""
    replica: ReplicaLog | None
    """What the caller has: the changes since will do."""
    session: str
    """Of the caller's arrival: keys that were given in it are not given again."""
    missing: tuple[int, ...]
    """Bins that the caller does not have."""
    need: Need
    bins: tuple[int, ...]
    """Those of the missing bins that are needed."""
    hashes: str = ""
    """Of the keys that are needed (`packing.pack_hashes`)."""
    asked: int = 0
    """How many those are."""


@dataclass(frozen=True, slots=True)
class Fetch(Stream[GroupHead]):
    """Give key groups that the caller owns now; asking is as good as a release."""

    operator: str
    definition: int
    target: WorkerId
    """The caller."""
    address: str
    version: int
    """Of the grant to the caller."""
    times: BatchTimes | None
    """Clocks of the transaction that needs it: what is due is given too; None: there is none."""
    groups: tuple[GroupRequest, ...]


@dataclass(frozen=True, slots=True)
class LookUp(Stream[FoundHead]):
    """What do keys have?"""

    operator: str
    definition: int
    section: str
    as_of: int | None
    """The epoch; None: before the first."""
    keys: str
    """A table (`packing.pack_keys`)."""


# --- small questions ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupEpochs:
    """The reply to `AsOf`."""

    as_of: dict[str, dict[int, int]]
    """By operator and key group; those that are not here are left out."""


@dataclass(frozen=True, slots=True)
class AsOf(Call[GroupEpochs]):
    """Of which epochs are key groups?"""

    operators: tuple[str, ...]
    groups: tuple[KeyGroup, ...]


@dataclass(frozen=True, slots=True)
class GroupHeat:
    """The reply to `Heat`, by key group."""

    rows: dict[int, tuple[float, ...]]
    """Recent rows of each bin."""
    bytes: dict[int, int]


@dataclass(frozen=True, slots=True)
class Heat(Call[GroupHeat]):
    """How much is at work in key groups?"""

    operator: str
    groups: tuple[int, ...]
