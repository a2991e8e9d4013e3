"""How long a worker was busy with each operator, and with what: for utilisation and skew."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

APPLYING, FETCHING, WRITING, SENDING = "applying", "fetching", "writing", "sending"
ACTIVITIES = (APPLYING, FETCHING, WRITING, SENDING)
"""User code and state; waiting for state from elsewhere; changelogs; outputs to lanes."""

ACTIVITY_OF = {"apply_ms": APPLYING, "load_ms": FETCHING, "write_ms": WRITING}
"""Times of a transaction that are no wait for its turn."""


class BusyClock:
    """Seconds since the process started, added up over the threads of an operator.

    One transaction of an operator is applied at a time: a second of applying is a second of the
    operator's capacity here. Several are written or sent at the same time.
    """

    def __init__(self) -> None:
        self._seconds = dict.fromkeys(ACTIVITIES, 0.0)
        self._lock = threading.Lock()

    def add(self, activity: str, seconds: float) -> None:
        """Something has taken so long."""
        with self._lock:
            self._seconds[activity] += seconds

    @contextmanager
    def counted(self, activity: str) -> Iterator[None]:
        """Count the time of something."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add(activity, time.monotonic() - started)

    def read(self) -> dict[str, float]:
        """Seconds of each activity."""
        with self._lock:
            return dict(self._seconds)
