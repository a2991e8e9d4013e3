"""`anabranch bench evaluation`: makes the planned runs one by one and keeps what they showed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from anabranch.loadtest.loaded_query import Folders, Say
from anabranch_bench.experiments.evaluation_plan import (
    EvaluationSettings,
    PlannedRun,
    plan,
    seconds_of_all,
    warm_ups,
)
from anabranch_bench.experiments.time_left import TimeLeft
from anabranch_bench.probes.machine import machine
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import INTERRUPTED, Controls, RunResult, brief
from anabranch_bench.runs.loaded_run import Rescale, RunSettings, WorkloadRun
from anabranch_bench.runs.under_load import told

Runner = Callable[[PlannedRun, float, Say], RunResult]
"""Makes a run that lasts at least so many seconds under load; tells how far it is."""


@dataclass
class Evaluation:
    """Runs one after the other; one that fails is a result too."""

    settings: EvaluationSettings
    runner: Runner
    say: Say = lambda _: None
    """What is going on, to be overwritten by what comes next."""
    on_task: Say = lambda _: None
    """A run begins."""
    on_run: Callable[[RunResult], None] = lambda _: None
    should_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    results: RunSet = field(default_factory=RunSet)
    interrupted: bool = False
    machine: dict[str, Any] = field(default_factory=machine)
    """What it ran on, and when."""

    def run(self) -> RunSet:
        """All runs of the plan, unless somebody wants to stop; `results` is filled on the way."""
        runs = plan(self.settings)
        cold = {planned.load: planned for planned in warm_ups(runs, self.settings)}
        rest = TimeLeft(self._guess((*runs, *cold.values())), self.clock)
        for number, planned in enumerate(runs):
            left = rest.told(self._guess((*runs[number:], *cold.values())))
            head = f"[{number + 1}/{len(runs)}, about {left} left] {planned.name}"
            if self._stops():
                break
            self.on_task(head)
            if planned.load in cold and self._stops_after(cold.pop(planned.load), head):
                break
            result = self._make(planned, head)
            self.results.runs.append(result)
            self.interrupted = result.is_interrupted
            self.on_run(result)
            if self.interrupted:
                break
        return self.results

    @property
    def is_good(self) -> bool:
        """No run failed or had wrong results; one that was interrupted has not failed."""
        runs = self.results.runs
        return all((r.is_good or r.is_interrupted) and r.is_right is not False for r in runs)

    def _guess(self, runs: Iterable[PlannedRun]) -> float:
        return seconds_of_all(runs, self.settings)

    def _stops(self) -> bool:
        """Whether somebody wants to."""
        self.interrupted = self.interrupted or self.should_stop()
        return self.interrupted

    def _stops_after(self, warm_up: PlannedRun, head: str) -> bool:
        """Make a run that does not count; whether somebody has stopped it."""
        self.interrupted = self._make(warm_up, f"{head}: warming up").is_interrupted
        return self._stops()

    def _make(self, planned: PlannedRun, head: str) -> RunResult:
        try:
            return self.runner(
                planned, self._seconds_min(planned), lambda t: self.say(f"{head}: {t}")
            )
        except KeyboardInterrupt:
            return self._failed(planned, INTERRUPTED)
        except Exception as error:  # whatever one run has, the others can still be made
            return self._failed(planned, brief(error))

    def _failed(self, planned: PlannedRun, error: str) -> RunResult:
        result = new_result(planned, self.settings)
        result.error = error
        return result

    def _seconds_min(self, planned: PlannedRun) -> float:
        """A control run is as long as that of `live`, which it is compared with first."""
        if planned.case.label != CONTROL:
            return 0.0
        live = self.results.at(planned.load).judged("live")
        return max((r.end for r in live if r.repeat == planned.repeat), default=0.0)


def new_result(planned: PlannedRun, settings: EvaluationSettings) -> RunResult:
    """Of a run that is to be made."""
    paired = Controls.PAIRED
    return RunResult(
        planned.load, planned.case, planned.repeat, controls=paired, settle=settings.settle
    )


@dataclass
class SparkRunner:
    """Makes runs in one Spark session, each in a folder of its own."""

    spark: SparkSession
    folder: Path
    settings: EvaluationSettings
    should_stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self._folders = Folders(self.folder)

    def __call__(self, planned: PlannedRun, seconds_min: float, say: Say) -> RunResult:
        """Preload, warm up, load, rescale, drain, verify."""
        folder = self._folders.fresh("run")
        try:
            return WorkloadRun(
                self.spark,
                folder,
                planned.load.make(),
                run_settings(planned, self.settings, seconds_min),
                lambda moment: say(told(moment)),
                self.should_stop,
                new_result(planned, self.settings),
            ).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def run_settings(
    planned: PlannedRun, settings: EvaluationSettings, seconds_min: float
) -> RunSettings:
    """How a workload is run; a control run has no rescale."""
    at = settings.settle + settings.steady
    strategy = planned.case.strategy
    return RunSettings(
        rate=planned.load.rate,
        duration=max(at + settings.steady, seconds_min),
        workers=settings.workers,
        rescales=(Rescale(settings.target, at),) if strategy else (),
        strategy=strategy or "live",
        verify=True,
        options=dict(planned.case.options),
        after=settings.steady,
        standby=strategy == "rhino",
        key_groups=settings.scale.key_groups,
    )
