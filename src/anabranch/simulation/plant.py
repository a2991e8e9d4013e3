"""A simulated plant for the autoscaler: micro-batches on workers, with what makes them differ."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from anabranch.autoscale.signals import (
    FleetSignals,
    GroupRows,
    Outlook,
    QueryLoad,
    SignalBatch,
    Signals,
)
from anabranch.simulation.load_curves import LoadCurve

BATCHES_SHOWN = 100
ASKED = 1.2
QUERY = "orders"
IDLE_SECONDS = 0.1
"""Between two looks of a source without rows."""


@dataclass(frozen=True, slots=True)
class PlantSettings:
    """What is different from plant to plant."""

    overhead: float = 0.3
    """Seconds of a batch that no worker changes."""
    row_seconds: float = 0.01
    """Of a worker, for a row."""
    noise: float = 0.05
    """Of both, up and down."""
    gc_chance: float = 0.0
    """That a batch is held up, for `gc_seconds`."""
    gc_seconds: float = 0.0
    interval: float = 0.0
    """Of the trigger."""
    batch_rows_max: float = math.inf
    """More wait in the source."""
    parallel_max: int = 10_000
    """More workers share what these do: cores, or another service."""
    cheap_when_idle: float = 0.0
    """At little load, rows cost so much less: 0.5 is half."""
    move_seconds: float = 2.0
    """For all of the state; a step moves its part."""
    move_cost: float = 0.05
    """Batches take so much longer meanwhile."""
    deaths: tuple[float, ...] = ()
    """When a worker dies."""
    recovery_seconds: float = 3.0
    key_groups: int = 64
    key_draw: float = 0.0
    """Unevenness of single batches."""


@dataclass(slots=True)
class PlantChange:
    """Something that was done."""

    at: float
    what: str
    before: int
    after: int


@dataclass(slots=True)
class Course:
    """What a run was like."""

    changes: list[PlantChange] = field(default_factory=list)
    batches: list[SignalBatch] = field(default_factory=list)
    rows: float = 0.0
    late_rows: float = 0.0
    """In batches that took longer than the target."""
    worker_seconds: float = 0.0

    @property
    def late_share(self) -> float:
        """Of all rows."""
        return self.late_rows / self.rows if self.rows else 0.0

    def workers_at(self, at: float, start: int) -> int:
        """How many there were."""
        return next((c.after for c in reversed(self.changes) if c.at <= at), start)


@dataclass(frozen=True, slots=True)
class Wish:
    """What a controller wants done."""

    workers: int
    is_rebalance: bool = False
    why: str = ""


Controller = Callable[[Signals, Outlook], "Wish | None"]
Weights = Callable[[float], Sequence[float]]
"""Shares of key groups at a time."""


def even(groups: int) -> Weights:
    """All alike."""
    weights = [1.0] * groups
    return lambda _: weights


class Plant:
    """Runs a load through batches, and does what a controller wants."""

    def __init__(
        self,
        settings: PlantSettings,
        load: LoadCurve,
        workers: int,
        random: Random,
        weights: Weights | None = None,
        target: float = 1.0,
    ) -> None:
        self.settings, self.load, self.target = settings, load, target
        self.workers = workers
        self._random, self._weights = random, weights or even(settings.key_groups)
        self._owners = _evenly(settings.key_groups, workers)
        self._next_owners = self._owners
        self._is_shared_out = False
        self._moving_until = 0.0
        self._recovering_until = 0.0
        self._deaths = deque(sorted(settings.deaths))
        self._batches: deque[SignalBatch] = deque(maxlen=BATCHES_SHOWN)
        self._seconds: list[float] = []
        self.course = Course()

    def run(self, controller: Controller | None = None, each: float = 1.0) -> Course:
        """Until the load ends; the controller is asked that often at most."""
        now, taken, asked = 0.0, 0.0, 0.0
        while now < self.load.seconds:
            waiting = self.load.rows(now) - taken
            rows = int(min(waiting, self.settings.batch_rows_max))
            before = now
            if rows:
                now = self._batch(now, rows, waiting - rows)
                taken += rows
            else:
                now += IDLE_SECONDS
            self.course.worker_seconds += self.workers * (now - before)
            if controller is not None and now - asked >= each:
                asked = now
                self._ask(controller, now)
        return self.course

    def _batch(self, now: float, rows: int, left: float) -> float:
        """The time when the next one may begin."""
        settings, random = self.settings, self._random
        is_moving = now < self._moving_until
        if not is_moving:
            self._owners = self._next_owners
        useful = self._useful(now, rows)
        noise = 1 + random.uniform(-settings.noise, settings.noise)
        seconds = settings.overhead * noise + max(useful.values())
        if is_moving:
            seconds *= 1 + settings.move_cost
        if random.random() < settings.gc_chance:
            seconds += settings.gc_seconds
        if self._deaths and now + seconds >= self._deaths[0]:
            self._deaths.popleft()
            seconds += settings.recovery_seconds
            self._recovering_until = now + seconds + 1.0
        is_calm = not is_moving and now + seconds >= self._recovering_until
        lag = left + self.load.rows(now + seconds) - self.load.rows(now)
        shown = lag if settings.batch_rows_max < math.inf else 0.0
        workers = len(set(self._owners))
        batch = SignalBatch(now, seconds, rows, useful, workers, shown, is_calm)
        self._batches.append(batch)
        course = self.course
        course.batches.append(batch)
        course.rows += rows
        course.late_rows += rows * (seconds > self.target)
        return max(now + seconds, now + settings.interval)

    def _useful(self, now: float, rows: int) -> dict[str, float]:
        settings, random = self.settings, self._random
        weights = self._weights(now)
        by_owner = dict.fromkeys(sorted(set(self._owners)), 0.0)
        for owner, weight in zip(self._owners, weights, strict=True):
            by_owner[owner] += weight
        total = sum(by_owner.values())
        count = len(by_owner)
        cost = settings.row_seconds * max(1.0, count / settings.parallel_max)
        busy = rows * cost / (count * (settings.overhead + rows * cost / count))
        cost *= 1 - settings.cheap_when_idle * max(0.0, 1 - 2 * busy)
        return {
            f"w{owner + 1}": rows
            * (weight / total)
            * cost
            * (1 + random.uniform(-settings.noise, settings.noise))
            * (1 + random.uniform(-settings.key_draw, settings.key_draw))
            for owner, weight in by_owner.items()
        }

    # -- the controller's side --

    def signals(self, now: float) -> Signals:
        """What an autoscaler is told."""
        groups = self._group_rows(now) if self._is_uneven() else ()
        is_recovering = now < self._recovering_until
        fleet = FleetSignals(
            self.workers,
            now < self._moving_until,
            "w1 is being replaced." if is_recovering else "",
            groups=groups,
        )
        load = QueryLoad(QUERY, tuple(self._batches), self.settings.interval)
        return Signals(now, (load,), fleet)

    def _is_uneven(self) -> bool:
        """Whether somebody may ask for the rows of key groups."""
        useful = self._batches[-1].useful.values() if self._batches else ()
        return bool(useful) and max(useful) * len(useful) > ASKED * sum(useful)

    def _group_rows(self, now: float) -> tuple[GroupRows, ...]:
        found = enumerate(zip(self._owners, self._weights(now), strict=True))
        return tuple(GroupRows(g, f"w{owner + 1}", weight) for g, (owner, weight) in found)

    def _ask(self, controller: Controller, now: float) -> None:
        signals = self.signals(now)
        outlook = Outlook(1 << 20, self.settings.move_seconds)
        wish = controller(signals, outlook)
        if wish is None:
            return
        groups = self.settings.key_groups
        self._is_shared_out |= wish.is_rebalance
        if self._is_shared_out:
            self._next_owners = _by_weight(self._weights(now), wish.workers)
        else:
            self._next_owners = _evenly(groups, wish.workers)
        moved = sum(a != b for a, b in zip(self._owners, self._next_owners, strict=True))
        self._moving_until = now + self.settings.move_seconds * moved / groups
        self.course.changes.append(PlantChange(now, wish.why, self.workers, wish.workers))
        self.workers = wish.workers


def _evenly(groups: int, workers: int) -> list[int]:
    return [group % workers for group in range(groups)]


def _by_weight(weights: Sequence[float], workers: int) -> list[int]:
    """Largest first to the least loaded."""
    loads, owners = [0.0] * workers, [0] * len(weights)
    for group in sorted(range(len(weights)), key=lambda g: -weights[g]):
        owner = loads.index(min(loads))
        owners[group] = owner
        loads[owner] += weights[group]
    return owners
