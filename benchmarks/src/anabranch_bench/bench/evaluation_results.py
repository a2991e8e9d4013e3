"""What a run of the evaluation showed, beside its control run, and whether it was seamless."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch.loadtest.latency import NOTHING, Latency, Timeline, TimeWindow, median
from anabranch_bench.bench.evaluation_loads import WorkloadLoad
from anabranch_bench.bench.evaluation_plan import Spec
from anabranch_bench.bench.rescale_runs import CONTROL
from anabranch_bench.bench.verdicts import MEAN_RATIO_MAX, PEAK_RATIO_MAX, THROUGHPUT_RATIO_MIN
from anabranch_bench.bench.workload_run import Replication
from anabranch_bench.workloads.verify import Verification

PHASES = ("before", "during", "after")
STABLE_FACTOR = 1.1
"""Stable again: no batch above this times the peak before the move (DRRS' rule)."""
INTERRUPTED = "interrupted"
"""Instead of an error: somebody ended the run."""
NOISE_WINDOWS = 40
"""Windows of a control run that are looked at for its own ups and downs."""

Pick = Callable[[Latency], float]
PICKS: dict[str, Pick] = {
    "peak": lambda f: f.peak,
    "mean": lambda f: f.mean,
    "rows/s": lambda f: f.throughput,
}


@dataclass
class Result:
    """One run."""

    load: WorkloadLoad
    label: str
    """Of the strategy, with its options."""
    repeat: int = 0
    settle: float = 0.0
    timeline: Timeline | None = None
    move: TimeWindow | None = None
    report: dict[str, Any] = field(default_factory=dict)
    capacity: float = math.nan
    replication: Replication | None = None
    rows: int = 0
    verdicts: list[Verification] = field(default_factory=list)
    error: str = ""
    """Why it failed, or that it was interrupted."""

    @property
    def is_good(self) -> bool:
        """Whether its figures count."""
        return not self.error and self.timeline is not None and bool(self.timeline.batches)

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody ended it: its figures do not count, but it has not failed."""
        return self.error == INTERRUPTED

    @property
    def is_right(self) -> bool | None:
        """Whether all outputs are equal to the oracle's; None: not verified."""
        return all(v.is_right for v in self.verdicts) if self.verdicts else None

    @property
    def has_results(self) -> bool:
        """Whether every output had something to compare: two times nothing proves little."""
        return all(v.expected_rows for v in self.verdicts)

    @property
    def end(self) -> float:
        """When its last batch was done, in seconds since the load began."""
        return self.timeline.end if self.timeline else 0.0

    def phase(self, name: str, window: TimeWindow | None = None) -> Latency:
        """Latency before, during or after its move, or the window of another run's."""
        window = window or self.move
        if self.timeline is None or window is None:
            return NOTHING
        if name == "before":
            return self.timeline.before(TimeWindow(self.settle, min(window.start, self.end)))
        if name == "during":
            return self.timeline.during(TimeWindow(window.start, min(window.end, self.end)))
        return self.timeline.after(TimeWindow(window.end, self.end))

    @property
    def stable_after(self) -> float:
        """Seconds from the move's start until latency was and stayed as before."""
        if self.timeline is None or self.move is None:
            return math.nan
        limit = STABLE_FACTOR * self.phase("before").peak
        late = [
            p.done
            for p in self.timeline.points()
            if p.done >= self.move.start and p.slowest > limit
        ]
        return max(late, default=self.move.start) - self.move.start

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        points = self.timeline.points() if self.timeline else []
        return {
            "workload": self.load.name,
            "about": self.load.about,
            "rate": self.load.rate,
            "strategy": self.label,
            "repeat": self.repeat,
            "error": self.error or None,
            "rows": self.rows,
            "warm_up_rows_per_second": self.capacity if math.isfinite(self.capacity) else None,
            "move_window": asdict(self.move) if self.move else None,
            "stable_after": self.stable_after if self.move else None,
            "latency": {name: self.phase(name).to_json() for name in PHASES} if self.move else None,
            "report": self.report,
            "replication": asdict(self.replication) if self.replication else None,
            "verdicts": [v.to_json() for v in self.verdicts],
            "batches_columns": ["done", "slowest", "fastest", "rows"],
            "batches": [
                [round(p.done, 3), round(p.slowest, 3), round(p.fastest, 3), p.rows] for p in points
            ],
        }


class Results:
    """All runs so far, found by workload and strategy."""

    def __init__(self, runs: Iterable[Result] = ()) -> None:
        self.runs = list(runs)

    def of(self, specs: Iterable[Spec]) -> Results:
        """Only those that were made for these."""
        keys = {spec.key for spec in specs}
        return Results(r for r in self.runs if (r.load, r.label, r.repeat) in keys)

    def loads(self) -> list[WorkloadLoad]:
        """What was run, in order."""
        return list(dict.fromkeys(r.load for r in self.runs))

    def labels(self, load: WorkloadLoad) -> list[str]:
        """Strategies with figures, the control run last."""
        found = dict.fromkeys(r.label for r in self.good(load))
        return sorted(found, key=lambda label: label == CONTROL)

    def good(self, load: WorkloadLoad, label: str | None = None) -> list[Result]:
        """Repeats of a run whose figures count; of all strategies if none is given."""
        same = (r for r in self.runs if r.load == load and r.is_good)
        return [r for r in same if label is None or r.label == label]

    def control(self, result: Result) -> Result | None:
        """The control run of a run: the one of the same repeat if there is one."""
        found = self.good(result.load, CONTROL)
        found.sort(key=lambda r: r.repeat != result.repeat)
        return found[0] if found else None

    def window(self, result: Result) -> TimeWindow | None:
        """Of its move; for a control run, that of `live` (or of any other) beside it."""
        if result.move is not None:
            return result.move
        others = [r for r in self.good(result.load) if r.move is not None]
        others.sort(key=lambda r: (r.repeat != result.repeat, r.label != "live"))
        return others[0].move if others else None

    def figure(self, load: WorkloadLoad, label: str, phase: str, pick: Pick) -> float:
        """Median over repeats."""
        found = [r.phase(phase, w) for r in self.good(load, label) if (w := self.window(r))]
        return median([pick(latency) for latency in found])

    def ratio(self, load: WorkloadLoad, label: str, pick: Pick, phase: str = "during") -> float:
        """Median over repeats: the figure to the control's in the same window."""
        found = []
        for run in self.good(load, label):
            control = self.control(run)
            if control and run.move:
                theirs = pick(control.phase(phase, run.move))
                found.append(pick(run.phase(phase)) / theirs if theirs else math.nan)
        return median(found)

    def noise(self, load: WorkloadLoad, label: str, name: str) -> float:
        """How much worse a control run's own worst window of that length is than that window."""
        found = []
        for run in self.good(load, label):
            control = self.control(run)
            if control and run.move:
                here = PICKS[name](control.phase("during", run.move))
                worst = _worst_window(control, run.move.seconds, name)
                found.append(worst / here if here else math.nan)
        return median(found)


def _worst_window(control: Result, seconds: float, name: str) -> float:
    assert control.timeline is not None
    last = control.end - seconds
    if last <= control.settle:
        return math.nan
    step = max(0.25, (last - control.settle) / NOISE_WINDOWS)
    count = int((last - control.settle) / step) + 1
    windows = (control.settle + n * step for n in range(count))
    found = [
        PICKS[name](control.timeline.during(TimeWindow(start, start + seconds)))
        for start in windows
    ]
    numbers = [value for value in found if math.isfinite(value)]
    if not numbers:
        return math.nan
    return min(numbers) if name == "rows/s" else max(numbers)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a reconfiguration was seamless, and what speaks against it."""

    word: str
    """seamless, noise, disturbed, unclear, WRONG, failed, interrupted or - (not known)."""
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.word}: {'; '.join(self.reasons)}" if self.reasons else self.word


SEAMLESS, NOISE, DISTURBED, UNCLEAR = "seamless", "noise", "disturbed", "unclear"

RULE = (
    f"seamless: during the move at most {PEAK_RATIO_MAX:g} times the control run's peak and "
    f"{MEAN_RATIO_MAX:g} times its mean latency in the same window, at least "
    f"{THROUGHPUT_RATIO_MIN:g} of its throughput, and results equal to the oracle's; noise: beyond "
    "that, but the control run has windows of that length that are as bad; disturbed: beyond both; "
    "unclear: before the move, when nothing differs, the mean latencies of the two runs are "
    f"already more than {MEAN_RATIO_MAX:g} times apart, so that neither verdict would mean anything"
)


def judge(results: Results, load: WorkloadLoad, label: str) -> Judgement:
    """A strategy on a workload, over all repeats."""
    runs = [r for r in results.runs if r.load == load and r.label == label]
    failed = [r.error for r in runs if r.error and not r.is_interrupted]
    if failed:
        return Judgement("failed", (failed[0],))
    wrong = [str(v) for r in runs for v in r.verdicts if not v.is_right]
    if wrong:
        return Judgement("WRONG", (wrong[0],))
    if runs and all(r.is_interrupted for r in runs):
        return Judgement(INTERRUPTED)
    found = {name: results.ratio(load, label, pick) for name, pick in PICKS.items()}
    if not runs or any(math.isnan(ratio) for ratio in found.values()):
        return Judgement("-")
    level = results.ratio(load, label, PICKS["mean"], "before")
    if not 1 / MEAN_RATIO_MAX <= level <= MEAN_RATIO_MAX:
        return Judgement(UNCLEAR, (f"mean before x {level:.2f}",))
    beyond = [name for name, ratio in found.items() if _is_worse(name, ratio, _limit(name))]
    noises = {name: results.noise(load, label, name) for name in beyond}
    clear = [
        name
        for name in beyond
        if math.isnan(noises[name]) or _is_worse(name, found[name], noises[name])
    ]
    told = tuple(f"{name} x {found[name]:.2f}" for name in clear or beyond)
    return Judgement(DISTURBED if clear else NOISE if beyond else SEAMLESS, told)


def _limit(name: str) -> float:
    limits = {"peak": PEAK_RATIO_MAX, "mean": MEAN_RATIO_MAX, "rows/s": THROUGHPUT_RATIO_MIN}
    return limits[name]


def _is_worse(name: str, ratio: float, limit: float) -> bool:
    return ratio < limit if name == "rows/s" else ratio > limit


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Least and greatest of the numbers among them."""
    numbers = [v for v in values if math.isfinite(v)]
    return (min(numbers), max(numbers)) if numbers else (math.nan, math.nan)
