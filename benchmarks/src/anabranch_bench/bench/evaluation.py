"""`anabranch bench evaluation`: makes the planned runs one by one and keeps what they showed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from anabranch.loadtest.loaded_query import Say
from anabranch_bench.bench.evaluation_plan import (
    EvaluationSettings,
    Spec,
    plan,
    seconds_of_all,
    warm_ups,
)
from anabranch_bench.bench.evaluation_results import INTERRUPTED, Result, Results
from anabranch_bench.bench.rescale_runs import CONTROL, brief

LEARNT_SECONDS = 30.0
"""Work after which guesses are corrected by how wrong they have been."""

Runner = Callable[[Spec, float, Say], Result]
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
    on_run: Callable[[Result], None] = lambda _: None
    should_stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    results: Results = field(default_factory=Results)
    interrupted: bool = False

    def run(self) -> Results:
        """All runs of the plan, unless somebody wants to stop; `results` is filled on the way."""
        specs = plan(self.settings)
        cold = {spec.load: spec for spec in warm_ups(specs, self.settings)}
        begun, whole = self.clock(), self._guess((*specs, *cold.values()))
        for number, spec in enumerate(specs):
            left = self._guess((*specs[number:], *cold.values()))
            if whole - left > LEARNT_SECONDS:
                left *= (self.clock() - begun) / (whole - left)
            head = f"[{number + 1}/{len(specs)}, about {time_left(left)} left] {spec.name}"
            if self._stops():
                break
            self.on_task(head)
            if spec.load in cold and self._stops_after(cold.pop(spec.load), head):
                break
            result = self._make(spec, head)
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

    def _guess(self, specs: Iterable[Spec]) -> float:
        return seconds_of_all(specs, self.settings)

    def _stops(self) -> bool:
        """Whether somebody wants to."""
        self.interrupted = self.interrupted or self.should_stop()
        return self.interrupted

    def _stops_after(self, warm_up: Spec, head: str) -> bool:
        """Make a run that does not count; whether somebody has stopped it."""
        self.interrupted = self._make(warm_up, f"{head}: warming up").is_interrupted
        return self._stops()

    def _make(self, spec: Spec, head: str) -> Result:
        try:
            return self.runner(spec, self._seconds_min(spec), lambda t: self.say(f"{head}: {t}"))
        except KeyboardInterrupt:
            return self._failed(spec, INTERRUPTED)
        except Exception as error:  # whatever one run has, the others can still be made
            return self._failed(spec, brief(error))

    def _failed(self, spec: Spec, error: str) -> Result:
        settle = self.settings.settle
        return Result(spec.load, spec.case.label, spec.repeat, settle, error=error)

    def _seconds_min(self, spec: Spec) -> float:
        """A control run is as long as that of `live`, which it is compared with first."""
        if spec.case.label != CONTROL:
            return 0.0
        same = (r for r in self.results.good(spec.load, "live") if r.repeat == spec.repeat)
        return max((r.end for r in same), default=0.0)


def time_left(seconds: float) -> str:
    """In words, no more exact than a guess can be."""
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
