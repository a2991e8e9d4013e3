"""What lanes say to the coordinator and to workers, and what they hear."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.model.batch_times import BatchTimes
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.protocol.epochs import TransactionReport
from anabranch.transport.messages.kinds import Call, Nothing

# --- with the coordinator -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaneOwner:
    """A worker that owns key groups of a lane."""

    worker: WorkerId
    address: str | None
    """None: it has just gone away."""
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LaneGrant:
    """The reply to `Begin`."""

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


@dataclass(frozen=True, slots=True)
class TransactionDone:
    """What a worker did for a lane, and what that took."""

    report: TransactionReport
    stats: dict[str, int]


@dataclass(frozen=True, slots=True)
class Finish(Call[Nothing]):
    """A lane has all outputs; for the last lane, the reply says that the epoch exists."""

    operator: str
    epoch: Epoch
    lane: Lane
    lanes: int
    transactions: tuple[TransactionDone, ...]
    stats: dict[str, int]
    """Of all of them together."""


@dataclass(frozen=True, slots=True)
class TickDue:
    """The reply to `Tick`."""

    is_due: bool


@dataclass(frozen=True, slots=True)
class Tick(Call[TickDue]):
    """Shall a batch run without new rows?"""

    operator: str


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


@dataclass(frozen=True, slots=True)
class TransactionReports:
    """What comes before the outputs of a transaction."""

    transactions: tuple[TransactionDone, ...] = ()
