"""Orders of the coordinator: what workers do for a move (docs/protocol.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.migration.steps import Arrival, ImportPriority
from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.transport.messages.kinds import Call


@dataclass(frozen=True, slots=True)
class OrderReply:
    """Counters of what was done."""

    counters: dict[str, int]


@dataclass(frozen=True, slots=True)
class SaveReply:
    """The same, and references to the files of each operator."""

    counters: dict[str, int]
    snapshots: dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class MovePeer:
    """The other end of a move."""

    worker: WorkerId
    address: str | None
    """None: it is not there just now; the address known from before counts."""


@dataclass(frozen=True, slots=True)
class ConnectOrder(Call[OrderReply]):
    """Open a channel."""

    peer: MovePeer


@dataclass(frozen=True, slots=True)
class CopyOrder(Call[OrderReply]):
    """Make replicas."""

    groups: tuple[KeyGroup, ...]
    peer: MovePeer
    version: int
    rate: float | None
    """As of `SetRate`."""


@dataclass(frozen=True, slots=True)
class CatchUpOrder(Call[OrderReply]):
    """Bring replicas up to date."""

    groups: tuple[KeyGroup, ...]
    peer: MovePeer
    version: int
    rate: float | None


@dataclass(frozen=True, slots=True)
class GrantOrder(Call[OrderReply]):
    """Own key groups."""

    groups: tuple[KeyGroup, ...]
    source: MovePeer | None
    """Who has their state; None: it is in the store only."""
    version: int
    arrival: Arrival = Arrival.GROUP
    ready_first: bool = False


@dataclass(frozen=True, slots=True)
class ReleaseOrder(Call[OrderReply]):
    """Own key groups no longer."""

    groups: tuple[KeyGroup, ...]
    target: MovePeer
    version: int


@dataclass(frozen=True, slots=True)
class ImportOrder(Call[OrderReply]):
    """Bring what is missing of key groups."""

    groups: tuple[KeyGroup, ...]
    peer: MovePeer
    version: int
    rate: float | None
    priority: ImportPriority = ImportPriority.INDEX
    by_bin: bool = False


@dataclass(frozen=True, slots=True)
class CleanOrder(Call[OrderReply]):
    """Drop frozen state, deltas and replicas."""

    groups: tuple[KeyGroup, ...]
    peer: MovePeer
    version: int


@dataclass(frozen=True, slots=True)
class LagOrder(Call[OrderReply]):
    """Compare replicas with their source."""

    groups: tuple[KeyGroup, ...]
    peer: MovePeer


@dataclass(frozen=True, slots=True)
class SaveOrder(Call[SaveReply]):
    """Take snapshots of all that has changed."""

    epochs: dict[str, Epoch | None]
    """The last epoch of each operator."""


@dataclass(frozen=True, slots=True)
class LoadOrder(Call[OrderReply]):
    """Read the key groups that are owned from the store."""

    epochs: dict[str, Epoch | None]


Order = (
    ConnectOrder
    | CopyOrder
    | CatchUpOrder
    | GrantOrder
    | ReleaseOrder
    | ImportOrder
    | CleanOrder
    | LagOrder
    | SaveOrder
    | LoadOrder
)
