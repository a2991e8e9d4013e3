"""A transaction at a worker: its phases, what may follow what, and the key groups it works on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.protocol.residency_messages import (
    AwaitingExpired,
    DeferralChosen,
    GroupsFetched,
    GroupsLoaded,
    ReplicaOrigin,
)
from anabranch.protocol.worker_messages import (
    ChangesDurable,
    Event,
    ForwardFailed,
    LaneGone,
    RowsComplete,
    RowsForwarded,
    TransactionApplied,
    TransactionFailed,
    TransactionOpened,
)


class TxPhase(Enum):
    """How far a transaction has come."""

    RECEIVING = "receiving"
    WAITING = "waiting"
    CHOOSING = "choosing"
    AWAITING = "awaiting"
    FETCHING = "fetching"
    LOADING = "loading"
    APPLYING = "applying"
    PERSISTING = "persisting"
    FORWARDING = "forwarding"


BRINGING = (TxPhase.CHOOSING, TxPhase.AWAITING, TxPhase.FETCHING, TxPhase.LOADING)
BUSY = (*BRINGING, TxPhase.APPLYING, TxPhase.PERSISTING)

_BROUGHT = (TxPhase.AWAITING, TxPhase.FETCHING, TxPhase.LOADING, TxPhase.APPLYING)
_OVER = (TxPhase.FORWARDING, None)

TRANSITIONS: dict[tuple[TxPhase, type[Event]], tuple[TxPhase | None, ...]] = {
    (TxPhase.RECEIVING, RowsComplete): (
        TxPhase.WAITING,
        TxPhase.CHOOSING,
        *_BROUGHT,
        *_OVER,
    ),
    (TxPhase.RECEIVING, LaneGone): (None,),
    **{(phase, LaneGone): (phase,) for phase in (TxPhase.WAITING, *BUSY, TxPhase.FORWARDING)},
    **{(phase, TransactionFailed): _OVER for phase in BUSY},
    **{(phase, event): (phase,) for phase in BUSY for event in (RowsForwarded, ForwardFailed)},
    (TxPhase.CHOOSING, DeferralChosen): _BROUGHT,
    (TxPhase.AWAITING, AwaitingExpired): _BROUGHT[:-1],
    (TxPhase.FETCHING, GroupsFetched): (TxPhase.LOADING, TxPhase.APPLYING),
    (TxPhase.LOADING, GroupsLoaded): (TxPhase.APPLYING,),
    (TxPhase.APPLYING, TransactionApplied): (
        TxPhase.APPLYING,
        TxPhase.CHOOSING,
        *_BROUGHT[:-1],
        TxPhase.PERSISTING,
        None,
    ),
    (TxPhase.PERSISTING, ChangesDurable): _OVER,
    (TxPhase.FORWARDING, RowsForwarded): _OVER,
    (TxPhase.FORWARDING, ForwardFailed): _OVER,
}
"""What may follow what; None is the end.

WAITING is left when another transaction ends, AWAITING when what was coming in has come, or does
not come any more."""


@dataclass(slots=True)
class HeldGroup:
    """One key group of one operator that is in memory, owned or not."""

    as_of: Epoch | None
    outputs_of: Epoch | None = None
    """Epoch whose outputs are cached."""
    rows: int | None = None
    """Number of input rows that these outputs come from; None: not counted."""
    is_partial: bool = False
    """Whether bins are missing: they are at the source, as of the flip, or in the store."""
    replica: ReplicaOrigin | None = None
    """Where it was copied from, if it is a replica that a delta can bring up to date."""


@dataclass(slots=True)
class Tx:
    """One transaction."""

    opened: TransactionOpened
    phase: TxPhase = TxPhase.RECEIVING
    fresh: tuple[KeyGroup, ...] = ()
    """Key groups that this transaction applies (the others are cached or forwarded)."""
    granted: dict[KeyGroup, int] = field(default_factory=dict)
    """Versions at which the fresh ones were owned when it started."""
    loading: tuple[KeyGroup, ...] = ()
    """Fresh key groups that must be brought here first."""
    brought: tuple[KeyGroup, ...] = ()
    """Those that were, or are, brought together: they are applied together."""
    requested: tuple[KeyGroup, ...] = ()
    """Those that sources were asked for."""
    staged: dict[KeyGroup, int] = field(default_factory=dict)
    """Sessions of what was staged when it was chosen whose rows wait."""
    progress: dict[KeyGroup, tuple[int, int]] = field(default_factory=dict)
    """How much had come of what it awaits when somebody looked last."""
    is_impatient: bool = False
    """Whether it has waited long enough for what was coming in."""
    has_applied: bool = False
    """Whether some of them are applied already, before the others are here."""
    forwarded: tuple[KeyGroup, ...] = ()
    """Key groups that have moved: their rows go to the new owner, the outputs come back."""
    awaited: set[WorkerId] = field(default_factory=set)
    """New owners whose outputs have not come back yet."""
    error: AnabranchError | None = None
    """What failed first; said to the lane at the end."""
    rows: dict[KeyGroup, int] = field(default_factory=dict)

    def is_busy_with(self, operator: str, group: KeyGroup | None) -> bool:
        """Whether it changes a key group of an operator (None: any) between end mark and answer."""
        if self.phase not in BUSY or self.opened.operator != operator:
            return False
        return group is None or group in self.fresh
