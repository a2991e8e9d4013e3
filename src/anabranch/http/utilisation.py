"""How busy workers are just now: from two looks at the seconds that they have been busy so far."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

SECONDS_MIN = 4.0
"""Between the two looks: a batch or two must fit in between."""
SECONDS_MAX = 60.0
LOOKS_MAX = 100

Busy = dict[str, dict[str, float]]
"""By worker and activity: seconds."""


class Utilisation:
    """Remembers looks at the service."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._looks: deque[tuple[float, Busy]] = deque(maxlen=LOOKS_MAX)
        self._lock = threading.Lock()

    def look(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        """`workers` as in `status()`; looks in quick succession count once."""
        now = self._now()
        with self._lock:
            if self._looks and now - self._looks[-1][0] < 0.5:
                return
            self._looks.append((now, {name: _busy(shown) for name, shown in workers.items()}))
            while now - self._looks[0][0] > SECONDS_MAX:
                self._looks.popleft()

    def shares(self) -> Busy:
        """By worker and activity: the share of time; of workers that were there at both looks.

        Empty until there are two looks that are far enough from each other.
        """
        with self._lock:
            looks = list(self._looks)
        if not looks:
            return {}
        now, last = looks[-1]
        shares: Busy = {}
        for worker, busy in last.items():
            # The earliest look at the same process: its seconds only grow.
            for then, first in looks:
                known = first.get(worker)
                if now - then < SECONDS_MIN:
                    break
                if known is not None and all(busy[w] >= known.get(w, 0.0) for w in busy):
                    shares[worker] = {
                        what: round((seconds - known.get(what, 0.0)) / (now - then), 4)
                        for what, seconds in busy.items()
                    }
                    break
        return shares


def _busy(shown: Mapping[str, Any]) -> dict[str, float]:
    total: dict[str, float] = {}
    for operator in shown["busy_seconds"].values():
        for activity, seconds in operator.items():
            total[activity] = total.get(activity, 0.0) + seconds
    return total
