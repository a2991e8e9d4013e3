"""What a worker's machine hears (events) and orders (effects)."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.protocol.residency_messages import (
    AdoptPart,
    AwaitArrivals,
    AwaitingExpired,
    ChooseDeferred,
    DeferralChosen,
    DiscardPart,
    FetchGroups,
    ForgetParts,
    GroupsEvicted,
    GroupsFetched,
    GroupsLoaded,
    ImportBegan,
    ImportEnded,
    InstallPart,
    LoadGroups,
    PartFailed,
    PartInstalled,
    PartOffered,
    PartReceiving,
    ReceivingEnded,
    ReplicasChanged,
)

# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupsGranted:
    """The coordinator gives key groups to this worker at a routing version."""

    groups: tuple[KeyGroup, ...]
    version: int
    source: WorkerId | None = None
    """Who has their state; None: it is in the store only."""
    arrival: Arrival = Arrival.GROUP
    ready_first: bool = False


@dataclass(frozen=True, slots=True)
class GroupsReleased:
    """The coordinator, or the new owner itself, says that key groups belong to another worker."""

    groups: tuple[KeyGroup, ...]
    version: int
    target: WorkerId


@dataclass(frozen=True, slots=True)
class GroupsDropped:
    """The coordinator needs frozen state and replicas of these key groups no longer."""

    groups: tuple[KeyGroup, ...]
    version: int | None = None
    """Key groups of which something newer is known are left alone; None: none is."""


@dataclass(frozen=True, slots=True)
class OperatorInstalled:
    """A new (or another) definition of an operator: whatever was held for the name is void."""

    operator: str


@dataclass(frozen=True, slots=True)
class TransactionOpened:
    """A lane starts to send rows; `tx` is unique in this worker."""

    tx: int
    operator: str
    epoch: Epoch
    base: Epoch | None
    lane: Lane
    lanes: int
    attempt: int
    groups: tuple[KeyGroup, ...]
    version: int
    is_shadow: bool = False
    """Whether only replicas are brought forward: nothing is made durable, nobody gets outputs."""
    may_defer: bool = False
    """Whether rows may wait for the next transaction where state would have to be brought."""


@dataclass(frozen=True, slots=True)
class RowsComplete:
    """The end mark: all rows of the transaction are here."""

    tx: int
    rows: tuple[int, ...] = ()
    """How many for each of the transaction's key groups; empty: not counted.

    Cached outputs answer a retry only if it has as many rows: tasks that mistook their lane must
    not pass for the right ones."""


@dataclass(frozen=True, slots=True)
class TransactionApplied:
    """Rows, timers and TTL are applied; changes are not yet durable."""

    tx: int


@dataclass(frozen=True, slots=True)
class ChangesDurable:
    """The changelog of the transaction is in the store."""

    tx: int


@dataclass(frozen=True, slots=True)
class TransactionFailed:
    """Loading, applying or persisting failed; the interpreter has undone the changes."""

    tx: int
    error: AnabranchError


@dataclass(frozen=True, slots=True)
class RowsForwarded:
    """A new owner has answered for the rows that were passed on to it."""

    tx: int
    target: WorkerId


@dataclass(frozen=True, slots=True)
class ForwardFailed:
    """A new owner could not be reached, or refused."""

    tx: int
    target: WorkerId
    error: AnabranchError


@dataclass(frozen=True, slots=True)
class LaneGone:
    """The lane's connection ended before the end mark."""

    tx: int


Event = (
    GroupsGranted
    | GroupsReleased
    | GroupsDropped
    | ReplicasChanged
    | ImportBegan
    | ImportEnded
    | PartReceiving
    | ReceivingEnded
    | PartOffered
    | PartInstalled
    | PartFailed
    | GroupsEvicted
    | OperatorInstalled
    | TransactionOpened
    | RowsComplete
    | LaneGone
    | DeferralChosen
    | AwaitingExpired
    | GroupsFetched
    | GroupsLoaded
    | TransactionApplied
    | ChangesDurable
    | TransactionFailed
    | RowsForwarded
    | ForwardFailed
)


# --- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DropOperator:
    """Forget the operator's state and cached outputs."""

    operator: str


@dataclass(frozen=True, slots=True)
class DropOutputs:
    """Forget the cached outputs of key groups: their next epoch has begun."""

    operator: str
    groups: tuple[KeyGroup, ...]


@dataclass(frozen=True, slots=True)
class DropGroups:
    """Forget the state and cached outputs of key groups."""

    operator: str
    groups: tuple[KeyGroup, ...]


@dataclass(frozen=True, slots=True)
class ForwardRows:
    """Pass the rows of key groups on to their new owner; its outputs are part of the answer."""

    tx: int
    groups: tuple[KeyGroup, ...]
    target: WorkerId
    version: int = 0
    """What the sender of the rows knows: the lane, or the worker that has given them away."""


@dataclass(frozen=True, slots=True)
class ApplyTransaction:
    """Run the operator on these key groups of the transaction."""

    tx: int
    groups: tuple[KeyGroup, ...]


@dataclass(frozen=True, slots=True)
class PersistChanges:
    """Write the transaction's changelog."""

    tx: int


@dataclass(frozen=True, slots=True)
class AnswerTransaction:
    """Send the outputs of all key groups of the transaction (all are cached now)."""

    tx: int


@dataclass(frozen=True, slots=True)
class RefuseTransaction:
    """Send an error; nothing was changed."""

    tx: int
    error: AnabranchError


Effect = (
    DropOperator
    | DropOutputs
    | DropGroups
    | ForgetParts
    | InstallPart
    | AdoptPart
    | DiscardPart
    | ChooseDeferred
    | AwaitArrivals
    | FetchGroups
    | LoadGroups
    | ForwardRows
    | ApplyTransaction
    | PersistChanges
    | AnswerTransaction
    | RefuseTransaction
)
