"""How fast moves may copy: bytes a second over all orders of a worker, changed at any time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BURST_SECONDS = 0.05
SLICE_SECONDS = 0.05


class RateLimiter:
    """A token bucket that may go into debt; waiting ends as soon as the rate is raised."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._rate: float | None = None
        self._tokens = 0.0
        self._filled_at = time.monotonic()

    def set(self, rate: float | None) -> None:
        """Bytes a second; None: as fast as possible."""
        with self._lock:
            self._refill()
            self._rate = None if rate is None else max(1.0, float(rate))
            if self._rate is None:
                self._tokens = 0.0
            self._lock.notify_all()

    @property
    def is_limited(self) -> bool:
        """Whether there is a rate."""
        return self._rate is not None

    def take(self, size: int, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Pay for bytes that have come, and wait until they are paid for or needed at once."""
        with self._lock:
            self._refill()
            if self._rate is None:
                return
            self._tokens -= size
            while (wait := self._owed_seconds()) > 0 and not is_urgent():
                self._lock.wait(min(SLICE_SECONDS, wait))
                self._refill()

    def _owed_seconds(self) -> float:
        return 0.0 if self._rate is None else -self._tokens / self._rate

    def _refill(self) -> None:
        now = time.monotonic()
        if self._rate is not None:
            earned = (now - self._filled_at) * self._rate
            self._tokens = min(self._tokens + earned, self._rate * BURST_SECONDS)
        self._filled_at = now
