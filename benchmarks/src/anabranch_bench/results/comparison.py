"""Runs beside each other: what each one is compared with, and whether that is fair."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.loadtest.latency import Latency, TimeWindow, median, typical
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.medians import median_place, median_value
from anabranch_bench.results.run_result import PHASES, Controls, RunResult

STOLEN_DIFFERENCE_MAX = 0.1
"""Share of the cores. The load is half of what the cores can do: with a tenth less of them, or
more, every batch takes another time, whatever moves."""
NOISE_WINDOWS = 40
"""Windows of a control run that are looked at for its own ups and downs."""

Pick = Callable[[Latency], float]
ControlsOf = Callable[[RunResult], list[RunResult]]
FIGURES: dict[str, Pick] = {
    "p50": lambda f: f.p50,
    "p99": lambda f: f.p99,
    "peak": lambda f: f.peak,
    "mean": lambda f: f.mean,
    "rows/s": lambda f: f.throughput,
}
"""By name, in the order in which tables have them."""
LOW_IS_WORSE = ("rows/s",)
"""Of the others, high."""


class RunSet:
    """Some runs of a benchmark, found by part, load and strategy."""

    def __init__(self, runs: Iterable[RunResult] = ()) -> None:
        self.runs = list(runs)

    # -- which --

    def where(self, keep: Callable[[RunResult], bool]) -> RunSet:
        """Only those."""
        return RunSet(filter(keep, self.runs))

    def of_part(self, part: str) -> RunSet:
        """Of one part of the benchmark."""
        return self.where(lambda r: r.part == part)

    def at(self, load: RunLoad) -> RunSet:
        """Under one load."""
        return self.where(lambda r: r.load == load)

    def in_turns(self, is_turn: bool) -> RunSet:
        """Parts of one long query, or those that are not."""
        return self.where(lambda r: r.is_turn == is_turn)

    def of_size(self, state_bytes: int) -> RunSet:
        """With a state of this size."""
        return self.where(lambda r: r.load.state_bytes == state_bytes)

    def loads(self) -> list[RunLoad]:
        """What was run, in order."""
        return list(dict.fromkeys(r.load for r in self.runs))

    def labels(self) -> list[str]:
        """Strategies with figures, the control run last."""
        found = dict.fromkeys(r.label for r in self.runs if r.is_good)
        return sorted(found, key=lambda label: label == CONTROL)

    def each(self) -> Iterator[tuple[RunLoad, RunSet, str]]:
        """Every load with its runs, and each strategy that has figures."""
        for load in self.loads():
            runs = self.at(load)
            yield from ((load, runs, label) for label in runs.labels())

    def tried(self, label: str) -> list[RunResult]:
        """All with a label, also those that failed."""
        return [r for r in self.runs if r.label == label]

    def judged(self, label: str) -> list[RunResult]:
        """Those with a label that say something; not turns with nothing to be compared with."""
        good = (r for r in self.tried(label) if r.is_good)
        return [r for r in good if not r.is_turn or label == CONTROL or self.controls_of(r)]

    def left_out(self, label: str) -> str:
        """Says which moves have nothing to be compared with; empty if all do."""
        moved = [r for r in self.tried(label) if r.move and not r.error]
        compared = self.judged(label)
        alone = [r for r in moved if r not in compared]
        if not alone:
            return ""
        shares = ", ".join(str(r.cores) or "nobody knows of the cores" for r in alone)
        return (
            f"{len(alone)} of {len(moved)} moves left out ({shares}): the times without a move "
            "beside them had a tenth of the cores more or less, or failed"
        )

    # -- beside what --

    def controls_of(self, run: RunResult) -> list[RunResult]:
        """What a run is compared with: of the same part and load, as `Controls` says."""
        known = [
            r
            for r in self.tried(CONTROL)
            if r.is_good and (r.part, r.load, r.controls) == (run.part, run.load, run.controls)
        ]
        match run.controls:
            case Controls.BESIDE:
                # Moves differ in length: some of these times are a little shorter than the move.
                beside = (run.repeat, run.repeat + 1)
                return [r for r in known if r.repeat in beside and _has_such_cores(r, run)]
            case Controls.PAIRED:
                return sorted(known, key=lambda r: r.repeat != run.repeat)[:1]
            case Controls.ALL:
                end = run.move.end if run.move else 0.0
                return [r for r in known if r.end >= end]

    def all_controls_of(self, run: RunResult) -> list[RunResult]:
        """Of a turn: all times without a move in its query, wherever they are in it."""
        what = (run.part, run.load, run.controls)
        good = (r for r in self.tried(CONTROL) if r.is_good)
        return [r for r in good if (r.part, r.load, r.controls) == what and _has_such_cores(r, run)]

    def control(self, run: RunResult, phase: str = "during") -> Latency | None:
        """What the control runs showed in the run's window: medians, as one is mostly chance."""
        return _in_window(run, phase, self.controls_of(run))

    def window(self, run: RunResult) -> TimeWindow | None:
        """Of its move; for a control run, that of a run beside it, of `live` if there is one."""
        if run.move is not None:
            return run.move
        what = (run.part, run.load, run.controls)
        good = (r for r in self.runs if r.is_good and r.move)
        others = [r for r in good if (r.part, r.load, r.controls) == what]
        others.sort(key=lambda r: (abs(r.repeat - run.repeat), r.label != "live"))
        return others[0].move if others else None

    # -- figures --

    def phases(self, label: str, phase: str) -> list[Latency]:
        """Of each repeat; control runs in the windows of others."""
        return [latency for _, latency in self._seen(label, phase)]

    def _seen(self, label: str, phase: str) -> list[tuple[RunResult, Latency]]:
        found = ((r, self.window(r)) for r in self.judged(label))
        seen = [(run, run.phase(phase, window)) for run, window in found if window]
        return [(run, latency) for run, latency in seen if latency.rows]

    def median_run(self, label: str, phase: str = "during", name: str = "peak") -> RunResult | None:
        """The run that tables have this figure of; by its peak during the move, pictures too."""
        seen = self._seen(label, phase)
        values = [FIGURES[name](latency) for _, latency in seen]
        place = median_place(values, name in LOW_IS_WORSE)
        return None if place is None else seen[place][0]

    def figure(self, label: str, phase: str, name: str) -> float:
        """One of FIGURES, of the median run by that figure."""
        run = self.median_run(label, phase, name)
        return math.nan if run is None else FIGURES[name](run.phase(phase, self.window(run)))

    def spread(self, label: str, phase: str, name: str) -> tuple[float, float]:
        """Least and greatest of a figure over all repeats."""
        values = [FIGURES[name](latency) for latency in self.phases(label, phase)]
        numbers = [value for value in values if not math.isnan(value)]
        return (min(numbers), max(numbers)) if numbers else (math.nan, math.nan)

    def median_of(self, label: str, pick: Callable[[RunResult], float]) -> float:
        """Of what each repeat told."""
        return median_value(pick(r) for r in self.judged(label))

    def move_seconds(self, label: str) -> float:
        """Duration of the move, the median over repeats."""
        return self.median_of(label, lambda r: r.move.seconds if r.move else math.nan)

    def ratios(self, label: str, name: str, phase: str = "during") -> list[float]:
        """Of each repeat: the strategy's figure before, during or after the move to control's."""
        return self._ratios(label, name, phase, self.controls_of)

    def ratios_to_all(self, label: str, name: str) -> list[float]:
        """During the move, to the median of all times without one in the same query.

        Each move in turns has two such times beside it: one of them decides half of its ratio.
        """
        return self._ratios(label, name, "during", self.all_controls_of)

    def _ratios(self, label: str, name: str, phase: str, controls_of: ControlsOf) -> list[float]:
        found, pick = [], FIGURES[name]
        for run in self.judged(label):
            mine, theirs = run.phase(phase), _in_window(run, phase, controls_of(run))
            if mine.rows and theirs and pick(theirs):
                found.append(pick(mine) / pick(theirs))
        return found

    def ratio(self, label: str, name: str, phase: str = "during") -> float:
        """The median of `ratios`."""
        return median_value(self.ratios(label, name, phase), name in LOW_IS_WORSE)

    def growth(self, label: str, name: str) -> list[float]:
        """As `ratios`, with each run's figure as a multiple of its own before the move: on a shared
        machine whole runs are slower or faster than others, from their beginning on."""
        found = []
        for run in self.judged(label):
            mine = _grown(run, run.move, name)
            theirs = median([_grown(control, run.move, name) for control in self.controls_of(run)])
            if not math.isnan(mine) and not math.isnan(theirs):
                found.append(mine / theirs)
        return found

    def noise(self, label: str, name: str) -> float:
        """How much worse a control run's own worst window of that length is than that window."""
        found = []
        for run in self.judged(label):
            for control in self.controls_of(run) if run.move else ():
                here = FIGURES[name](control.phase("during", run.move))
                worst = _worst_window(control, run.move.seconds if run.move else 0.0, name)
                found.append(worst / here if here else math.nan)
        return median_value(found)

    def to_json(self) -> list[dict[str, Any]]:
        """All runs, each in its windows, with what the controls showed meanwhile."""
        return [self._run_json(run) for run in self.runs]

    def _run_json(self, run: RunResult) -> dict[str, Any]:
        told, window, control = run.to_json(), self.window(run), self.control(run)
        if window is not None:
            told["latency"] = {name: run.phase(name, window).to_json() for name in PHASES}
            told["latency"]["control_during"] = control.to_json() if control else None
        return told


def _in_window(run: RunResult, phase: str, controls: Iterable[RunResult]) -> Latency | None:
    """Medians of control runs in a run's window.

    After a move there are other workers than before: compared is with controls during it.
    """
    when = "before" if phase == "before" else "during"
    found = (control.phase(when, run.move) for control in controls if run.move)
    return typical([latency for latency in found if latency.rows])


def _has_such_cores(control: RunResult, run: RunResult) -> bool:
    """Where nobody tells, it has."""
    return not abs(control.cores.stolen - run.cores.stolen) > STOLEN_DIFFERENCE_MAX


def _grown(run: RunResult, window: TimeWindow | None, name: str) -> float:
    """From before a move to during it."""
    if window is None:
        return math.nan
    before, during = (FIGURES[name](run.phase(phase, window)) for phase in ("before", "during"))
    return during / before if before else math.nan


def _worst_window(control: RunResult, seconds: float, name: str) -> float:
    assert control.timeline is not None
    last = control.end - seconds
    if last <= control.settle:
        return math.nan
    step = max(0.25, (last - control.settle) / NOISE_WINDOWS)
    count = int((last - control.settle) / step) + 1
    starts = [control.settle + n * step for n in range(count)]
    windows = [TimeWindow(start, start + seconds) for start in starts]
    found = [FIGURES[name](control.timeline.during(window)) for window in windows]
    numbers = [value for value in found if math.isfinite(value)]
    if not numbers:
        return math.nan
    return min(numbers) if name == "rows/s" else max(numbers)
