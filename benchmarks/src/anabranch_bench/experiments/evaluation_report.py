"""The evaluation's report: which tables and pictures each part has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.loadtest.loaded_query import Say
from anabranch_bench.experiments.evaluation import Evaluation
from anabranch_bench.experiments.evaluation_plan import (
    PLANS,
    EvaluationSettings,
    PlannedRun,
    plan,
    runs_of,
)
from anabranch_bench.reports.comparison_tables import (
    breakdown,
    comparison,
    plans,
    replication,
    sensitivity,
)
from anabranch_bench.reports.pictures import draw_batch_times, draw_overlay, draw_sensitivity
from anabranch_bench.reports.report import document
from anabranch_bench.reports.run_tables import failures, parameters, seamless, strategies
from anabranch_bench.reports.tables import Table
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.run_result import RunResult
from anabranch_bench.results.stored_runs import runs_from_json
from anabranch_bench.runs.loaded_run import WARM_UP_BATCH_ROWS_MIN

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


PLAN_NAMES = {label: f"megaphone {plan}" for label, plan in PLANS.items() if label != "megaphone"}
"""In pictures."""


def tables_of(part: str, settings: EvaluationSettings, results: RunSet) -> list[Table]:
    """A part's tables; those without a row are left out."""
    view = _made_for(part, settings, results)
    made: list[Table] = []
    match part:
        case "workloads":
            # What other parts have run on the same workload belongs there too.
            each = [strategies(load.title, results.at(load)) for load in view.loads()]
            made = [seamless(view), *each]
        case "meces":
            made = [comparison("During the move", view), breakdown(view)]
        case "drrs":
            usual = [settings.load(name) for name in settings.drrs_workloads]
            made = [comparison("During the move", view.where(lambda r: r.load in usual))]
            for name, places in _axes(settings).items():
                made.append(sensitivity(name, places, settings.axis_strategies, view))
        case "megaphone":
            made = [plans(PLANS, view)]
        case "rhino":
            made = [replication(view)]
    return [table for table in made if table.rows]


def draw(part: str, settings: EvaluationSettings, results: RunSet, folder: Path) -> list[Path]:
    """A part's pictures, as far as there is something to show; the files."""
    view = _made_for(part, settings, results)

    def path(name: str) -> Path:
        return folder / f"{name.replace(' ', '-')}.png"

    def overlays(prefix: str, shown: RunSet) -> list[Path]:
        made = []
        for load in view.loads():
            title = f"{load.name}, {load.rate:,.0f} rows/s ({load.about})"
            place = path(f"{prefix}{load.name}")
            made += draw_overlay(title, shown.at(load), PLAN_NAMES, place)
        return made

    match part:
        case "workloads":
            return overlays("", results)
        case "meces":
            times = draw_batch_times(view, path("meces time of a batch"))
            return [*overlays("meces ", view), *times]
        case "drrs":
            place = path("drrs sensitivity")
            return draw_sensitivity(_axes(settings), settings.axis_strategies, view, place)
        case _:
            return overlays(f"{part} ", view)


def _made_for(part: str, settings: EvaluationSettings, results: RunSet) -> RunSet:
    keys = {planned.key for planned in runs_of(part, settings)}
    return results.where(lambda r: (r.load, r.label, r.repeat) in keys)


def _axes(settings: EvaluationSettings) -> dict[str, dict[str, RunLoad]]:
    found = {axis.name: axis.places(settings.scale, settings.rate) for axis in settings.axes}
    return {name: dict(places) for name, places in found.items()}


def markdown(evaluation: Evaluation, partial: bool, pictures: dict[str, list[str]]) -> str:
    """The whole report; `pictures` are the paths of each part's figures."""
    settings, results = evaluation.settings, evaluation.results
    pieces = ["# Evaluation", _preface(evaluation, partial)]
    for table in (_parameters(results), failures(results)):
        pieces += [table.markdown()] if table.rows else []
    for part in settings.parts:
        tables = tables_of(part, settings, results)
        if tables:
            shown = [f"![{part}]({path})" for path in pictures.get(part, ())]
            scaled = [f"{PUBLISHED[part]} Here scaled down, as above."] if part in PUBLISHED else []
            pieces += [f"## {TITLES[part]}", *scaled, *(t.markdown() for t in tables), *shown]
    return "\n\n".join(pieces) + "\n"


def _preface(evaluation: Evaluation, partial: bool) -> str:
    settings, known = evaluation.settings, evaluation.machine
    scale = settings.scale
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
        f"{known['pyspark']}, Anabranch {known['anabranch']}; {known['made']}, load before it "
        f"{known['load_average']:g}."
    )


def _parameters(results: RunSet) -> Table:
    return parameters(results, WARM_UP_BATCH_ROWS_MIN)


def to_json(evaluation: Evaluation, partial: bool) -> dict[str, Any]:
    """Everything: settings, machine, tables, runs with all batches."""
    settings, results = evaluation.settings, evaluation.results
    return document(
        "evaluation",
        partial,
        evaluation.machine,
        asdict(settings),
        results,
        parameters=_parameters(results).to_json(),
        failures=failures(results).to_json(),
        parts={
            part: [t.to_json() for t in tables_of(part, settings, results)]
            for part in settings.parts
        },
    )


def from_json(told: Mapping[str, Any]) -> Evaluation:
    """An evaluation that was made before, with all its runs; tables are made anew."""
    settings = EvaluationSettings.from_json(told["settings"])
    results = runs_from_json(told["runs"], [planned.load for planned in plan(settings)])
    return Evaluation(
        settings, _no_more, results=results, interrupted=told["partial"], machine=told["machine"]
    )


def _no_more(planned: PlannedRun, seconds: float, say: Say) -> RunResult:
    raise AssertionError(f"{planned.name}: a stored evaluation makes no runs")
