"""Tables that the papers publish: Meces', DRRS', Megaphone's and Rhino's comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.loadtest.latency import median
from anabranch.model.stats import TIMES
from anabranch_bench.bench.evaluation_loads import WorkloadLoad
from anabranch_bench.bench.evaluation_plan import PLANS, Axis, EvaluationSettings
from anabranch_bench.bench.evaluation_results import PICKS, Result, Results
from anabranch_bench.bench.evaluation_tables import (
    Table,
    against_control,
    count_cell,
    figure_cells,
    median_of,
    moving,
    number_cell,
    seconds_cell,
)
from anabranch_bench.bench.rescale_runs import CONTROL

BREAKDOWN = ("waiting", "fetching", "processing", "writing", "rest")
"""Where the time of a batch goes."""


def comparison(title: str, results: Results, loads: Sequence[WorkloadLoad]) -> Table:
    """Peak, mean and duration of strategies, workload by workload."""
    rows = []
    for load in loads:
        for label in results.labels(load):
            figures = figure_cells(results, load, label, "during", "peak", "p99", "mean")
            seconds, *moved = moving(results, load, label)
            stable = median_of(results, load, label, lambda r: r.stable_after)
            ratio = against_control(results, load, label)
            rows.append((load.name, label, *figures, ratio, seconds, seconds_cell(stable), *moved))
    columns = ("workload", "strategy", "peak s", "p99 s", "mean s", "x control (peak / mean)")
    more = ("move s", "stable after s", "MB", "groups")
    note = "Stable: no batch above 1.1 times the peak before the move."
    return Table(title, columns + more, rows, note)


def breakdown(results: Results) -> Table:
    """Where the time of the batches went that ran during a move."""
    rows = []
    for load in results.loads():
        for label in results.labels(load):
            runs = [r for r in results.good(load, label) if r.report.get("batches")]
            if not runs:
                continue
            times = [batch_times(r) for r in runs]
            cells = [count_cell(median([t[name] for t in times])) for name in BREAKDOWN]
            worst = median([t["fetching, worst"] for t in times])
            count = median([float(t["batches"]) for t in times])
            rows.append((load.name, label, f"{count:.0f}", *cells, count_cell(worst)))
    columns = ("workload", "strategy", "batches", *(f"{n} ms" for n in BREAKDOWN))
    note = (
        "Per batch: waiting for other transactions, fetching state, processing rows, writing the "
        "changelog; the rest, from its first task on the state service to its commit, is Spark's "
        "and the exchange of rows. In each batch the slowest lane counts. Only batches that ended "
        "during the move are known: a strategy during whose move none ended is missing."
    )
    return Table("Time of a batch during the move", (*columns, "worst fetch ms"), rows, note)


def batch_times(result: Result) -> dict[str, float]:
    """Mean milliseconds of the batches that a report has; operators of a batch add up."""
    batches: dict[int, dict[str, float]] = {}
    for part in result.report["batches"]:
        batch = batches.setdefault(part["epoch"], {**dict.fromkeys(TIMES, 0.0), "total": 0.0})
        for name in TIMES:
            batch[name] += part[name]
        batch["total"] = max(batch["total"], 1000 * part["seconds"])
    count = len(batches)

    def mean(name: str) -> float:
        return sum(batch[name] for batch in batches.values()) / count

    known = sum(mean(name) for name in TIMES)
    return {
        "batches": count,
        "waiting": mean("wait_ms"),
        "fetching": mean("load_ms"),
        "processing": mean("apply_ms"),
        "writing": mean("write_ms"),
        "rest": max(0.0, mean("total") - known),
        "fetching, worst": max(batch["load_ms"] for batch in batches.values()),
    }


def sensitivity(axis: Axis, settings: EvaluationSettings, results: Results) -> Table:
    """Peak, mean and duration along one axis, a column for each strategy."""
    places = [(f, axis.load(settings.scale, settings.rate, f)) for f in axis.factors]
    there = [label for _, load in places for label in results.labels(load)]
    wanted = [label for label in settings.axis_strategies if label in there]
    rows = []
    for factor, load in places:
        if not results.good(load):
            continue
        cells = []
        for label in wanted:
            peak, mean = figure_cells(results, load, label, "during", "peak", "mean")
            seconds, *_ = moving(results, load, label)
            cells.append(" / ".join((peak, mean, seconds) if label != CONTROL else (peak, mean)))
        rows.append((axis.shown(settings.scale, settings.rate, factor), *cells))
    note = "Peak / mean latency during the move / duration of the move, in seconds."
    return Table(f"Sensitivity to {axis.name}", (axis.name, *wanted), rows, note)


def plans(results: Results) -> Table:
    """Megaphone's plans beside each other."""
    rows = []
    for load in results.loads():
        for label in [*PLANS, CONTROL]:
            runs = results.good(load, label)
            if not runs:
                continue
            steps = median([float(r.report.get("counters", {}).get("steps", "nan")) for r in runs])
            figures = figure_cells(results, load, label, "during", "peak", "p99", "mean")
            ratio = against_control(results, load, label)
            more = (count_cell(steps), *figures, ratio, *moving(results, load, label))
            rows.append((load.name, PLANS.get(label, label), *more))
    columns = ("workload", "plan", "steps", "peak s", "p99 s", "mean s", "x control (peak / mean)")
    return Table("Plans", (*columns, "move s", "MB", "groups"), rows)


def replication(results: Results) -> Table:
    """What replicas cost while nothing moves, and what they save when something does."""
    rows = []
    for load in results.loads():
        for label in results.labels(load):
            steady = figure_cells(results, load, label, "before", "p50", "p99", "mean")
            ratio = results.ratio(load, label, PICKS["mean"], "before")
            kept = [r.replication for r in results.good(load, label) if r.replication]
            copy = median([k.copy_bytes / 1e6 for k in kept])
            stream = median([k.steady_bytes / 1e6 / k.seconds for k in kept if k.seconds])
            peak, mean = figure_cells(results, load, label, "during", "peak", "mean")
            seconds, moved, _ = moving(results, load, label)
            costs = (seconds_cell(ratio), number_cell(copy), number_cell(stream))
            rows.append((load.name, label, *steady, *costs, peak, mean, seconds, moved))
    steady_columns = ("steady p50 s", "p99 s", "mean s", "mean x control", "replicas MB", "MB/s")
    columns = ("workload", "strategy", *steady_columns, "move peak s", "mean s", "move s", "MB")
    note = "Steady: before the move, with replicas kept up to date under rhino, with nothing else."
    return Table("Steady cost and handover", columns, rows, note)
