"""What a worker's machine hears (events) and orders (effects)."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch, KeyGroup, Lane

# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupsGranted:
    """The coordinator gives key groups to this worker at a routing version."""

    groups: tuple[KeyGroup, ...]
    version: int


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
class LaneGone:
    """The lane's connection ended before the end mark."""

    tx: int


Event = (
    GroupsGranted
    | OperatorInstalled
    | TransactionOpened
    | RowsComplete
    | GroupsLoaded
    | TransactionApplied
    | ChangesDurable
    | TransactionFailed
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
class LoadGroups:
    """Read key groups from the store as of an epoch (None: empty)."""

    tx: int
    groups: tuple[KeyGroup, ...]
    as_of: Epoch | None


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
    | LoadGroups
    | ApplyTransaction
    | PersistChanges
    | AnswerTransaction
    | RefuseTransaction
)
