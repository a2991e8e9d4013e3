"""The evaluation's report: Markdown for people, JSON for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from anabranch_bench.bench.evaluation import Evaluation
from anabranch_bench.bench.evaluation_comparisons import (
    breakdown,
    comparison,
    plans,
    replication,
    sensitivity,
)
from anabranch_bench.bench.evaluation_plan import EvaluationSettings, specs_of
from anabranch_bench.bench.evaluation_results import Result, Results
from anabranch_bench.bench.evaluation_tables import (
    Table,
    failures,
    parameters,
    seamlessness,
    strategies,
)
from anabranch_bench.bench.machine import machine

TITLES = {
    "workloads": "Every workload, every strategy",
    "meces": "Meces: latency curves and the time of a batch",
    "drrs": "DRRS: peak, mean, duration and what they depend on",
    "megaphone": "Megaphone: all at once, one by one, in batches",
    "rhino": "Rhino: the price of replicas",
}
PUBLISHED = {
    "meces": "Published with 3 -> 5 instances, 128 key groups, 10 million keys, 20,000 records/s.",
    "drrs": (
        "Published with 8 -> 12 instances, 128 key groups, NEXMark Q7 (10,000 events/s) and Q8 "
        "(1,000 events/s); sensitivity with 25 -> 30 instances, 256 key groups, 1 to 40 GB, 1,000 "
        "to 15,000 records/s, Zipf exponents 0 to 2."
    ),
    "megaphone": (
        "Published with 16 workers on 4 hosts, 4 million records/s, 4,096 bins, a quarter of the "
        "state moved."
    ),
    "rhino": "Published with up to terabytes of state on a cluster.",
}
"""Parameters of the papers; ours are scaled to the machine."""


def tables_of(part: str, settings: EvaluationSettings, results: Results) -> list[Table]:
    """A part's tables; those without a row are left out."""
    view = results.of(specs_of(part, settings))
    made: list[Table] = []
    match part:
        case "workloads":
            # What other parts have run on the same workload belongs there too.
            made = [seamlessness(view), *(strategies(load, results) for load in view.loads())]
        case "meces":
            made = [comparison("During the move", view, view.loads()), breakdown(view)]
        case "drrs":
            usual = [settings.load(name) for name in settings.drrs_workloads]
            loads = [load for load in view.loads() if load in usual]
            along = [sensitivity(axis, settings, view) for axis in settings.axes]
            made = [comparison("During the move", view, loads), *along]
        case "megaphone":
            made = [plans(view)]
        case "rhino":
            made = [replication(view)]
    return [table for table in made if table.rows]


def summary_line(result: Result) -> str:
    """One finished run in one line."""
    head = f"{result.load.name}: {result.label}"
    right = {None: "not verified", True: "results equal", False: "RESULTS WRONG"}[result.is_right]
    if result.is_right and not result.has_results:
        right = "nothing came out, as expected"
    if result.is_interrupted:
        return f"{head}: interrupted ({right})"
    if result.error:
        return f"{head}: FAILED: {result.error}"
    if result.move is None:
        return f"{head}: {right}"
    latency = result.phase("during")
    return (
        f"{head}: peak {latency.peak:.2f} s, mean {latency.mean:.2f} s during the move of "
        f"{result.move.seconds:.1f} s, {right}"
    )


def markdown(evaluation: Evaluation, partial: bool, pictures: dict[str, list[str]]) -> str:
    """The whole report; `pictures` are the paths of each part's figures."""
    settings, results = evaluation.settings, evaluation.results
    pieces = ["# Evaluation", _preface(settings, partial)]
    for table in (parameters(results), failures(results)):
        pieces += [table.markdown()] if table.rows else []
    for part in settings.parts:
        tables = tables_of(part, settings, results)
        if tables:
            shown = [f"![{part}]({path})" for path in pictures.get(part, ())]
            scaled = [f"{PUBLISHED[part]} Here scaled down, as above."] if part in PUBLISHED else []
            pieces += [f"## {TITLES[part]}", *scaled, *(t.markdown() for t in tables), *shown]
    return "\n\n".join(pieces) + "\n"


def _preface(settings: EvaluationSettings, partial: bool) -> str:
    known, scale = machine(), settings.scale
    warmed = "each" if settings.warm_each else "the first"
    interrupted = "Interrupted: these are the results so far. " if partial else ""
    return (
        f"{interrupted}{settings.workers} -> {settings.target} workers in the middle of an "
        f"open-loop load: {settings.settle:g} s that do not count, {settings.steady:g} s before "
        f"the move, {settings.steady:g} s after it; {scale.key_groups} key groups; "
        f"runs of each: {settings.repeat}, after one of {warmed} workload that does not count. "
        "Latency is the time from when a row was due to the "
        "commit of its batch. Every run was compared with a plain computation over the same "
        "events. "
        f"Machine: {known['cores']} cores, {known['system']}, Python {known['python']}, PySpark "
        f"{known['pyspark']}, Anabranch {known['anabranch']}."
    )


def to_json(evaluation: Evaluation, partial: bool) -> dict[str, Any]:
    """Everything: settings, machine, tables, runs with all batches."""
    settings, results = evaluation.settings, evaluation.results
    return {
        "benchmark": "evaluation",
        "partial": partial,
        "machine": machine(),
        "settings": asdict(settings),
        "parameters": parameters(results).to_json(),
        "failures": failures(results).to_json(),
        "parts": {
            part: [t.to_json() for t in tables_of(part, settings, results)]
            for part in settings.parts
        },
        "runs": [result.to_json() for result in results.runs],
    }
