"""What the coordinator asks of workers, moves apart."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.model.ids import Epoch, WorkerId
from anabranch.transport.messages.kinds import Call, Nothing


@dataclass(frozen=True, slots=True)
class Install(Call[Nothing]):
    """A definition of an operator; one that is known already changes nothing."""

    operator: str
    definition: int
    python_path: tuple[str, ...]
    """Where the driver finds modules."""
    is_restored: bool
    """Whether a savepoint is its state before its first epoch."""
    in_background: bool
    """Whether batches of other workers come first: this one owns nothing yet."""
    pickled: bytes


@dataclass(frozen=True, slots=True)
class Ping(Call[Nothing]):
    """Are you there?"""

    caller: WorkerId | None = None
    """None: the coordinator."""


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call of user code that is under way."""

    number: int
    """Another one for each call of a process."""
    operator: str
    definition: int
    method: str
    key: str | None
    """As a person reads it; None: the call is not for one key."""
    epoch: int | None
    """None: it is not for a batch."""
    attempt: int | None
    """The task that waits for it; None: nobody does."""
    seconds: float
    is_abandoned: bool
    """Whether the task that waited for it is gone."""
    stack: str
    """Of its thread, the user's frames."""


@dataclass(frozen=True, slots=True)
class UserCalls:
    """The reply to `SlowCalls`."""

    calls: tuple[UserCall, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowCalls(Call[UserCalls]):
    """Are you there, and which calls of user code take long?"""

    longer_than_seconds: float


@dataclass(frozen=True, slots=True)
class CommitNotes:
    """The reply to `Committed`."""

    snapshots: tuple[str, ...]
    """References to files, for the next manifest."""
    heat: str | None
    """What was hot; None: the operator is not known."""


@dataclass(frozen=True, slots=True)
class Committed(Call[CommitNotes]):
    """An epoch exists."""

    operator: str
    epoch: Epoch
    is_moving: bool = False
    """Whether key groups move just now: snapshots are put off."""


@dataclass(frozen=True, slots=True)
class OperatorStatus:
    """What a worker holds of an operator."""

    key_groups: int
    rows: int
    bytes: int
    bins_in_store: int
    rows_seen: int
    rows_missed: int | None
    """Rows whose key was not in memory; None: the backend does not tell."""
    busy_seconds: dict[str, float] = field(default_factory=dict)
    """Since the process started, by activity (`worker/busy.py`)."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The reply to `Status`."""

    operators: dict[str, OperatorStatus]
    bins: int
    """Of a key group."""
    moves: dict[str, int]
    """Counters of what moves have done since the process started."""
    resident_bytes: int | None = None
    """Of the process, as the system counts it; None: it does not tell."""
    peak_resident_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Status(Call[WorkerStatus]):
    """What do you hold?"""


@dataclass(frozen=True, slots=True)
class GroupLoad:
    """What a key group costs, over all operators."""

    bytes: int = 0
    rows: int = 0
    """Recent ones."""
    unseen: int = 0
    """Operators of which no batch has been here since the key group came."""

    def __add__(self, other: GroupLoad) -> GroupLoad:
        return GroupLoad(
            self.bytes + other.bytes, self.rows + other.rows, self.unseen + other.unseen
        )


@dataclass(frozen=True, slots=True)
class GroupLoads:
    """The reply to `Loads`."""

    groups: dict[int, GroupLoad]


@dataclass(frozen=True, slots=True)
class Loads(Call[GroupLoads]):
    """What do the key groups that you own cost?"""


@dataclass(frozen=True, slots=True)
class SetRate(Call[Nothing]):
    """Copy so many bytes a second from now on."""

    rate: float | None
    """None: as fast as possible."""
