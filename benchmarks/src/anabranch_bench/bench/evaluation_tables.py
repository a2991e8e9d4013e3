"""Tables of the evaluation: what was run, every strategy on every workload, verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anabranch.loadtest.latency import median
from anabranch_bench.bench.evaluation_loads import WorkloadLoad
from anabranch_bench.bench.evaluation_results import (
    PHASES,
    PICKS,
    RULE,
    Pick,
    Result,
    Results,
    judge,
    spread,
)
from anabranch_bench.bench.rescale_runs import CONTROL
from anabranch_bench.bench.workload_run import WARM_UP_BATCH_ROWS_MIN

FIGURES: dict[str, Pick] = {"p50": lambda f: f.p50, "p99": lambda f: f.p99, **PICKS}
"""By name, in the order in which tables have them."""


@dataclass(frozen=True)
class Table:
    """Cells as they are shown."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""

    def markdown(self) -> str:
        """With columns of even width: good to read as text too."""
        lines = [[cell.replace("|", "/") for cell in line] for line in (self.columns, *self.rows)]
        widths = [max(3, *(len(line[n]) for line in lines)) for n in range(len(self.columns))]
        lines.insert(1, ["-" * width for width in widths])
        shown = [
            f"| {' | '.join(c.ljust(w) for c, w in zip(line, widths, strict=True))} |"
            for line in lines
        ]
        note = ["", self.note] if self.note else []
        return "\n".join([f"### {self.title}", "", *shown, *note])

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


# -- what was run --


def parameters(results: Results) -> Table:
    """Each workload with its rate, and what share of the capacity that is."""
    rows = []
    for load in results.loads():
        capacity = median([r.capacity for r in results.good(load)])
        share = load.rate / capacity if capacity else math.nan
        cells = (f"{load.rate:,.0f}", count_cell(capacity), percent_cell(share))
        rows.append((load.name, load.about, *cells))
    columns = ("workload", "parameters", "rows/s", "capacity", "load")
    note = (
        "Capacity: rows a second of the last warm-up batches, back to back, with the rows of a "
        f"second in each, at least {WARM_UP_BATCH_ROWS_MIN:,}; larger batches would do more."
    )
    return Table("What was run", columns, rows, note)


def failures(results: Results) -> Table:
    """Runs without figures, unless somebody interrupted them, and wrong results."""
    failed = [r for r in results.runs if r.error and not r.is_interrupted]
    rows = [(r.load.title, r.label, r.error) for r in failed]
    rows += [
        (r.load.title, r.label, str(v)) for r in results.runs for v in r.verdicts if not v.is_right
    ]
    return Table("Failed or wrong", ("run", "strategy", "what"), rows)


# -- workloads --


def seamlessness(results: Results) -> Table:
    """One table for all workloads: before, during and after, the control run below."""
    rows: list[tuple[str, ...]] = []
    for load in results.loads():
        tried = dict.fromkeys(r.label for r in results.runs if r.load == load)
        first = next((label for label in tried if label != CONTROL), None)
        for label in filter(None, (first, CONTROL)):
            names = ("rows/s", "p50", "p99", "mean", "peak")
            phases = [figure_cells(results, load, label, phase, *names) for phase in PHASES]
            cells = [" / ".join(figures) for figures in zip(*phases, strict=True)]
            verdict = str(judge(results, load, label)) if label != CONTROL else ""
            name = load.name if label != CONTROL else ""
            rows.append((name, label, *cells, oracle(results, load, label), verdict))
    latencies = ("p50 s", "p99 s", "mean s", "peak s")
    columns = ("workload", "run", "rows/s", *latencies, "oracle", "verdict")
    note = (
        "Before / during / after the move; the control run in the same windows. "
        f"{RULE[0].upper()}{RULE[1:]}."
    )
    return Table("Seamless?", columns, rows, note)


def strategies(load: WorkloadLoad, results: Results) -> Table:
    """Every strategy on one workload, three lines each."""
    rows: list[tuple[str, ...]] = []
    for label in results.labels(load):
        verdict = judge(results, load, label).word if label != CONTROL else ""
        for phase in PHASES:
            figures = figure_cells(results, load, label, phase, *FIGURES)
            more: tuple[str, ...] = ("",) * 6
            if phase == "during":
                moved = (*moving(results, load, label), oracle(results, load, label), verdict)
                more = (against_control(results, load, label), *moved)
            rows.append((label if phase == "before" else "", phase, *figures, *more))
    columns = ("strategy", "phase", "p50 s", "p99 s", "peak s", "mean s", "rows/s")
    more_columns = ("x control (peak / mean)", "move s", "MB", "groups", "oracle", "verdict")
    note = _peaks_note(load, results)
    return Table(load.title, columns + more_columns, rows, note)


def _peaks_note(load: WorkloadLoad, results: Results) -> str:
    """With several repeats, how far apart they are."""
    told = []
    for label in results.labels(load):
        runs = [r for r in results.good(load, label) if r.move]
        if len(runs) > 1:
            low, high = spread([r.phase("during").peak for r in runs])
            told.append(f"{label} {low:.2f} to {high:.2f} s")
    return f"Medians; peaks during: {', '.join(told)}." if told else ""


# -- cells --


def oracle(results: Results, load: WorkloadLoad, label: str) -> str:
    """Whether all repeats had the results that the oracle has, and whether it has any."""
    runs = [r for r in results.good(load, label) if r.is_right is not None]
    if not runs:
        return "-"
    if not all(r.is_right for r in runs):
        return "WRONG"
    return "equal" if all(r.has_results for r in runs) else "no rows"


def against_control(results: Results, load: WorkloadLoad, label: str) -> str:
    """Peak and mean latency during the move to those of the control run in that window."""
    if label == CONTROL:
        return ""
    peak, mean = (results.ratio(load, label, PICKS[name]) for name in ("peak", "mean"))
    return "-" if math.isnan(peak) else f"{peak:.2f} / {mean:.2f}"


def moving(results: Results, load: WorkloadLoad, label: str) -> tuple[str, str, str]:
    """Seconds, megabytes and key groups of the move."""
    if label == CONTROL:
        return "", "", ""
    seconds = median_of(results, load, label, lambda r: r.move.seconds if r.move else math.nan)
    size = median_of(results, load, label, lambda r: r.report.get("bytes", math.nan) / 1e6)
    groups = median_of(results, load, label, lambda r: float(r.report.get("groups", math.nan)))
    return seconds_cell(seconds), number_cell(size), count_cell(groups)


def median_of(
    results: Results, load: WorkloadLoad, label: str, pick: Callable[[Result], float]
) -> float:
    """Over the repeats."""
    return median([pick(r) for r in results.good(load, label)])


def figure_cells(
    results: Results, load: WorkloadLoad, label: str, phase: str, *names: str
) -> tuple[str, ...]:
    """Some of FIGURES."""
    values = {name: results.figure(load, label, phase, FIGURES[name]) for name in names}
    return tuple(
        count_cell(value) if name == "rows/s" else seconds_cell(value)
        for name, value in values.items()
    )


def seconds_cell(value: float) -> str:
    """With two digits."""
    return f"{value:.2f}" if math.isfinite(value) else "-"


def number_cell(value: float) -> str:
    """With one digit."""
    return f"{value:,.1f}" if math.isfinite(value) else "-"


def count_cell(value: float) -> str:
    """Without digits."""
    return f"{value:,.0f}" if math.isfinite(value) else "-"


def percent_cell(value: float) -> str:
    """Of one."""
    return f"{value:.0%}" if math.isfinite(value) else "-"
