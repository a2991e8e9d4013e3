"""What lanes say they do not reach: the coordinator tries it itself before anything is decided."""

from __future__ import annotations

import time
from collections.abc import Iterable

from anabranch.errors import AnabranchError
from anabranch.processes.worker_pool import WorkerPool
from anabranch.protocol.coordinator_messages import Unreached
from anabranch.transport.messages.control import Ping

TRY_SECONDS_MAX = 3.0
AGAIN_SECONDS = 0.2

WAIT_SECONDS_MAX = 120.0
"""The pool ends a process that does not answer, or its host is lost, long before."""


class LaneDoubts:
    """Tells cuts between hosts from processes that are gone, or busy."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def confirmed(self, unreached: Iterable[Unreached]) -> tuple[Unreached, ...]:
        """What only the lane does not reach.

        A process that the coordinator does not reach either is waited for, until it answers or has
        a successor: the lane would only be sent to it again.
        """
        return tuple(each for each in unreached if self._is_reached_at_once(each))

    def _is_reached_at_once(self, each: Unreached) -> bool:
        until, is_first = time.monotonic() + WAIT_SECONDS_MAX, True
        while time.monotonic() < until:
            peer = self._pool.peers().get(each.worker)
            if peer is None or self._pool.address(each.worker, each.incarnation) is None:
                return False
            try:
                peer.call(Ping(), TRY_SECONDS_MAX)
            except AnabranchError:
                is_first = False
                time.sleep(AGAIN_SECONDS)
            else:
                return is_first
        return False
