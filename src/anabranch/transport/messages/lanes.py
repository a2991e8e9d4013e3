"""What lanes say to the coordinator and to workers, and what they hear."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.model.batch_times import BatchTimes
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.model.spark_task import NO_TASK, SparkTask
from anabranch.protocol.coordinator_messages import Unreached
from anabranch.protocol.epochs import TransactionReport
from anabranch.transport.messages.kinds import Call, Nothing

# --- with the coordinator -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LanePeer:
    """A worker's process, and where it listens."""

    worker: WorkerId
    incarnation: int
    address: str


@dataclass(frozen=True, slots=True)
class LaneOwner:
    """A worker that owns key groups of a lane."""

    worker: WorkerId
    incarnation: int
    address: str | None
    """None: it has just gone away."""
    groups: tuple[int, ...]
    relay: LanePeer | None = None
    """Who passes the exchange on: lanes of this host do not reach the worker itself."""


@dataclass(frozen=True, slots=True)
class LaneGrant:
    """The reply to `Begin`."""

    operator: str
    """The one that has the state of the lane's query, and the number of its definition."""
    definition: int
    version: int
    """Of the routing."""
    base: Epoch | None
    """The epoch that the state must have before the batch; None: empty."""
    owners: tuple[LaneOwner, ...]
    shadows: tuple[LaneOwner, ...]
    """Future owners, which get the rows too; their outputs are dropped."""
    times: BatchTimes
    initial: tuple[str, ...]
    """Files with the operator's initial state."""
    waits: tuple[int, ...] | None
    """Key groups whose rows wait in this epoch, if that is settled; None: workers choose."""


@dataclass(frozen=True, slots=True)
class Begin(Call[LaneGrant]):
    """A lane asks for the owners of its key groups."""

    operator: str
    definition: int
    """Number of the operator's definition that the query was built with."""
    query_id: str
    epoch: Epoch
    lane: Lane
    lanes: int
    attempt: int
    """Spark's id of this run of the task."""
    is_retry: bool
    """Whether this run of the task has begun before."""
    host: tuple[str, ...] = ()
    """Addresses and name of the lane's host."""
    unreached: tuple[Unreached, ...] = ()
    """Processes that the lane was sent to and could not reach."""


@dataclass(frozen=True, slots=True)
class TransactionDone:
    """What a worker did for a lane, and what that took."""

    report: TransactionReport
    stats: dict[str, int]
    rows: tuple[int, ...] = ()
    """Of each of the report's key groups, if the operator has sites."""
    bytes: int = 0
    """Of these rows."""


@dataclass(frozen=True, slots=True)
class Finish(Call[Nothing]):
    """A lane has all outputs; for the last lane, the reply says that the epoch exists."""

    operator: str
    definition: int
    epoch: Epoch
    lane: Lane
    lanes: int
    transactions: tuple[TransactionDone, ...]
    stats: dict[str, int]
    """Of all of them together."""
    host: tuple[str, ...] = ()
    """Addresses and name of the lane's host."""


@dataclass(frozen=True, slots=True)
class LaneFailed(Call[Nothing]):
    """A lane ends with this error."""

    operator: str
    run_id: str
    """Of the query, anew for each start."""
    epoch: Epoch
    message: str


# --- with workers; former owners pass rows on with the same messages ----------------------------


@dataclass(frozen=True, slots=True)
class TransactionHeader:
    """What comes before the rows of a transaction."""

    operator: str
    definition: int
    epoch: Epoch
    base: Epoch | None
    lane: Lane
    lanes: int
    attempt: int
    groups: tuple[KeyGroup, ...]
    version: int
    """Of the routing that the sender knows."""
    times: BatchTimes
    initial: tuple[str, ...] = ()
    waits: tuple[int, ...] | None = None
    is_shadow: bool = False
    """Whether only replicas are brought forward."""
    hops: int = 0
    """Former owners that have passed the rows on."""
    task: SparkTask = NO_TASK
    """The lane's; user code may ask for it."""
    relay_to: LanePeer | None = None
    """The worker that this is for, if whoever gets it is only to pass it on."""


@dataclass(frozen=True, slots=True)
class TransactionReports:
    """What comes before the outputs of a transaction."""

    transactions: tuple[TransactionDone, ...] = ()
    tallies: bytes = b""
    """What user code has added to accumulators (`processor/tally.py`)."""
