"""Which events change how much of a key group is in memory, and how: data, for the simulator.

The machine does not read it: it decides in `residency.py`, and every simulated step is checked
against this table.
"""

from __future__ import annotations

from anabranch.protocol.residency_messages import (
    AwaitingExpired,
    DeferralChosen,
    GroupsEvicted,
    GroupsFetched,
    GroupsLoaded,
    ImportEnded,
    PartFailed,
    PartInstalled,
    ReceivingEnded,
    ReplicasChanged,
    Residency,
)
from anabranch.protocol.worker_messages import (
    ChangesDurable,
    Event,
    ForwardFailed,
    GroupsDropped,
    GroupsGranted,
    GroupsReleased,
    OperatorInstalled,
    RowsComplete,
    RowsForwarded,
    TransactionApplied,
    TransactionFailed,
)

_ABSENT, _REPLICA, _FROZEN, _HELD = (
    Residency.ABSENT,
    Residency.REPLICA,
    Residency.FROZEN,
    Residency.HELD,
)
_AWAITED, _STAGED, _PARTIAL, _STORED = (
    Residency.AWAITED,
    Residency.STAGED,
    Residency.PARTIAL,
    Residency.STORED,
)

RESIDENCY: dict[tuple[Residency, type[Event]], tuple[Residency, ...]] = {
    (_ABSENT, GroupsGranted): (_AWAITED,),
    (_REPLICA, GroupsGranted): (_HELD, _AWAITED),
    (_FROZEN, GroupsGranted): (_HELD, _AWAITED, _ABSENT),
    (_HELD, GroupsGranted): (_AWAITED,),
    (_AWAITED, GroupsGranted): (_ABSENT, _HELD),
    (_STAGED, GroupsGranted): (_AWAITED, _ABSENT),
    (_PARTIAL, GroupsGranted): (_AWAITED, _ABSENT),
    (_STORED, GroupsGranted): (_AWAITED, _ABSENT),
    (_HELD, GroupsReleased): (_FROZEN,),
    (_AWAITED, GroupsReleased): (_ABSENT, _FROZEN),
    (_STAGED, GroupsReleased): (_ABSENT, _FROZEN),
    (_PARTIAL, GroupsReleased): (_FROZEN,),
    (_STORED, GroupsReleased): (_FROZEN, _ABSENT),
    (_REPLICA, GroupsReleased): (_FROZEN,),
    (_REPLICA, GroupsDropped): (_ABSENT,),
    (_FROZEN, GroupsDropped): (_ABSENT,),
    **{(phase, OperatorInstalled): (_ABSENT,) for phase in Residency if phase is not _ABSENT},
    (_ABSENT, ReplicasChanged): (_REPLICA, _FROZEN, _HELD),
    (_HELD, RowsComplete): (_ABSENT,),
    (_AWAITED, RowsComplete): (_ABSENT,),
    (_STAGED, RowsComplete): (_PARTIAL, _ABSENT),
    (_PARTIAL, RowsComplete): (_ABSENT,),
    (_STORED, RowsComplete): (_ABSENT,),
    (_AWAITED, GroupsFetched): (_PARTIAL, _HELD, _ABSENT),
    (_PARTIAL, GroupsFetched): (_HELD, _STORED, _ABSENT),
    (_ABSENT, GroupsFetched): (_FROZEN,),
    (_FROZEN, GroupsFetched): (_ABSENT,),
    (_ABSENT, GroupsLoaded): (_HELD, _STORED, _FROZEN),
    (_AWAITED, GroupsLoaded): (_HELD, _STORED),
    (_STAGED, GroupsLoaded): (_HELD, _STORED),
    (_STORED, GroupsLoaded): (_HELD,),
    (_HELD, GroupsLoaded): (_STORED,),
    (_ABSENT, DeferralChosen): (_STORED, _FROZEN),
    (_AWAITED, DeferralChosen): (_PARTIAL,),
    (_STAGED, DeferralChosen): (_PARTIAL,),
    (_AWAITED, PartInstalled): (_STAGED, _HELD),
    (_STAGED, PartInstalled): (_HELD,),
    (_PARTIAL, PartInstalled): (_HELD,),
    (_STORED, PartInstalled): (_HELD,),
    (_STAGED, PartFailed): (_AWAITED,),
    (_HELD, GroupsEvicted): (_STORED,),
    **{
        (phase, TransactionFailed): (_ABSENT,)
        for phase in (_HELD, _AWAITED, _STAGED, _PARTIAL, _STORED, _FROZEN, _REPLICA)
    },
}
"""Which events change how much of a key group is here; all others leave it as it is."""

STARTING = (
    TransactionApplied,
    ChangesDurable,
    TransactionFailed,
    RowsForwarded,
    ForwardFailed,
    DeferralChosen,
    AwaitingExpired,
    PartInstalled,
    PartFailed,
    ReceivingEnded,
    ImportEnded,
    GroupsGranted,
    GroupsReleased,
    GroupsDropped,
    OperatorInstalled,
)
"""Events after which transactions that waited may start: what RowsComplete changes, these may.

Those that end one also drop what was doomed meanwhile."""


def may_become(before: Residency, event: type[Event], after: Residency) -> bool:
    """Whether the table has a change."""
    if after in RESIDENCY.get((before, event), ()):
        return True
    if event not in STARTING:
        return False
    if after is _ABSENT and before in (_REPLICA, _FROZEN):
        return True
    between = (before, *RESIDENCY.get((before, event), ()))
    return any(after in RESIDENCY.get((phase, RowsComplete), ()) for phase in between)
