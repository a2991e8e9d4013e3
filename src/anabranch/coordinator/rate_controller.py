"""Closed-loop pacing: copies slow down when batches take longer than they should."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from statistics import median

START_BYTES_PER_SECOND = 16 << 20
LEAST_BYTES_PER_SECOND = 8 << 20
"""Hardly to be noticed on two cores at half load; slower moves only last longer."""
MOST_BYTES_PER_SECOND = 1 << 30
GROWTH_BYTES_PER_SECOND = 4 << 20
"""More after each second, at most a quarter after a batch: what a rate does is known only a few
batches later."""
SLACK = 1.1
"""Batches may take this much longer than before the move, unless the user says otherwise.

More than they took is no reason to slow down, but one not to go faster: the rate would settle where
all batches take as long as they may."""
LATELY = 3
"""Batches whose median counts: single ones are slow now and then without any move."""
CALM_SECONDS, CALM_MOST = 1.5, 8
"""For so long (LATELY batches at least, so many at most) the median must be usual to go faster."""
FAR = 2
"""A batch that takes so many times what it should is a reason by itself."""


class RateController:
    """Chooses a rate from the times of batches: halve when too slow, grow while all is as usual.

    Each operator has its own measure and its own opinion; the slowest rate counts.
    """

    def __init__(
        self,
        before: Mapping[str, Sequence[float]],
        latency_target: float | None = None,
        bytes_per_second: int | None = None,
        least: int = LEAST_BYTES_PER_SECOND,
    ) -> None:
        """`before` are the seconds of batches before the move, by operator."""
        self.limit = bytes_per_second or MOST_BYTES_PER_SECOND
        self.least = least
        self.latency_target = latency_target
        self._usual = {name: median(times) for name, times in before.items() if times}
        self.rate = min(max(START_BYTES_PER_SECOND, least), self.limit)
        self._before_sleep = self.rate
        self.slowdowns = 0
        self._rates: dict[str, int] = {}
        self._lately: dict[str, deque[float]] = {}
        self._ended: dict[str, float] = {}
        """When the last batch of each operator did."""

    def batch_took(self, operator: str, seconds: float, now: float) -> int:
        """The new rate after a batch that has just ended."""
        since = now - self._ended.get(operator, now - seconds)
        self._ended[operator] = now
        usual = self._usual.setdefault(operator, seconds)
        target, calm = self.latency_target or SLACK * usual, self.latency_target or usual
        lately = self._lately.setdefault(operator, deque(maxlen=CALM_MOST))
        lately.append(seconds)
        # How fast it could be is known only near the rate that there is.
        rate = min(self._rates.get(operator, self.rate), self.rate)
        last, calm_count = list(lately)[-LATELY:], _calm_count(usual)
        if seconds > FAR * target or (len(last) == LATELY and median(last) > target):
            slower = min(rate, max(self.least, rate // 2))
            self.slowdowns += slower < rate
            rate = slower
            lately.clear()  # see first what this does
        elif len(lately) >= calm_count and median(list(lately)[-calm_count:]) <= calm:
            rate += min(rate // 4, int(GROWTH_BYTES_PER_SECOND * since))
        self._rates[operator] = min(rate, self.limit)
        self.rate = min(self._rates.values())
        return self.rate

    def fell_asleep(self) -> int:
        """Until a batch begins, nobody is disturbed: as fast as the user allows."""
        self._before_sleep, self.rate = self.rate, self.limit
        return self.rate

    def woke_up(self) -> int:
        """A batch begins where none ran: go on with what was right before."""
        self.rate = self._before_sleep
        self._rates = dict.fromkeys(self._rates, self.rate)
        return self.rate

    def nothing_runs(self) -> int:
        """No batch for a while: nobody is disturbed."""
        self.rate = min(self.rate * 2, self.limit)
        self._rates = dict.fromkeys(self._rates, self.rate)
        return self.rate


def _calm_count(usual_seconds: float) -> int:
    """Batches to look at before going faster."""
    return min(CALM_MOST, max(LATELY, round(CALM_SECONDS / max(usual_seconds, 0.001))))
