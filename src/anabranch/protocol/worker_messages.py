"""What a worker's machine hears (events) and orders (effects)."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId

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
class ReplicasChanged:
    """Key groups that are not owned here were copied or caught up."""

    operator: str
    groups: tuple[tuple[KeyGroup, Epoch | None], ...]
    """Each with the epoch that it is as of."""


@dataclass(frozen=True, slots=True)
class GroupsImported:
    """All that was missing of key groups is here; their sources are not needed any more."""

    operator: str
    groups: tuple[tuple[KeyGroup, Epoch | None], ...]
    """Each with the epoch that its source had."""


@dataclass(frozen=True, slots=True)
class GroupsEvicted:
    """Parts of key groups were taken out of memory; the store has them."""

    operator: str
    groups: tuple[KeyGroup, ...]


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


@dataclass(frozen=True, slots=True)
class RowsComplete:
    """The end mark: all rows of the transaction are here."""

    tx: int
    rows: tuple[int, ...] = ()
    """How many for each of the transaction's key groups; empty: not counted.

    Cached outputs answer a retry only if it has as many rows: tasks that mistook their lane must
    not pass for the right ones."""


@dataclass(frozen=True, slots=True)
class GroupsLoaded:
    """The state asked for by LoadGroups is in memory."""

    tx: int
    partial: tuple[KeyGroup, ...] = ()
    """Key groups of which only what the transaction needs is here."""
    stored: tuple[KeyGroup, ...] = ()
    """Those of them whose rest is in the store: nobody else is needed for it."""


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
    | ReplicasChanged
    | GroupsImported
    | GroupsEvicted
    | GroupsDropped
    | OperatorInstalled
    | TransactionOpened
    | RowsComplete
    | GroupsLoaded
    | TransactionApplied
    | ChangesDurable
    | TransactionFailed
    | RowsForwarded
    | ForwardFailed
    | LaneGone
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
class LoadGroups:
    """Bring what the transaction needs of key groups here, as of an epoch (None: empty).

    From the source, where there is one that has it; else from the store.
    """

    tx: int
    groups: tuple[KeyGroup, ...]
    as_of: Epoch | None
    sources: tuple[tuple[KeyGroup, WorkerId], ...] = ()


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
    | LoadGroups
    | ForwardRows
    | ApplyTransaction
    | PersistChanges
    | AnswerTransaction
    | RefuseTransaction
)
