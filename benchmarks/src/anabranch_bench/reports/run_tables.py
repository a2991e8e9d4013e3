"""Tables of runs: what was run, what failed, every strategy, and whether it was seamless."""

from __future__ import annotations

import math

from anabranch.loadtest.latency import median
from anabranch_bench.reports.tables import (
    Table,
    count_cell,
    number_cell,
    percent_cell,
    seconds_cell,
)
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.comparison import FIGURES, RunSet
from anabranch_bench.results.medians import MEDIAN_RULE
from anabranch_bench.results.run_result import PHASES
from anabranch_bench.results.verdicts import RULE, peaks, seamlessness

MEDIANS = f"Figures: {MEDIAN_RULE}."


def parameters(results: RunSet, batch_rows_min: int) -> Table:
    """Each workload with its rate, and what share of the capacity that is."""
    rows = []
    for load in results.loads():
        capacity = median([r.capacity for r in results.at(load).runs if r.is_good])
        share = load.rate / capacity if capacity else math.nan
        cells = (f"{load.rate:,.0f}", count_cell(capacity), percent_cell(share))
        rows.append((load.name, load.about, *cells))
    columns = ("workload", "parameters", "rows/s", "capacity", "load")
    note = (
        "Capacity: rows a second of the last warm-up batches, back to back, with the rows of a "
        f"second in each, at least {batch_rows_min:,}; larger batches would do more."
    )
    return Table("What was run", columns, rows, note)


def failures(results: RunSet) -> Table:
    """Runs without figures, unless somebody interrupted them, and wrong results."""
    failed = [r for r in results.runs if r.error and not r.is_interrupted]
    rows = [(r.load.title, r.label, r.error) for r in failed]
    rows += [
        (r.load.title, r.label, str(v))
        for r in results.runs
        for v in r.verifications
        if not v.is_right
    ]
    return Table("Failed or wrong", ("run", "strategy", "what"), rows)


def seamless(results: RunSet) -> Table:
    """One table for all workloads: before, during and after, the control run below."""
    rows: list[tuple[str, ...]] = []
    for load in results.loads():
        runs = results.at(load)
        tried = dict.fromkeys(r.label for r in runs.runs)
        first = next((label for label in tried if label != CONTROL), None)
        for label in filter(None, (first, CONTROL)):
            names = ("rows/s", "p50", "p99", "mean", "peak")
            phases = [figure_cells(runs, label, phase, *names) for phase in PHASES]
            cells = [" / ".join(figures) for figures in zip(*phases, strict=True)]
            verdict = seamlessness(runs, label).cell if label != CONTROL else ""
            name = load.name if label != CONTROL else ""
            count = f"{len(runs.judged(label))}"
            rows.append((name, label, count, *cells, oracle(runs, label), verdict))
    latencies = ("p50 s", "p99 s", "mean s", "peak s")
    columns = ("workload", "run", "runs", "rows/s", *latencies, "oracle", "verdict")
    note = (
        f"{MEDIANS} Before / during / after the move; the control run in the same windows. "
        f"{RULE[0].upper()}{RULE[1:]}."
    )
    return Table("Seamless?", columns, rows, note)


def strategies(title: str, results: RunSet) -> Table:
    """Every strategy, three lines each; medians over repeats."""
    rows: list[tuple[str, ...]] = []
    notes: list[str] = []
    is_verified = any(r.verifications for r in results.runs)
    groups = dict.fromkeys((r.label, r.is_turn) for r in results.runs)
    for label, is_turn in sorted(groups, key=lambda group: group[0] == CONTROL):
        runs = results.in_turns(is_turn)
        rows += _strategy_rows(runs, label, is_verified)
        spread = peaks(runs, label)
        if spread.n > 1:
            least, greatest = f"{spread.least:.2f}", f"{spread.greatest:.2f}"
            notes.append(f"{label} {least} to {greatest} s")
    notes = [f"{MEDIANS} Peaks during: {', '.join(notes)}."] if notes else []
    notes += [
        f"{label}: {alone}." for label in results.labels() if (alone := results.left_out(label))
    ]
    figures = ("p50 s", "p99 s", "peak s", "mean s", "rows/s", "x control (peak / mean)")
    more = ("oracle", "verdict") if is_verified else ()
    columns = ("strategy", "runs", "phase", *figures, "move s", "MB", "groups", *more)
    return Table(title, columns, rows, " ".join(notes))


def _strategy_rows(runs: RunSet, label: str, is_verified: bool) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for phase in PHASES if runs.phases(label, "during") else ():
        ratio = against_control(runs, label, phase)
        moved, verdict = ("", "", ""), ("", "")
        if phase == "during":
            moved = moving(runs, label)
            word = seamlessness(runs, label).word if label != CONTROL else ""
            verdict = (oracle(runs, label), word)
            if label == CONTROL:
                ratio = f"(in the windows of {'live' if runs.judged('live') else 'others'})"
        first = (label, f"{len(runs.judged(label))}") if phase == "before" else ("", "")
        figures = figure_cells(runs, label, phase, *FIGURES)
        rows.append((*first, phase, *figures, ratio, *moved, *(verdict if is_verified else ())))
    return rows


# -- cells --


def oracle(runs: RunSet, label: str) -> str:
    """Whether all repeats had the results that the oracle has, and whether it has any."""
    verified = [r for r in runs.judged(label) if r.is_right is not None]
    if not verified:
        return "-"
    if not all(r.is_right for r in verified):
        return "WRONG"
    return "equal" if all(r.has_outputs for r in verified) else "no rows"


def against_control(runs: RunSet, label: str, phase: str = "during") -> str:
    """Peak and mean latency to those of the control runs."""
    if label == CONTROL:
        return ""
    peak, mean = (runs.ratio(label, name, phase) for name in ("peak", "mean"))
    return "-" if math.isnan(peak) else f"{peak:.2f} / {mean:.2f}"


def moving(runs: RunSet, label: str) -> tuple[str, str, str]:
    """Seconds, megabytes and key groups of the move."""
    if label == CONTROL:
        return "", "", ""
    size = runs.median_of(label, lambda r: r.report.get("bytes", math.nan) / 1e6)
    groups = runs.median_of(label, lambda r: float(r.report.get("groups", math.nan)))
    return seconds_cell(runs.move_seconds(label)), number_cell(size), count_cell(groups)


def figure_cells(runs: RunSet, label: str, phase: str, *names: str) -> tuple[str, ...]:
    """Some of FIGURES."""
    values = {name: runs.figure(label, phase, name) for name in names}
    return tuple(
        count_cell(value) if name == "rows/s" else seconds_cell(value)
        for name, value in values.items()
    )
