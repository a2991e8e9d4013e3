"""Workers that come up: their process starts and answers its first grant."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.model.ids import WorkerId
from anabranch.protocol.coordinator import Effect, Event, OrderDone, SendOrder, WorkerStarted


def bring_up(
    handle: Callable[[Event], list[Effect]], worker: WorkerId, incarnation: int = 0
) -> list[Effect]:
    """What comes of it; of a process that was replaced meanwhile, nothing."""
    effects = handle(WorkerStarted(worker, incarnation))
    if not effects:
        return []
    (grant,) = effects
    assert isinstance(grant, SendOrder)
    assert grant.order.is_first_grant
    return handle(OrderDone(grant.number))
