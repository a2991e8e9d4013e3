"""Tables that the papers publish: Meces', DRRS', Megaphone's and Rhino's comparisons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anabranch.model.stats import TIMES
from anabranch_bench.reports.run_tables import MEDIANS, against_control, figure_cells, moving
from anabranch_bench.reports.tables import Table, count_cell, number_cell, seconds_cell
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.medians import median_value
from anabranch_bench.results.run_result import RunResult

BREAKDOWN = ("waiting", "fetching", "processing", "writing", "rest")
"""Where the time of a batch goes."""
WORST_FETCH = "fetching, worst"


def comparison(title: str, results: RunSet) -> Table:
    """Peak, mean and duration of strategies, workload by workload."""
    rows = []
    for load, runs, label in results.each():
        figures = figure_cells(runs, label, "during", "peak", "p99", "mean")
        seconds, *moved = moving(runs, label)
        stable = seconds_cell(runs.median_of(label, lambda r: r.stable_after))
        ratio = against_control(runs, label)
        count = f"{len(runs.judged(label))}"
        rows.append((load.name, label, count, *figures, ratio, seconds, stable, *moved))
    columns = (
        "workload",
        "strategy",
        "runs",
        "peak s",
        "p99 s",
        "mean s",
        "x control (peak / mean)",
    )
    more = ("move s", "stable after s", "MB", "groups")
    note = f"{MEDIANS} Stable: no batch above 1.1 times the peak before the move."
    return Table(title, columns + more, rows, note)


def breakdown(results: RunSet) -> Table:
    """Where the time of the batches went that ran during a move."""
    rows = []
    for (load, label), times in typical_batches(results).items():
        cells = [count_cell(times[name]) for name in (*BREAKDOWN, WORST_FETCH)]
        rows.append((load.name, label, f"{times['batches']:.0f}", *cells))
    columns = ("workload", "strategy", "batches", *(f"{n} ms" for n in BREAKDOWN))
    note = (
        "Per batch: waiting for other transactions, fetching state, processing rows, writing the "
        "changelog; the rest, from its first task on the state service to its commit, is Spark's "
        "and the exchange of rows. In each batch the slowest lane counts. Only batches that ended "
        "during the move are known: a strategy during whose move none ended is missing."
    )
    return Table("Time of a batch during the move", (*columns, "worst fetch ms"), rows, note)


def typical_batches(results: RunSet) -> dict[tuple[RunLoad, str], dict[str, float]]:
    """`batch_times` of each strategy under each load, medians over repeats of each of them."""
    found = {}
    for load, runs, label in results.each():
        times = [batch_times(r) for r in runs.judged(label) if r.report.get("batches")]
        if times:
            found[load, label] = {name: median_value(t[name] for t in times) for name in times[0]}
    return found


def batch_times(run: RunResult) -> dict[str, float]:
    """Mean milliseconds of the batches that a report has; operators of a batch add up."""
    batches: dict[int, dict[str, float]] = {}
    for part in run.report["batches"]:
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
        WORST_FETCH: max(batch["load_ms"] for batch in batches.values()),
    }


def sensitivity(
    name: str, places: Mapping[str, RunLoad], labels: Sequence[str], results: RunSet
) -> Table:
    """Peak, mean and duration along one axis (its places by their values), by strategy."""
    there = {label for load in places.values() for label in results.at(load).labels()}
    wanted = [label for label in labels if label in there]
    rows = []
    for value, load in places.items():
        runs = results.at(load)
        if not runs.labels():
            continue
        cells = []
        for label in wanted:
            peak, mean = figure_cells(runs, label, "during", "peak", "mean")
            seconds, *_ = moving(runs, label)
            cells.append(" / ".join((peak, mean, seconds) if label != CONTROL else (peak, mean)))
        rows.append((value, *cells))
    note = f"Peak / mean latency during the move / duration of the move, in seconds. {MEDIANS}"
    return Table(f"Sensitivity to {name}", (name, *wanted), rows, note)


def plans(names: Mapping[str, str], results: RunSet) -> Table:
    """Plans of one strategy beside each other, by the label of the case that has them."""
    rows = []
    for load in results.loads():
        runs = results.at(load)
        for label in (label for label in (*names, CONTROL) if runs.judged(label)):
            steps = runs.median_of(
                label, lambda r: float(r.report.get("counters", {}).get("steps", "nan"))
            )
            figures = figure_cells(runs, label, "during", "peak", "p99", "mean")
            more = (count_cell(steps), *figures, against_control(runs, label))
            rows.append((load.name, names.get(label, label), *more, *moving(runs, label)))
    columns = ("workload", "plan", "steps", "peak s", "p99 s", "mean s", "x control (peak / mean)")
    return Table("Plans", (*columns, "move s", "MB", "groups"), rows, MEDIANS)


def replication(results: RunSet) -> Table:
    """What replicas cost while nothing moves, and what they save when something does."""
    rows = []
    for load, runs, label in results.each():
        steady = figure_cells(runs, label, "before", "p50", "p99", "mean")
        ratio = runs.ratio(label, "mean", "before")
        kept = [r.replication for r in runs.judged(label) if r.replication]
        copy = median_value(k.copy_bytes / 1e6 for k in kept)
        stream = median_value(k.steady_bytes / 1e6 / k.seconds for k in kept if k.seconds)
        peak, mean = figure_cells(runs, label, "during", "peak", "mean")
        seconds, moved, _ = moving(runs, label)
        costs = (seconds_cell(ratio), number_cell(copy), number_cell(stream))
        rows.append((load.name, label, *steady, *costs, peak, mean, seconds, moved))
    steady_columns = ("steady p50 s", "p99 s", "mean s", "mean x control", "replicas MB", "MB/s")
    columns = ("workload", "strategy", *steady_columns, "move peak s", "mean s", "move s", "MB")
    note = (
        f"{MEDIANS} Steady: before the move, with replicas kept up to date under rhino, with "
        "nothing else."
    )
    return Table("Steady cost and handover", columns, rows, note)
