"""How many workers a query needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.autoscale.measure import QueryModel
from anabranch.autoscale.settings import AutoscaleSettings

SPARE = 0.9
"""A step is sized so that this share of its workers would be enough."""
UTILIZATION_ABOVE = 0.15
"""Workers may be so much busier than their target before others come."""
TRUST = 2.0
"""Workers are trusted with so many times the rows a second that they have shown."""
IN_USE = 0.5
"""A lag is the workers' business only if they use this share of what they may."""
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class WorkersNeeded:
    """Of one query."""

    model: QueryModel
    demand: float
    """Rows a second: arrival, and the backlog's share."""
    least: float
    """With fewer workers than this the target is missed."""
    good: int
    """The number that a step goes to."""
    cannot_help: bool = False
    """The overhead alone is above the target."""
    is_source_slow: bool = False
    """Rows wait in the source, although the workers have time."""


def need_of(model: QueryModel, workers: int, settings: AutoscaleSettings) -> WorkersNeeded:
    """With so many workers there are now."""
    if settings.latency_target is not None and model.overhead >= settings.latency_target:
        return WorkersNeeded(model, model.arrival, workers, workers, cannot_help=True)
    in_use = _least(model, model.taken, settings) / workers
    is_source_slow = model.lag > 0 and in_use < IN_USE and not _is_late(model, settings)
    demand = model.arrival + model.backlog / settings.catch_up_duration
    if is_source_slow:
        demand = min(model.arrival, model.taken)
    least = _least(model, demand, settings)
    spare = SPARE if settings.latency_target is not None else 1.0
    good = max(1, math.ceil(least / spare - ROUNDING))
    if settings.latency_target is None:  # the target is where it shall be, not where it ends
        ceiling = settings.target_utilization + UTILIZATION_ABOVE
        least *= settings.target_utilization / ceiling
    return WorkersNeeded(model, demand, least, good, is_source_slow=is_source_slow)


def _is_late(model: QueryModel, settings: AutoscaleSettings) -> bool:
    target = settings.latency_target
    return target is not None and model.batch_seconds > target


def _least(model: QueryModel, demand: float, settings: AutoscaleSettings) -> float:
    """n >= rows / (mu * seconds for them)."""
    busy = demand / model.rate
    target = settings.latency_target
    if target is None:
        return busy / settings.target_utilization
    return busy * max(model.interval, target) / (target - model.overhead)


def trusted_least(arrival: float, shown: float) -> int:
    """Fewer workers would need more than they have shown that they can do."""
    return math.ceil(arrival / (TRUST * shown) - ROUNDING) if shown > 0 else 1
