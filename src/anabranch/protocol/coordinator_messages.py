"""What the coordinator's machine hears (events) and orders (effects)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch, HostId, KeyGroup, Lane, WorkerId
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
    is_released: bool = False
    """Whether its last query left nothing: what it began does not matter any more."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """A process that a lane was sent to and could not reach."""

    worker: WorkerId
    incarnation: int
    relay: WorkerId | None = None
    """Through which it was tried; None: directly."""


@dataclass(frozen=True, slots=True)
class LaneBegan:
    """A lane asks to begin; `request` identifies the caller that waits for the answer."""

    request: int
    operator: str
    query_id: str
    epoch: Epoch
    lane: Lane
    lanes: int
    host: HostId | None = None
    """Where it runs; None: not known."""
    unreached: tuple[Unreached, ...] = ()
    """Of what it was granted the last time."""


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
class HostJoined:
    """A host can run workers; if it was there before, the workers that it had are gone."""

    host: HostId
    capacity: int | None
    """How many workers it may run; None: as many as are asked for."""
    labels: Mapping[str, str]
    others_follow: bool = False
    """Whether more hosts join right now: workers are spread when the last one has."""


@dataclass(frozen=True, slots=True)
class HostLost:
    """A host does not answer any more, or its agent has ended: all its workers are gone."""

    host: HostId
    reason: str


@dataclass(frozen=True, slots=True)
class HostsAwaited:
    """Workers have waited long enough for a host: lanes that wait for them shall hear of it."""

    reason: str


@dataclass(frozen=True, slots=True)
class BatchesIdle:
    """No batch runs, and none has for a while: a move need not wait for one.

    Nothing relies on it: a batch may begin at any moment.
    """

    ended: tuple[str, ...] = ()
    """Operators whose query ended in the middle of a batch."""
    bytes_of: Mapping[KeyGroup, int] = field(default_factory=dict)
    """About how much state each key group has; those that are not named have none."""


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
    idle: BatchesIdle | None = None
    """What BatchesIdle would say at this moment; None: batches run, or have lately."""
    hosts: Mapping[WorkerId, HostId] = field(default_factory=dict)
    """Where workers shall be, if there is room; a process that runs stays where it is."""
    drained_hosts: frozenset[HostId] = frozenset()
    """Hosts that take no workers from now on; all others do."""


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
    | HostJoined
    | HostLost
    | HostsAwaited
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
    relays: dict[WorkerId, WorkerId] = field(default_factory=dict)
    """Who passes the exchange with an owner on that the lane does not reach."""


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
    """Start a process for the worker on a host."""

    worker: WorkerId
    incarnation: int
    host: HostId


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
