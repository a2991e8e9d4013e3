"""A run of the evaluation on Spark: a workload under load, its strategy in the middle, verified."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.loadtest.loaded_query import Folders, Say
from anabranch_bench.bench.evaluation_plan import EvaluationSettings, Spec
from anabranch_bench.bench.evaluation_results import INTERRUPTED, Result
from anabranch_bench.bench.workload_run import Moment, Rescale, RunResult, RunSettings, WorkloadRun


@dataclass
class SparkRunner:
    """Makes runs in one Spark session, each in a folder of its own."""

    spark: SparkSession
    folder: Path
    settings: EvaluationSettings
    should_stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self._folders = Folders(self.folder)

    def __call__(self, spec: Spec, seconds_min: float, say: Say) -> Result:
        """Preload, warm up, load, rescale, drain, verify."""
        folder = self._folders.fresh("run")
        try:
            run = WorkloadRun(
                self.spark,
                folder,
                spec.load.make(),
                run_settings(spec, self.settings, seconds_min),
                lambda moment: say(told(moment)),
                self.should_stop,
            )
            return as_result(spec, self.settings, run.run())
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def run_settings(spec: Spec, settings: EvaluationSettings, seconds_min: float) -> RunSettings:
    """How a workload is run; a control run has no rescale."""
    at = settings.settle + settings.steady
    strategy = spec.case.strategy
    return RunSettings(
        rate=spec.load.rate,
        duration=max(at + settings.steady, seconds_min),
        workers=settings.workers,
        rescales=(Rescale(settings.target, at),) if strategy else (),
        strategy=strategy or "live",
        verify=True,
        options=dict(spec.case.options),
        after=settings.steady,
        standby=strategy == "rhino",
        key_groups=settings.scale.key_groups,
    )


def as_result(spec: Spec, settings: EvaluationSettings, run: RunResult) -> Result:
    """What the evaluation keeps of a run."""
    change = run.changes[0] if run.changes else None
    return Result(
        spec.load,
        spec.case.label,
        spec.repeat,
        settings.settle,
        timeline=run.timeline,
        move=change.window if change else None,
        report=change.report.as_json() if change else {},
        capacity=run.capacity,
        replication=run.replication,
        rows=run.rows,
        verdicts=run.verdicts,
        error=INTERRUPTED if run.interrupted else "",
    )


def told(moment: Moment) -> str:
    """What is going on, in a line."""
    done = "" if moment.progress is None else f", {moment.progress:.0%}"
    if moment.phase != "load":
        return f"{moment.phase}{done}"
    moving = f", moving{done}" if done else ""
    latency = "" if moment.latency is None else f", latency {moment.latency:.2f} s"
    return f"{max(0.0, moment.seconds):.0f} s under load{latency}{moving}"
