"""What the autoscaler remembers from one decision to the next: a value, replaced by each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

PATIENCE_MAX = 16
DAY_SECONDS = 86_400.0
REGRET_INTERVALS = 4
"""A step up within so many intervals after a step down says that the step down was wrong."""
CALM_INTERVALS = 16
"""After so many without regret, patience gets less."""
REMEMBER_SECONDS = 900.0
"""A step that brought nothing is not tried again for so long; each time twice as long."""
REMEMBER_SECONDS_MAX = 4 * 3600.0
RETRY_SECONDS, RETRY_SECONDS_MAX = 10.0, 600.0
CORRECTION_MAX = 10.0


@dataclass(frozen=True, slots=True)
class ScalerStep:
    """A change of the number of workers, and what was promised."""

    at: float
    before: int
    after: int
    row_seconds_before: float = 0.0
    """Of the busiest worker, for a row of the query; 0: nothing was promised."""
    promised: float = 0.0
    """How much less that shall be."""
    query: str = ""
    arrival: float = 0.0
    """Of its rows, then."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A step that brought nothing."""

    least: int
    """Workers from which more brought nothing."""
    until: float
    times: int = 1


@dataclass(frozen=True, slots=True)
class ScalerMemory:
    """All of it."""

    since: float | None = None
    """The first decision that had something to go by."""
    peaks: tuple[tuple[float, int], ...] = ()
    """When how many workers were wanted: those that no later and higher wish outdoes."""
    lows: tuple[tuple[float, int], ...] = ()
    """The same for the fewest."""
    wish: tuple[str, float] | None = None
    """What the last decision wanted, and the newest batch behind it: the next one must agree."""
    step: ScalerStep | None = None
    """The last one that is still to be judged, or was the last."""
    judged: bool = True
    acted: float | None = None
    """When something was done last."""
    last_down: ScalerStep | None = None
    downs: tuple[float, ...] = ()
    """When workers have left, within a day."""
    high: int = 0
    """The number from which the last steps down came."""
    patience: int = 1
    """Times `scale_down_interval`."""
    regretted: float | None = None
    failed: Failed | None = None
    rebalanced: tuple[float, float] | None = None
    """When, and the skew before it."""
    no_rebalance_until: float = 0.0
    shown: Mapping[str, float] = field(default_factory=dict)
    """By query: rows a second that a worker has taken, at most."""
    failures: int = 0
    """Steps in a row that could not be carried out."""
    retry_at: float = 0.0
    correction: float = 1.0
    """Measured seconds of moves to forecast ones."""

    def saw(self, now: float, good: int, interval: float) -> ScalerMemory:
        """So many workers are wanted now; forget what is older than the interval."""
        peaks = [(at, n) for at, n in self.peaks if n > good and at >= now - interval]
        lows = [(at, n) for at, n in self.lows if n < good and at >= now - interval]
        since = now if self.since is None else self.since
        return replace(self, since=since, peaks=(*peaks, (now, good)), lows=(*lows, (now, good)))

    def highest(self, since: float) -> int:
        """Of what was wanted since then."""
        return max(good for at, good in self.peaks if at >= since or at == self.peaks[-1][0])

    def is_rising(self) -> bool:
        """Whether fewer would have been enough a while ago than now."""
        return self.lows[0][1] < self.lows[-1][1]

    def came_down(self, now: float, interval: float) -> bool:
        """Whether workers have left a short time ago."""
        down = self.last_down
        return down is not None and now - down.at < REGRET_INTERVALS * interval

    def stepped_up(self, step: ScalerStep, interval: float) -> ScalerMemory:
        """Workers come; soon after others have left, that was wrong."""
        regrets = self.came_down(step.at, interval)
        patience = min(PATIENCE_MAX, 2 * self.patience) if regrets else self.patience
        return replace(
            self.saw(step.at, step.after, math.inf),
            lows=(),
            step=step,
            judged=step.promised <= 0,
            acted=step.at,
            wish=None,
            patience=patience,
            regretted=step.at if regrets else self.regretted,
            last_down=None,
        )

    def stepped_down(self, step: ScalerStep, interval: float) -> ScalerMemory:
        """Workers leave."""
        quiet = self.regretted is None or step.at - self.regretted > CALM_INTERVALS * interval
        return replace(
            self,
            step=step,
            judged=True,
            acted=step.at,
            wish=None,
            patience=max(1, self.patience // 2) if quiet else self.patience,
            last_down=step,
            downs=(*(at for at in self.downs if at > step.at - DAY_SECONDS), step.at),
            high=max(step.before, self.high) if self.last_down is not None else step.before,
        )

    def took_back(self, step: ScalerStep, now: float) -> ScalerMemory:
        """A step brought nothing: what it came from is enough for a while."""
        times = 1 if self.failed is None else self.failed.times + 1
        seconds = min(REMEMBER_SECONDS_MAX, REMEMBER_SECONDS * 2 ** (times - 1))
        failed = Failed(step.before, now + seconds, times)
        return replace(self, failed=failed, judged=True, acted=now, wish=None, last_down=None)

    def rebalancing(self, now: float, skew: float) -> ScalerMemory:
        """Key groups are shared out."""
        return replace(self, rebalanced=(now, skew), acted=now, wish=None)

    def carried_out(self, forecast_seconds: float, seconds: float) -> ScalerMemory:
        """The move of the last decision has ended well."""
        ratio = seconds / max(0.1, forecast_seconds)
        correction = min(CORRECTION_MAX, max(1 / CORRECTION_MAX, (self.correction + ratio) / 2))
        return replace(self, failures=0, retry_at=0.0, correction=correction)

    def not_carried_out(self, now: float) -> ScalerMemory:
        """It has not: wait, each time longer."""
        wait = min(RETRY_SECONDS_MAX, RETRY_SECONDS * 2**self.failures)
        return replace(
            self,
            failures=self.failures + 1,
            retry_at=now + wait,
            step=None,
            judged=True,
            wish=None,
            rebalanced=None,
        )


NOTHING = ScalerMemory()
