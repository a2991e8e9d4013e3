"""The third act of `anabranch demo`: a flash crowd, and the autoscaler finds the workers for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.loadtest.scaled_run import ScaledRun
    from anabranch.loadtest.schedule import RateCurve
    from anabranch.service import StateService

CALM, BUSY = 80.0, 320.0
"""Rows a second. Each costs 8 ms of waiting: less than one worker's time, and two and a half."""
BEFORE, DURING, AFTER = 10.0, 30.0, 10.0
"""Seconds; at least so long, and until the workers have come or gone, so long after that."""
PATIENCE_SECONDS = 150.0
"""But at most so long: on a machine with much to do, batches are slow."""
AFTERWARDS_SECONDS = 12.0
SETTINGS: dict[str, Any] = {
    "mode": "act",
    "min": 2,
    "max": 8,
    "stabilization_interval": 5.0,
    "scale_down_interval": 15.0,
}
"""Quick, so that a demo shows a step down too."""


def run_crowd(spark: SparkSession, folder: Path) -> ScaledRun:
    """In a service of its own; says what is decided, and why."""
    from anabranch.loadtest.scaled_run import Scenario, crowd, run_scaled
    from anabranch.service import StateService

    pieces = crowd(CALM, BUSY, BEFORE, PATIENCE_SECONDS, PATIENCE_SECONDS)
    scenario = Scenario(pieces)
    print(
        f"\nThird act: each order asks another service, which takes 8 ms. {CALM:.0f} orders a "
        f"second, then a crowd of {BUSY:.0f}. The autoscaler may have 2 to 8 workers.\n",
        flush=True,
    )
    with StateService(spark, str(folder / "crowd-state"), workers=2, key_groups=64) as service:
        query_folder = folder / "crowd"
        query_folder.mkdir()
        return run_scaled(
            spark,
            service,
            query_folder,
            "autoscaler",
            scenario,
            _Told(),
            steer,
            lambda: _begin(service),
        )


def _begin(service: StateService) -> None:
    service.autoscale(**SETTINGS)


def steer(passed: float, workers: Sequence[tuple[float, int]], load: RateCurve) -> RateCurve:
    """The crowd stays until there are workers for it; then all is calm until they have left."""
    (before, calm), (during, busy), (after, _) = load.pieces
    since, count = workers[-1]
    is_settled = passed - since >= AFTERWARDS_SECONDS
    if during == PATIENCE_SECONDS:
        if passed < before + DURING or not (count > workers[0][1] and is_settled):
            return load
        return replace(load, pieces=((before, calm), (passed - before, busy), (after, calm)))
    gone = passed - before - during
    if gone < AFTER or not (since > before + during and count == workers[0][1] and is_settled):
        return load
    return replace(load, pieces=((before, calm), (during, busy), (gone, calm)))


class _Told:
    """Prints decisions that are new."""

    def __init__(self) -> None:
        self._seen: tuple[object, ...] = ()

    def __call__(self, service: StateService, passed: float) -> None:
        decisions = service.autoscaler(1)["decisions"]
        if not decisions:
            return
        last = decisions[-1]
        seen = (last["action"], last["rule"], last["wanted"])
        if seen != self._seen:
            self._seen = seen
            what = f"-> {last['to']}" if last["to"] else last["rule"]
            print(f"{passed:6.1f} s  {last['workers']} workers, {what}: {last['reason']}")


def show_crowd(run: ScaledRun, plot: Path, kept: Path | None) -> None:
    """What came of it, and the picture, which names the file that has the run."""
    print(f"\n{run.line()}")
    try:
        from anabranch.loadtest.picture_source import note_source
        from anabranch.loadtest.scaled_plot import plot_scaled

        plot_scaled(run, plot)
        note_source(plot, kept)
        print(f"Load, workers and latency, with the reasons: {plot}")
    except ValueError as error:  # without matplotlib
        print(f"\n{error}")
