"""Calls to workers: how long each may take, and one call to many workers at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from anabranch.errors import AnabranchError
from anabranch.model.ids import WorkerId
from anabranch.protocol.move_orders import OrderKind
from anabranch.transport.client import Peer
from anabranch.transport.messages.kinds import Call

R = TypeVar("R")

STATUS_SECONDS_MAX = 10.0
"""A worker that is slower is left out of a picture."""

RATE_SECONDS_MAX = 5.0

INSTALL_SECONDS_MAX = 120.0
"""Libraries that an operator imports are loaded meanwhile."""

COMMITTED_SECONDS_MAX = 300.0
"""Snapshots are written meanwhile."""

_QUICK = 60.0
_BULK = 24 * 3600.0
"""State is sent meanwhile, as slowly as users want; a process that hangs is killed long before."""

ORDER_SECONDS_MAX = {
    OrderKind.CONNECT: _QUICK,
    OrderKind.GRANT: _QUICK,
    OrderKind.CLEAN: _QUICK,
    OrderKind.LAG: _QUICK,
    OrderKind.RELEASE: 660.0,  # transactions end meanwhile, for ten minutes at most
    OrderKind.COPY: _BULK,
    OrderKind.CATCH_UP: _BULK,
    OrderKind.IMPORT: _BULK,
    OrderKind.SAVE: _BULK,
    OrderKind.LOAD: _BULK,
}


def ask_all(
    peers: Mapping[WorkerId, Peer], request: Call[R], seconds_max: float
) -> dict[WorkerId, R]:
    """The replies of all workers, asked at once; one that does not answer is left out."""
    replies: dict[WorkerId, R] = {}

    def ask(worker: WorkerId, peer: Peer) -> None:
        with contextlib.suppress(AnabranchError):  # it just went away, or is busy
            replies[worker] = peer.call(request, seconds_max)

    at_once([partial(ask, worker, peer) for worker, peer in peers.items()])
    return {worker: replies[worker] for worker in peers if worker in replies}


def at_once(calls: Sequence[Callable[[], None]]) -> None:
    """Make calls in threads of their own, and wait for all."""
    threads = [threading.Thread(target=call, name="anabranch-call", daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # no limit: each call has one
