"""What a worker's machine hears and orders about the state in its memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup, WorkerId


class Residency(Enum):
    """How much of a key group of an operator is in memory, and where the rest is."""

    ABSENT = "absent"
    REPLICA = "replica"
    FROZEN = "frozen"
    HELD = "held"
    AWAITED = "awaited"
    STAGED = "staged"
    PARTIAL = "partial"
    STORED = "stored"


# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplicaOrigin:
    """Where a replica was copied from."""

    source: WorkerId
    log: int
    """The source's log of changes that continues it."""


@dataclass(frozen=True, slots=True)
class ReplicasChanged:
    """Key groups that are not owned here were copied or caught up, or are read ahead."""

    operator: str
    groups: tuple[tuple[KeyGroup, Epoch | None], ...]
    """Each with the epoch that it is as of."""
    origin: ReplicaOrigin | None = None
    """None: they come from the store."""


@dataclass(frozen=True, slots=True)
class ImportBegan:
    """The coordinator wants what is missing of key groups brought here in the background."""

    groups: tuple[KeyGroup, ...]
    version: int
    """Of the order: what was granted later is left alone."""


@dataclass(frozen=True, slots=True)
class ImportEnded:
    """Nothing more is coming in the background."""

    groups: tuple[KeyGroup, ...]


@dataclass(frozen=True, slots=True)
class PartReceiving:
    """Pieces of key groups begin to come in for an import."""

    operator: str
    groups: tuple[tuple[KeyGroup, int], ...]
    """Each with the session of its arrival."""


@dataclass(frozen=True, slots=True)
class ReceivingEnded:
    """No more pieces come in, whether they were complete or not."""

    operator: str
    groups: tuple[tuple[KeyGroup, int], ...]
    """Each with the session of its arrival."""


class PartKind(Enum):
    """What an offered part is."""

    BINS = "bins"
    """Some bins, from the source worker."""
    DELTA = "delta"
    """What has changed since the replica here, from the source worker."""
    WHOLE = "whole"
    """All of the key group, from the store."""
    REST = "rest"
    """Missing bins of a key group that transactions work on, from the store."""


@dataclass(frozen=True, slots=True)
class PartOffered:
    """Something of a key group that arrives was brought, beside transactions."""

    operator: str
    group: KeyGroup
    session: int
    """Of the arrival that it was brought for."""
    kind: PartKind
    as_of: Epoch | None
    """The epoch that the part is as of."""
    bins: frozenset[int] = frozenset()
    since: Epoch | None = None
    """Of a delta: the epoch that the replica must be as of."""


@dataclass(frozen=True, slots=True)
class PartInstalled:
    """An offered part is in place."""

    operator: str
    group: KeyGroup
    session: int


@dataclass(frozen=True, slots=True)
class PartFailed:
    """An offered part was put in place in half at most: what is here cannot be used."""

    operator: str
    group: KeyGroup
    session: int


@dataclass(frozen=True, slots=True)
class GroupsEvicted:
    """Bins of key groups were taken out of memory; the store has them."""

    operator: str
    groups: tuple[tuple[KeyGroup, tuple[int, ...]], ...]
    """Each with the bins."""
    as_of: Epoch
    """The committed epoch that the key groups are as of."""


@dataclass(frozen=True, slots=True)
class DeferralChosen:
    """Rows of some of the candidates wait; the others' state is to be brought."""

    tx: int
    groups: tuple[KeyGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class AwaitingExpired:
    """A transaction has waited for long: it does without, unless something has come of what it
    awaits since it was told so last."""

    tx: int


@dataclass(frozen=True, slots=True)
class FetchedPart:
    """What a source has sent of one key group, and is in memory now."""

    group: KeyGroup
    session: int
    as_of: Epoch | None
    bins: tuple[int, ...] = ()
    """Bins that are complete; keys may have come one by one beside them."""
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class GroupsFetched:
    """Sources have answered FetchGroups; what none of them had is not in `parts`."""

    tx: int
    parts: tuple[FetchedPart, ...] = ()
    broken: tuple[KeyGroup, ...] = ()
    """Of the others, those of which nothing that is here can be used."""


@dataclass(frozen=True, slots=True)
class GroupsLoaded:
    """The state asked for by LoadGroups is in memory."""

    tx: int
    stored: tuple[tuple[KeyGroup, tuple[int, ...]], ...] = ()
    """Key groups of which only what the transaction needs is here, with the bins that are not."""


# --- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ForgetParts:
    """Key groups arrive no longer: what was brought and not used yet is void."""

    operator: str
    groups: tuple[KeyGroup, ...]


@dataclass(frozen=True, slots=True)
class InstallPart:
    """Put an offered part in place; answered by PartInstalled or PartFailed."""

    operator: str
    group: KeyGroup
    session: int
    is_staged: bool
    """Whether no transaction works on what is here."""


@dataclass(frozen=True, slots=True)
class AdoptPart:
    """What was staged becomes the state of the key group, whole or in part."""

    operator: str
    group: KeyGroup


@dataclass(frozen=True, slots=True)
class DiscardPart:
    """An offered part is of no use."""

    operator: str
    group: KeyGroup
    session: int


ArrivalEffect = ForgetParts | InstallPart | AdoptPart | DiscardPart
"""Effects that concern no transaction."""


@dataclass(frozen=True, slots=True)
class DeferralCandidate:
    """A key group whose rows may wait."""

    group: KeyGroup
    source: WorkerId
    """Who has its state: a worker, or the store."""
    phase: Residency
    is_near: bool
    """Whether little is missing."""


@dataclass(frozen=True, slots=True)
class ChooseDeferred:
    """Decide which rows wait; answered by DeferralChosen."""

    tx: int
    candidates: tuple[DeferralCandidate, ...]
    as_of: Epoch | None


@dataclass(frozen=True, slots=True)
class AwaitArrivals:
    """Wait: something that the transaction needs is coming in. AwaitingExpired ends it."""

    tx: int
    groups: tuple[KeyGroup, ...]


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What to ask of the source of a key group."""

    group: KeyGroup
    source: WorkerId
    version: int
    """At which the key group was granted here."""
    session: int
    as_of: Epoch | None
    """The epoch that it must be as of; for an import with nothing here, any will do."""
    phase: Residency
    """AWAITED: nothing is here but perhaps a replica."""
    missing: tuple[int, ...]
    """Bins that are not here."""
    arrival: Arrival
    replica: tuple[ReplicaOrigin, Epoch | None] | None
    """The replica here with its epoch, if a delta can bring it up to date."""


@dataclass(frozen=True, slots=True)
class FetchGroups:
    """Ask sources for key groups as of the base; answered by GroupsFetched."""

    tx: int
    requests: tuple[SourceRequest, ...]


@dataclass(frozen=True, slots=True)
class LoadGroups:
    """Read key groups from the store as of the base; answered by GroupsLoaded."""

    tx: int
    groups: tuple[KeyGroup, ...]
    """Nothing of them is here, or nothing of use."""
    as_of: Epoch | None
    parts: tuple[tuple[KeyGroup, tuple[int, ...]], ...] = ()
    """What is here of these can be used: only what is needed of the bins given is read."""
