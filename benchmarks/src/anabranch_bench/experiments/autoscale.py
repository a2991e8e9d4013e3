"""`anabranch bench autoscale`: one load, and several ways to decide on the number of workers."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from anabranch.autoscale.settings import AutoscaleSettings
from anabranch.autoscale.signals import Outlook
from anabranch.errors import AnabranchError
from anabranch.loadtest.latency import Batch
from anabranch.loadtest.loaded_query import Folders
from anabranch.loadtest.scaled_run import MADE, ScaledRun, Scenario, ToldDecision, run_scaled
from anabranch.loadtest.schedule import RateCurve
from anabranch.loadtest.session import spark_session
from anabranch.service import StateService
from anabranch.simulation.controllers import SimulatedAutoscaler, ThresholdRule
from anabranch.simulation.load_curves import curve
from anabranch.simulation.plant import Controller, Course, Plant, PlantSettings

AUTOSCALER, THRESHOLD, STATIC = "autoscaler", "threshold", "static"
SIMULATED_OVERHEAD, SIMULATED_NOISE = 0.5, 0.1
"""Seconds of a batch beside the workers, as Spark has on two cores; of rows in each second."""
LATE_MAX = 0.01
"""A static number is good enough if a smaller share of rows is late."""


@dataclass(frozen=True, slots=True)
class AutoscaleBench:
    """A load and what may be used for it."""

    calm: float = 100.0
    """Rows a second before and after."""
    busy: float = 450.0
    before: float = 20.0
    during: float = 60.0
    after: float = 60.0
    row_ms: float = 8.0
    """That a row costs, of waiting."""
    target: float = 3.0
    """Seconds that a batch may take; rows are late after twice as long."""
    most: int = 8
    static: tuple[int, ...] = (2, 4, 5, 6)
    """Numbers that stay."""
    scale_down: float = 20.0

    @property
    def scenario(self) -> Scenario:
        """The load."""
        pieces = (
            (self.before, self.calm),
            (self.during, self.busy),
            (self.after, self.calm),
        )
        return Scenario(pieces, self.row_ms / 1000, self.target)


def ways(settings: AutoscaleBench) -> list[str]:
    """All that are compared."""
    return [AUTOSCALER, THRESHOLD, *(f"{STATIC} {count}" for count in settings.static)]


def run_ways(settings: AutoscaleBench) -> Iterator[ScaledRun]:
    """Each way once, in one Spark; a service of its own for each."""
    with spark_session(memory="1g") as (spark, folder):
        folders = Folders(folder)
        for way in ways(settings):
            yield _run(spark, folders.fresh("way"), way, settings)


def simulate_ways(settings: AutoscaleBench, seed: int) -> Iterator[ScaledRun]:
    """The same on the simulated plant: the machine does not matter."""
    scenario = settings.scenario
    plant = PlantSettings(overhead=SIMULATED_OVERHEAD, row_seconds=scenario.row_seconds)
    load = RateCurve(0, 0.0, scenario.pieces)
    coming = curve("crowd", int(load.seconds), load.rate_at, Random(seed), SIMULATED_NOISE)
    for way in ways(settings):
        kind, _, count = way.partition(" ")
        workers = int(count) if kind == STATIC else scenario.start
        autoscaler = SimulatedAutoscaler(AutoscaleSettings().changed(_wanted(settings)))
        rule = ThresholdRule(2, settings.most, up_seconds=5.0, down_seconds=settings.scale_down)
        controllers: dict[str, Controller] = {AUTOSCALER: autoscaler, THRESHOLD: rule}
        course = Plant(plant, coming, workers, Random(seed + 1), target=settings.target).run(
            controllers.get(kind)
        )
        yield _simulated(way, scenario, load, workers, course, seed)


def _simulated(
    way: str, scenario: Scenario, load: RateCurve, workers: int, course: Course, seed: int
) -> ScaledRun:
    ends = list(itertools.accumulate(batch.rows for batch in course.batches))
    batches = tuple(
        Batch(end - batch.rows, end, batch.started, batch.ended)
        for end, batch in zip(ends, course.batches, strict=True)
    )
    steps = [(0.0, workers), *((change.at, change.after) for change in course.changes)]
    decisions = tuple(
        ToldDecision(c.at, c.before, c.after, *c.what.partition(": ")[::2]) for c in course.changes
    )
    made = f"simulated plant, seed {seed}, {datetime.now(timezone.utc).strftime(MADE)}"
    return ScaledRun(
        way, scenario, made, None, 0.0, load, batches, tuple(steps), decisions, wrong=0
    )


def _wanted(settings: AutoscaleBench) -> dict[str, Any]:
    return {
        "mode": "act",
        "min": 2,
        "max": settings.most,
        "latency_target": settings.target,
        "stabilization_interval": 5.0,
        "scale_down_interval": settings.scale_down,
    }


def _run(spark: SparkSession, folder: Path, way: str, settings: AutoscaleBench) -> ScaledRun:
    kind, _, count = way.partition(" ")
    workers = int(count) if kind == STATIC else settings.scenario.start
    with StateService(
        spark, str(folder / "state"), workers=workers, key_groups=64, http=False
    ) as service:
        begin: Callable[[], object] = lambda: None  # noqa: E731
        if kind == AUTOSCALER:
            begin = functools.partial(service.autoscale, **_wanted(settings))
        rule = _Threshold(settings) if kind == THRESHOLD else None
        return run_scaled(
            spark,
            service,
            folder,
            way,
            settings.scenario,
            rule or (lambda service, passed: None),
            begin=lambda: _done(begin()),
        )


def _done(_: object) -> None:
    """What is asked for has an answer that nobody needs."""


class _Threshold:
    """A rule of thumb that sees what the autoscaler sees, with times as short as its own."""

    def __init__(self, settings: AutoscaleBench) -> None:
        down = settings.scale_down
        self._rule = ThresholdRule(2, settings.most, up_seconds=5.0, down_seconds=down)

    def __call__(self, service: StateService, passed: float) -> None:
        signals = service._scaler.load(frozenset())
        if not signals.queries:
            return
        wish = self._rule(signals, Outlook())
        if wish is not None:
            try:
                service.rescale(wish.workers, cause="threshold rule")
            except AnabranchError:  # tried again soon
                return


def best_static(runs: Sequence[ScaledRun]) -> ScaledRun | None:
    """The cheapest of those with few late rows; else the one with the fewest."""
    static = [run for run in runs if run.name.startswith(STATIC)]
    good = [run for run in static if run.late_share <= LATE_MAX]
    if good:
        return min(good, key=lambda run: run.worker_seconds)
    return min(static, key=lambda run: run.late_share, default=None)


def telling(runs: Sequence[ScaledRun]) -> list[ScaledRun]:
    """Those that a picture shows: what decides, the best static number and the smallest one."""
    static = [run for run in runs if run.name.startswith(STATIC)]
    shown = [run for run in runs if run not in static]
    return [*shown, *(run for run in static if run in (best_static(runs), static[0]))]


def table(runs: Sequence[ScaledRun]) -> list[str]:
    """Late rows against worker-seconds, for people."""
    best = best_static(runs)
    lines = [
        f"{'way':<14} {'rows late':>10} {'worker-seconds':>15} {'changes':>8} {'most':>5}  result"
    ]
    for run in runs:
        most = max(count for _, count in run.workers)
        mark = "  <- best static number" if run is best else ""
        lines.append(
            f"{run.name:<14} {100 * run.late_share:>8.2f} % {run.worker_seconds:>15,.0f} "
            f"{run.actions:>8} {most:>5}  {'right' if not run.wrong else 'WRONG'}{mark}"
        )
    return lines


def from_json(told: Mapping[str, Any]) -> ScaledRun:
    """A line of a file."""
    return ScaledRun.from_json(told["run"])
