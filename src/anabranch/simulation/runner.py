"""Runs many seeds and sums up; what fails is said with the command that replays it."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch.simulation.scenario import ScenarioResult, run_seed

TAIL_LINES = 40
GARBAGE_SCENARIOS = 4
"""As few as pay: memory that has just been freed is still in the processor's cache."""


@dataclass(slots=True)
class Summary:
    """Result of many scenarios."""

    scenarios: int = 0
    steps: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[ScenarioResult] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """Whether every scenario was equal to its oracle."""
        return not self.failures

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "scenarios": self.scenarios,
            "steps": self.steps,
            "counts": dict(sorted(self.counts.items())),
            "failures": [
                {**asdict(f), "trace": list(f.trace[-TAIL_LINES:]), "replay": replay(f)}
                for f in self.failures
            ],
        }


def run_seeds(seeds: Iterable[int], failures_max: int = 1, hosts: bool = False) -> Summary:
    """Run scenarios, with hosts or without, until the seeds or the patience end."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()  # what is there already need not be looked at again and again
    try:
        return _run_seeds(seeds, failures_max, hosts)
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _run_seeds(seeds: Iterable[int], failures_max: int, hosts: bool) -> Summary:
    summary = Summary()
    for seed in seeds:
        result = run_seed(seed, hosts=hosts)
        if summary.scenarios % GARBAGE_SCENARIOS == 0:
            gc.collect()  # a cluster is one big cycle
        summary.scenarios += 1
        summary.steps += result.steps
        summary.counts.update(result.counts)
        if result.failure is not None:
            summary.failures.append(result)
            if len(summary.failures) >= failures_max:
                break
    return summary


def replay(result: ScenarioResult) -> str:
    """The command that runs one scenario again."""
    return f"anabranch simulate {'--hosts ' if result.has_hosts else ''}--seed {result.seed}"


def describe(result: ScenarioResult) -> str:
    """A failed scenario for people."""
    tail = "\n".join(result.trace[-TAIL_LINES:])
    return f"seed {result.seed} failed: {result.failure}\n{tail}\nreplay: {replay(result)}"
