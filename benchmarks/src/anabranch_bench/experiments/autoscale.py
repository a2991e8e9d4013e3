"""`anabranch bench autoscale`: one load, and several ways to decide on the number of workers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.autoscale.signals import Outlook
from anabranch.errors import AnabranchError
from anabranch.loadtest.loaded_query import Folders
from anabranch.loadtest.scaled_run import ScaledRun, Scenario, run_scaled
from anabranch.loadtest.session import spark_session
from anabranch.service import StateService
from anabranch.simulation.controllers import ThresholdRule

AUTOSCALER, THRESHOLD, STATIC = "autoscaler", "threshold", "static"
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


def _run(spark: SparkSession, folder: Path, way: str, settings: AutoscaleBench) -> ScaledRun:
    kind, _, count = way.partition(" ")
    workers = int(count) if kind == STATIC else settings.scenario.start
    with StateService(
        spark, str(folder / "state"), workers=workers, key_groups=64, http=False
    ) as service:
        common: dict[str, Any] = {"min": 2, "max": settings.most, "latency_target": settings.target}
        quick = {"stabilization_interval": 5.0, "scale_down_interval": settings.scale_down}
        begin: Callable[[], object] = lambda: None  # noqa: E731
        if kind == AUTOSCALER:
            begin = functools.partial(service.autoscale, mode="act", **common, **quick)
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
