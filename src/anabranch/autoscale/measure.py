"""From batches to a model of a query: T = a + R / (n * mu), robustly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.autoscale.signals import QueryLoad, SignalBatch

BATCHES_MIN = 3
"""Fewer say nothing."""
FIT_BATCHES = 20
"""The last ones, of which the model is made."""
RATE_SECONDS = 30.0
"""Over which rates count together."""
STEPS = ((3.0, 1.3), (10.0, 1.15))
"""If the last seconds differ from that by a factor, the load has stepped: only they count.

Twenty percent more or less in each second is no step: it makes 11% over 3 s, and 4% over 30 s.
"""
STEP_BATCHES = 2
"""One batch alone is no step."""
SPREAD = 1.5
"""The largest batches are so much larger than the smallest: there is a slope to see."""
FIXED_SHARE_MAX = 0.5
"""Of useful seconds, at most so much is taken for the part that does not grow with rows."""
DRAINING = 0.9
"""A batch that is shorter than the one before by this factor: a backlog goes away by itself."""
IDLE_SECONDS = 2.0
"""Without a batch for so long, rows do not come any more."""


@dataclass(frozen=True, slots=True)
class QueryModel:
    """What recent batches say about a query."""

    name: str
    overhead: float
    """`a`: seconds of a batch that no worker can change."""
    row_seconds: float
    """1/mu: useful seconds of workers for a row."""
    imbalance: float
    """Busiest worker to the mean, in a usual batch."""
    skew: float
    """The same for what persists from batch to batch."""
    busiest: str
    arrival: float
    """Rows a second."""
    backlog: float
    """Rows that wait and should not."""
    lag: float
    """Those of them that wait in the source."""
    batch_seconds: float
    """Usual ones."""
    batch_rows: float
    interval: float
    """Of its trigger."""
    shown: float
    """Rows a second that each worker has taken in a recent batch, at most."""
    newest: float
    """When the last batch ended."""
    fitted: int
    """How many batches with the present number of workers are behind this; 0: too few."""

    @property
    def is_fitted(self) -> bool:
        """Whether it is about the present workers."""
        return self.fitted > 0

    @property
    def taken(self) -> float:
        """Rows a second that batches take, however many come."""
        return self.batch_rows / max(self.batch_seconds, self.interval, 1e-3)

    @property
    def rate(self) -> float:
        """mu: rows in a useful second, with the imbalance."""
        return 1 / (self.row_seconds * self.imbalance)


def model_of(
    query: QueryLoad,
    now: float,
    workers: int,
    settings: AutoscaleSettings,
    since: float = -math.inf,
) -> QueryModel:
    """Of a query with at least BATCHES_MIN batches that had rows.

    `since` is when key groups have changed owners last.
    """
    recent = query.batches[-FIT_BATCHES:]
    calm = [batch for batch in recent if batch.is_calm and batch.rows]
    fitting = calm or [batch for batch in recent if batch.rows]
    same = [b for b in fitting if b.workers == workers and b.started >= since]
    is_fitted = len(same) >= BATCHES_MIN and bool(calm)
    used = same if is_fitted else fitting
    row_seconds = _row_seconds(used)
    imbalance = max(1.0, median(_imbalance(batch) for batch in used))
    busiest, skew = _skew(used) if is_fitted else ("", 1.0)
    overhead = median(b.seconds - b.rows * row_seconds * imbalance / b.workers for b in used)
    arrival = _arrival(query, now)
    lag = query.batches[-1].lag_rows
    seconds = [batch.seconds for batch in recent]
    late = _late_seconds(seconds, query.interval, settings)
    return QueryModel(
        query.name,
        max(0.0, overhead),
        row_seconds,
        imbalance,
        skew,
        busiest,
        arrival,
        lag + arrival * late,
        lag,
        median(seconds[-BATCHES_MIN:]),
        median(batch.rows for batch in recent[-BATCHES_MIN:]),
        query.interval,
        max(batch.rows / (batch.workers * max(batch.seconds, 1e-3)) for batch in fitting),
        query.batches[-1].ended,
        len(same) if is_fitted else 0,
    )


def _late_seconds(seconds: Sequence[float], interval: float, settings: AutoscaleSettings) -> float:
    """By how much batches have been too long three times in a row, and do not get shorter."""
    target = settings.latency_target
    if target is None or seconds[-1] < DRAINING * seconds[-2]:
        return 0.0
    return max(0.0, min(seconds[-BATCHES_MIN:]) - max(target, interval))


def has_enough(query: QueryLoad) -> bool:
    """Whether a model can be made."""
    return sum(1 for batch in query.batches[-FIT_BATCHES:] if batch.rows) >= BATCHES_MIN


def _row_seconds(batches: Sequence[SignalBatch]) -> float:
    """Useful seconds for a row more: the median slope, as far as batches differ (Theil, Sen)."""
    points = [(batch.rows, sum(batch.useful.values())) for batch in batches]
    usual = max(1e-9, median(useful / rows for rows, useful in points))
    rows = [each for each, _ in points]
    if max(rows) < SPREAD * min(rows):
        return usual
    slopes = [(u2 - u1) / (r2 - r1) for (r1, u1), (r2, u2) in combinations(points, 2) if r1 != r2]
    return min(usual, max(FIXED_SHARE_MAX * usual, median(slopes)))


def _imbalance(batch: SignalBatch) -> float:
    total = sum(batch.useful.values())
    return max(batch.useful.values()) * batch.workers / total if total > 0 else 1.0


def _skew(batches: Sequence[SignalBatch]) -> tuple[str, float]:
    """The worker that is usually busiest, and how much more than the mean it usually has."""
    shares: dict[str, list[float]] = {}
    for batch in batches:
        total = sum(batch.useful.values())
        for worker, seconds in batch.useful.items():
            if total > 0:
                shares.setdefault(worker, []).append(seconds * batch.workers / total)
    # A worker without rows in a batch had none of them.
    usual = {w: median(found + [0.0] * (len(batches) - len(found))) for w, found in shares.items()}
    busiest = max(sorted(usual), key=lambda worker: usual[worker], default="")
    return busiest, max(1.0, usual.get(busiest, 1.0))


def _arrival(query: QueryLoad, now: float) -> float:
    """Rows a second that come: those of the last seconds alone if the load has stepped."""
    batches = query.batches
    newest = batches[-1]
    usual = max(query.interval, IDLE_SECONDS, 2 * newest.seconds)
    is_idle = not query.is_in_batch and now - newest.ended > usual
    end = now if is_idle else newest.started
    long = _rate(batches, end, RATE_SECONDS)
    for seconds, factor in STEPS:
        new = _rate(batches, end, seconds)
        if not long / factor <= new <= long * factor:
            return new
    return long


def _rate(batches: Sequence[SignalBatch], end: float, seconds: float) -> float:
    """Rows that came between the starts of batches, over so long at least, and two batches."""
    rows = 0.0
    first = batches[-1]
    for number, (before, batch) in enumerate(zip(batches[-2::-1], batches[:0:-1], strict=True), 1):
        rows, first = rows + batch.rows, before
        if number >= STEP_BATCHES and end - before.started >= seconds:
            break
    rows += batches[-1].lag_rows - first.lag_rows
    return max(0.0, rows) / max(1e-3, end - first.started)
