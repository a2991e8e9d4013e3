"""One line for each result, and the JSON document of a whole benchmark."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import RunResult
from anabranch_bench.results.verdicts import MET, SideBySide


def summary_line(run: RunResult) -> str:
    """One finished run in one line."""
    load = run.load
    where = f"{run.part}, {load.about}, {load.rate:,.0f} rows/s" if run.part else load.name
    again = f", run {run.repeat + 1}" if run.repeat else ""
    head = f"{where}: {run.label}{again}"
    right = {None: "not verified", True: "results equal", False: "RESULTS WRONG"}[run.is_right]
    if run.is_right and not run.has_outputs:
        right = "nothing came out, as expected"
    if run.is_interrupted:
        return f"{head}: interrupted ({right})"
    if run.error:
        return f"{head}: FAILED: {run.error}"
    said = [right] if run.verifications else []
    said += [str(run.cores)] if str(run.cores) else []
    if run.move is not None:
        latency = run.phase("during")
        moved = f"during the move of {run.move.seconds:.1f} s"
        said.insert(0, f"peak {latency.peak:.2f} s, mean {latency.mean:.2f} s {moved}")
    return f"{head}: {', '.join(said) or 'done'}"


def side_by_side_line(found: SideBySide) -> str:
    """Medians and ranges of both sides, and whether the target was met."""

    def side(values: tuple[float, ...]) -> str:
        if not values:
            return "-"
        least, middle, most = min(values), statistics.median(values), max(values)
        return f"{_number(middle)} [{_number(least)} to {_number(most)}]"

    ratio = "" if found.ratio is None else f"  ratio {found.ratio:.2f}"
    note = f"  ({found.note})" if found.note else ""
    return (
        f"{found.part:<10} Anabranch {side(found.ours)}  Spark {side(found.spark)} "
        f"{found.unit}{ratio}\n{MET[found.passed]:<10} target: {found.target}{note}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def phase_lines(run: RunResult) -> list[str]:
    """Latency before, during and after each move of a run, a line each."""
    phases = run.phases()
    lines = [f"{'latency of rows':<26} {'p50':>9} {'p99':>9} {'peak':>9} {'rows/s':>10}"]
    for name, latency in phases:
        cells = " ".join(
            f"{value * 1000:>6,.0f} ms" if math.isfinite(value) else f"{'-':>9}"
            for value in (latency.p50, latency.p99, latency.peak)
        )
        rate = f"{latency.throughput:,.0f}" if math.isfinite(latency.throughput) else "-"
        lines.append(f"{name:<26} {cells} {rate:>10}")
    return lines if phases else []


def document(
    name: str,
    partial: bool,
    machine: dict[str, Any],
    settings: dict[str, Any],
    results: RunSet,
    **more: Any,
) -> dict[str, Any]:
    """Everything of a benchmark: settings, machine, what it has to say, runs with all batches."""
    return {
        "benchmark": name,
        "partial": partial,
        "machine": machine,
        "settings": settings,
        **more,
        "runs": results.to_json(),
    }


def run_document(run: RunResult, **settings: Any) -> dict[str, Any]:
    """One run by itself, which may have several moves."""
    moves = [
        {"name": m.name, "start": m.window.start, "end": m.window.end, "report": m.report}
        for m in run.moves
    ]
    told = run.to_json() | settings
    of_benchmarks = ("part", "repeat", "is_turn", "controls", "settle", "timeline")
    for name in (*of_benchmarks, "move_window", "stable_after", "report"):
        del told[name]
    points = run.timeline.points() if run.timeline else []
    return told | {
        "batches_columns": ["done", "slowest", "fastest", "rows"],
        "batches": [
            [round(p.done, 3), round(p.slowest, 3), round(p.fastest, 3), p.rows] for p in points
        ],
        "interrupted": run.is_interrupted,
        "output_rows": run.output_rows,
        # A list: a run that goes out, in and out again has phases of the same name.
        "latency": [{"phase": name} | latency.to_json() for name, latency in run.phases()],
        "reconfigurations": moves,
    }


def write_json(path: str | Path | None, told: dict[str, Any]) -> None:
    """To a file, if there is one: a line for each run, table and setting, so that files are small
    and a difference between two of them can be read."""
    if path:
        fields = (f"{json.dumps(name)}: {_lines(value)}" for name, value in told.items())
        text = "{\n" + ",\n".join(fields) + "\n}\n"
        Path(path).write_text(text, encoding="utf-8")


def _lines(value: Any) -> str:
    """JSON; of a list with something in it, a line for each element."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(_compact(element) for element in value) + "\n]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, default=str, separators=(",", ":"))
