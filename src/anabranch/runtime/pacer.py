"""Closed-loop pacing: copies slow down when batches take longer than they should."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

START_BYTES_PER_SECOND = 24 << 20
LEAST_BYTES_PER_SECOND = 12 << 20
"""Hardly to be noticed on two cores at half load; slower moves only last longer."""
MOST_BYTES_PER_SECOND = 1 << 30
SLACK = 1.1
"""Batches may take this much longer than before the move, unless the user says otherwise."""
LATELY = 3
"""Batches whose median counts: single ones are slow now and then without any move."""
FAR = 2
"""A batch that takes so many times what it should is a reason by itself."""


class Pacer:
    """Chooses a rate from the times of batches: halve when too slow, grow while all is well."""

    def __init__(
        self,
        before: Sequence[float],
        latency_target: float | None = None,
        bytes_per_second: int | None = None,
        least: int = LEAST_BYTES_PER_SECOND,
    ) -> None:
        """`before` are the seconds of batches before the move."""
        self.limit = bytes_per_second or MOST_BYTES_PER_SECOND
        self.least = least
        self.target = latency_target
        if self.target is None and before:
            self.target = SLACK * median(before)
        self.rate = min(START_BYTES_PER_SECOND, self.limit)
        self.slowdowns = 0
        self._lately: deque[float] = deque(maxlen=LATELY)

    def batch_took(self, seconds: float) -> int:
        """The new rate after a batch."""
        if self.target is None:
            self.target = SLACK * seconds
        self._lately.append(seconds)
        is_known = len(self._lately) == LATELY
        if seconds > FAR * self.target or (is_known and median(self._lately) > self.target):
            self.rate = max(self.least, self.rate // 2)
            self.slowdowns += 1
            self._lately.clear()  # see first what this does
        elif is_known:
            self.rate = self.rate * 5 // 4
        self.rate = min(self.rate, self.limit)
        return self.rate

    def nothing_runs(self) -> int:
        """No batch for a while: nobody is disturbed."""
        self.rate = min(self.rate * 2, self.limit)
        return self.rate
