"""`anabranch bench evaluation`: makes the planned runs one by one and keeps what they showed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from anabranch.bench.evaluation_plan import Settings, Spec, plan, seconds_of, warm_ups
from anabranch.bench.evaluation_results import Result, Results
from anabranch.bench.rescale_runs import CONTROL, Say, brief

LEARNT_SECONDS = 30.0
"""Work after which guesses are corrected by how wrong they have been."""
INTERRUPTED = "interrupted"

Runner = Callable[[Spec, float, Say], Result]
"""Makes a run that lasts at least so many seconds under load; tells how far it is."""


@dataclass
class Evaluation:
    """Runs one after the other; one that fails is a result too."""

    settings: Settings
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
        begun, guessed = self.clock(), 0.0
        for number, spec in enumerate(specs):
            if self.should_stop():
                self.interrupted = True
                break
            left = sum(seconds_of(s, self.settings) for s in (*specs[number:], *cold.values()))
            if guessed > LEARNT_SECONDS:
                left *= (self.clock() - begun) / guessed
            head = f"[{number + 1}/{len(specs)}, about {time_left(left)} left] {spec.name}"
            self.on_task(head)
            if spec.load in cold:
                warm_up = cold.pop(spec.load)
                self._make(warm_up, f"{head}: warming up")
                guessed += seconds_of(warm_up, self.settings)
            result = self._make(spec, head)
            self.results.runs.append(result)
            self.interrupted = result.error == INTERRUPTED
            self.on_run(result)
            guessed += seconds_of(spec, self.settings)
            if self.interrupted:
                break
        return self.results

    @property
    def is_good(self) -> bool:
        """All runs were made, none failed or had wrong results."""
        runs = self.results.runs
        return not self.interrupted and all(r.is_good and r.is_right is not False for r in runs)

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
