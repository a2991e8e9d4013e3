"""Closed-loop pacing: copies slow down when batches take longer than they should."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

START_BYTES_PER_SECOND = 48 << 20
LEAST_BYTES_PER_SECOND = 4 << 20
MOST_BYTES_PER_SECOND = 1 << 30
SLACK = 1.15
"""Batches may take this much longer than before the move, unless the user says otherwise."""


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

    def batch_took(self, seconds: float) -> int:
        """The new rate after a batch."""
        if self.target is None:
            self.target = SLACK * seconds
        if seconds > self.target:
            self.rate = max(self.least, self.rate // 2)
            self.slowdowns += 1
        else:
            self.rate = self.rate * 3 // 2
        self.rate = min(self.rate, self.limit)
        return self.rate

    def nothing_runs(self) -> int:
        """No batch for a while: nobody is disturbed."""
        self.rate = min(self.rate * 2, self.limit)
        return self.rate
