"""Sees to it that a query hears of it when no host has room for its workers for too long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from anabranch.model.ids import WorkerId
from anabranch.protocol.coordinator_messages import HostsAwaited

LOOK_SECONDS = 0.5
STOP_SECONDS_MAX = 5.0
AGAIN_SECONDS = 5.0
"""Lanes that begin afterwards wait so long for their error."""


class HostWait:
    """Watches for workers that wait for a host."""

    def __init__(
        self,
        waiting: Callable[[], tuple[WorkerId, ...]],
        tell: Callable[[HostsAwaited], None],
        limit_seconds: float,
    ) -> None:
        self._waiting, self._tell, self._limit = waiting, tell, limit_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="anabranch-host-wait", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Nobody waits any more."""
        self._ended.set()
        self._thread.join(STOP_SECONDS_MAX)

    def _watch(self) -> None:
        since, next_time = time.monotonic(), self._limit
        while not self._ended.wait(min(LOOK_SECONDS, self._limit)):
            if not self._waiting():
                since, next_time = time.monotonic(), self._limit
                continue
            waited = time.monotonic() - since
            if waited >= next_time:
                next_time = waited + AGAIN_SECONDS
                self._tell(HostsAwaited(f"none has had room for {waited:.0f} s."))
