"""A transaction at a worker: its phases, what may follow what, and the key groups it works on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.protocol.worker_messages import (
    ChangesDurable,
    Event,
    ForwardFailed,
    GroupsLoaded,
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
    LOADING = "loading"
    APPLYING = "applying"
    PERSISTING = "persisting"
    FORWARDING = "forwarding"


BUSY = (TxPhase.LOADING, TxPhase.APPLYING, TxPhase.PERSISTING)

TRANSITIONS: dict[tuple[TxPhase, type[Event]], tuple[TxPhase | None, ...]] = {
    (TxPhase.RECEIVING, RowsComplete): (
        TxPhase.WAITING,
        TxPhase.LOADING,
        TxPhase.APPLYING,
        TxPhase.FORWARDING,
        None,
    ),
    (TxPhase.RECEIVING, LaneGone): (None,),
    (TxPhase.WAITING, LaneGone): (TxPhase.WAITING,),
    (TxPhase.LOADING, LaneGone): (TxPhase.LOADING,),
    (TxPhase.APPLYING, LaneGone): (TxPhase.APPLYING,),
    (TxPhase.PERSISTING, LaneGone): (TxPhase.PERSISTING,),
    (TxPhase.FORWARDING, LaneGone): (TxPhase.FORWARDING,),
    (TxPhase.LOADING, GroupsLoaded): (TxPhase.APPLYING,),
    (TxPhase.LOADING, TransactionFailed): (TxPhase.FORWARDING, None),
    (TxPhase.LOADING, RowsForwarded): (TxPhase.LOADING,),
    (TxPhase.LOADING, ForwardFailed): (TxPhase.LOADING,),
    (TxPhase.APPLYING, TransactionApplied): (
        TxPhase.APPLYING,
        TxPhase.LOADING,
        TxPhase.PERSISTING,
        None,
    ),
    (TxPhase.APPLYING, TransactionFailed): (TxPhase.FORWARDING, None),
    (TxPhase.APPLYING, RowsForwarded): (TxPhase.APPLYING,),
    (TxPhase.APPLYING, ForwardFailed): (TxPhase.APPLYING,),
    (TxPhase.PERSISTING, ChangesDurable): (TxPhase.FORWARDING, None),
    (TxPhase.PERSISTING, TransactionFailed): (TxPhase.FORWARDING, None),
    (TxPhase.PERSISTING, RowsForwarded): (TxPhase.PERSISTING,),
    (TxPhase.PERSISTING, ForwardFailed): (TxPhase.PERSISTING,),
    (TxPhase.FORWARDING, RowsForwarded): (TxPhase.FORWARDING, None),
    (TxPhase.FORWARDING, ForwardFailed): (TxPhase.FORWARDING, None),
}
"""What may follow what; None is the end. WAITING is left when another transaction ends."""


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
