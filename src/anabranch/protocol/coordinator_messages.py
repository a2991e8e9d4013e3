"""What the coordinator's machine hears (events) and orders (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch, Lane, WorkerId
from anabranch.protocol.epochs import LaneReport, TransactionReport
from anabranch.protocol.move_orders import WorkerOrder

# --- events ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OperatorRegistered:
    """An operator of this run, with what its location holds."""

    operator: str
    query_id: str | None = None
    committed: Epoch | None = None
    before_committed: Epoch | None = None
    """Epoch that `committed` was built on; None: it was the operator's first."""
    first: Epoch | None = None
    """Epoch that BindQuery remembered: until it is committed, no other one may begin."""
    start_empty: bool = False
    """Whether an operator without state may begin in the middle of a query."""
    restored: Epoch | None = None
    """Epoch of the savepoint that is its state before its first epoch: 0, or the one after."""
    continues: bool = False
    """Whether 0 is not allowed then."""


@dataclass(frozen=True, slots=True)
class LaneBegan:
    """A lane asks to begin; `request` identifies the caller that waits for the answer."""

    request: int
    operator: str
    query_id: str
    epoch: Epoch
    lane: Lane
    lanes: int


@dataclass(frozen=True, slots=True)
class LaneFinished:
    """A lane has all outputs; its transactions are durable."""

    request: int
    operator: str
    epoch: Epoch
    lane: Lane
    lanes: int
    report: LaneReport


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """The epoch's manifest is durable."""

    operator: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class ManifestFailed:
    """The epoch's manifest could not be written."""

    operator: str
    epoch: Epoch
    error: AnabranchError


@dataclass(frozen=True, slots=True)
class WorkerStarted:
    """A worker process runs and has all operators; it does not know yet what it owns."""

    worker: WorkerId
    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerDown:
    """A worker process has ended or does not answer."""

    worker: WorkerId
    incarnation: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MoveRequested:
    """Change owners and workers; takes the place of a reconfiguration that runs."""

    number: int
    owners: tuple[WorkerId, ...]
    """Owner of every key group at the end."""
    workers: tuple[WorkerId, ...]
    """The workers that there shall be at the end."""
    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrderDone:
    """A worker has carried out an order."""

    order: int
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OrderFailed:
    """A worker could not carry out an order, or is gone."""

    order: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BatchesIdle:
    """No batch runs, and none has for a while: a move need not wait for one."""

    ended: tuple[str, ...] = ()
    """Operators whose query ended in the middle of a batch."""


@dataclass(frozen=True, slots=True)
class BatchesStuck:
    """Batches run, but nothing has come of them for a long time."""

    reason: str


Event = (
    OperatorRegistered
    | LaneBegan
    | LaneFinished
    | ManifestWritten
    | ManifestFailed
    | WorkerStarted
    | WorkerDown
    | MoveRequested
    | OrderDone
    | OrderFailed
    | BatchesIdle
    | BatchesStuck
)


# --- effects -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GrantLane:
    """Answer to LaneBegan: the owners of the lane's key groups and the state to start from."""

    request: int
    version: int
    owners: dict[WorkerId, tuple[int, ...]]
    incarnations: dict[WorkerId, int]
    base: Epoch | None
    """Epoch that the state must have before this one is applied; None: empty."""
    shadows: dict[WorkerId, tuple[int, ...]] = field(default_factory=dict)
    """Future owners that get the rows too; their outputs are dropped."""


@dataclass(frozen=True, slots=True)
class ConfirmFinish:
    """Answer to LaneFinished."""

    request: int


@dataclass(frozen=True, slots=True)
class RefuseRequest:
    """Answer to any request that cannot be served."""

    request: int
    error: AnabranchError


@dataclass(frozen=True, slots=True)
class BindQuery:
    """Remember durably which Spark query the state belongs to, and with which epoch it begins."""

    operator: str
    query_id: str
    first: Epoch


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Make the epoch exist."""

    operator: str
    epoch: Epoch
    base: Epoch | None
    transactions: tuple[TransactionReport, ...]


@dataclass(frozen=True, slots=True)
class StartWorker:
    """Start a process for the worker."""

    worker: WorkerId
    incarnation: int


@dataclass(frozen=True, slots=True)
class StopWorker:
    """End a process that is not needed any more."""

    worker: WorkerId
    incarnation: int


@dataclass(frozen=True, slots=True)
class SendOrder:
    """Let a worker carry out an order; it ends in OrderDone or OrderFailed."""

    number: int
    worker: WorkerId
    incarnation: int
    order: WorkerOrder


@dataclass(frozen=True, slots=True)
class MoveEnded:
    """Nothing is left to do for a request."""

    number: int
    reason: str
    """Why it ended early; empty: the new routing is reached."""
    counters: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, int] = field(default_factory=dict)
    """How many key groups came how far."""


Effect = (
    GrantLane
    | ConfirmFinish
    | RefuseRequest
    | BindQuery
    | WriteManifest
    | StartWorker
    | StopWorker
    | SendOrder
    | MoveEnded
)
