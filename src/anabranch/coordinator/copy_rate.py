"""How fast the copies of the present request may be: chosen from batches, told to the workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from anabranch.coordinator.batch_watch import BatchWatch
from anabranch.coordinator.calls import RATE_SECONDS_MAX, ask_all
from anabranch.coordinator.move_request import MoveWish
from anabranch.coordinator.planning import COPY_BYTES_PER_SECOND
from anabranch.coordinator.rate_controller import (
    LEAST_BYTES_PER_SECOND,
    START_BYTES_PER_SECOND,
    RateController,
)
from anabranch.processes.worker_pool import WorkerPool
from anabranch.transport.messages.control import SetRate

_log = logging.getLogger("anabranch.moves")

ADAPTIVE_STRATEGIES = {"live": LEAST_BYTES_PER_SECOND, "lazy": 48 << 20}
"""Strategies whose copies adapt to the batches, and how slow they may become.

Under `lazy` batches fetch what has not come, so that they are slow until all has come.
"""


class CopyRate:
    """Between the controller of the newest request and the workers."""

    def __init__(self, lock: Any, pool: WorkerPool, batches: BatchWatch) -> None:
        """`lock` is the protocol's."""
        self._lock = lock
        self._pool = pool
        self._batches = batches
        self._controller: RateController | None = None

    def usual(self, wish: MoveWish) -> int:
        """Bytes a second that copies begin with, for estimates."""
        rate = wish.bytes_per_second or COPY_BYTES_PER_SECOND
        if wish.strategy in ADAPTIVE_STRATEGIES and self._batches.is_busy():
            rate = min(rate, max(START_BYTES_PER_SECOND, ADAPTIVE_STRATEGIES[wish.strategy]))
        return rate

    def begin(self, wish: MoveWish, is_idle: bool) -> None:
        """A request begins; call it with the lock taken."""
        self._controller = self._controller_of(wish)
        if is_idle:
            self.idle_changed(is_idle)

    def idle_changed(self, is_idle: bool) -> None:
        """No batch runs, or one has begun; `tell` it to the workers without the lock."""
        with self._lock:
            if self._controller is not None:
                change = self._controller.fell_asleep if is_idle else self._controller.woke_up
                change()

    def _controller_of(self, wish: MoveWish) -> RateController | None:
        rate, target = wish.bytes_per_second, wish.latency_target
        if wish.strategy not in ADAPTIVE_STRATEGIES and not rate and not target:
            return None
        least = ADAPTIVE_STRATEGIES.get(wish.strategy, LEAST_BYTES_PER_SECOND)
        return RateController(self._batches.seconds_before(), target, rate, least)

    @property
    def now(self) -> int | None:
        """Bytes a second; None: as fast as they can."""
        return None if self._controller is None else self._controller.rate

    def counters(self) -> dict[str, int]:
        """For the report of the present request."""
        return {} if self._controller is None else {"slowdowns": self._controller.slowdowns}

    # -- news of batches --

    def committed(self, operator: str, seconds: float | None) -> None:
        """A batch took so long; None: nobody knows."""
        if seconds is not None:
            took, now = seconds, time.monotonic()
            self._change(lambda controller: controller.batch_took(operator, took, now))

    def nothing_runs(self) -> None:
        """No batch for a while."""
        self._change(RateController.nothing_runs)

    def _change(self, how: Callable[[RateController], object]) -> None:
        with self._lock:
            controller, before = self._controller, self.now
            if controller is not None:
                how(controller)
        if self.now != before:
            self.tell()

    def tell(self) -> None:
        """Let copies that run have the present rate."""
        rate = self.now
        if rate is None:
            return
        ask_all(self._pool.peers(), SetRate(rate), RATE_SECONDS_MAX)
