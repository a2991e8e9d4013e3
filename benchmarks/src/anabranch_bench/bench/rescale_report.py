"""Results of the rescale benchmark for people (tables) and for machines (JSON)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from anabranch.loadtest.latency import Latency, TimeWindow, median
from anabranch_bench.bench.comparison import Pick, control_during, judged, left_out, ratios
from anabranch_bench.bench.machine import machine
from anabranch_bench.bench.rescale_runs import CONTROL, Run

if TYPE_CHECKING:
    from anabranch_bench.bench.rescale import RescaleBench

HEADER = (
    f"{'strategy':<18} {'window':<7} {'peak s':>8} {'p99 s':>8} {'mean s':>8} {'p50 s':>8} "
    f"{'rows/s':>9}  {'x control':<15} {'move s':>7} {'MB':>7} {'groups':>6}"
)


def summary_line(run: Run) -> str:
    """One finished run in one line."""
    where = f"{run.part}, {run.state_bytes / 1e9:.2g} GB: {run.label}, run {run.repeat + 1}"
    if run.error:
        return f"{where}: FAILED: {run.error}"
    cores = f"; {run.cores}" if str(run.cores) else ""
    latency = run.during()
    if latency is None or run.move is None:
        return f"{where}: done{cores}"
    return (
        f"{where}: peak {latency.peak:.2f} s, mean {latency.mean:.2f} s during the move "
        f"of {run.move.seconds:.1f} s, {run.rate:,.0f} rows/s{cores}"
    )


def table(runs: Sequence[Run]) -> str:
    """Three lines for each strategy: before, during and after; medians over repeats."""
    lines: list[str] = []
    parts = list(dict.fromkeys((r.part, r.state_bytes) for r in runs))
    for part, size in parts:
        some = [r for r in runs if (r.part, r.state_bytes) == (part, size)]
        if part == "series" and len(parts) > 1 and _is_copy(size, runs):
            continue
        rates = sorted({f"{r.rate:,.0f}" for r in some}, key=len)
        title = f"{part}: {size / 1e9:.2g} GB, {some[0].keys:,} keys, {' and '.join(rates)} rows/s"
        lines += ["", title, HEADER]
        for label, is_turn in dict.fromkeys((r.label, r.is_turn) for r in some):
            lines += _strategy_lines(label, [r for r in some if r.is_turn == is_turn])
    return "\n".join(lines)


def _is_copy(size: int, runs: Sequence[Run]) -> bool:
    return any(r.part == "strategies" and r.state_bytes == size for r in runs)


def _strategy_lines(label: str, runs: Sequence[Run]) -> list[str]:
    mine = [r for r in runs if r.label == label]
    good = [r for r in judged(runs, label) if r.timeline]
    lines = [f"{label:<18} FAILED: {r.error}" for r in mine if r.error]
    if alone := left_out(runs, label):
        lines.append(f"{label:<18} {alone}")
    if not good:
        return lines
    windows = [_move_window(r, runs) for r in good]
    pairs = [(r, w) for r, w in zip(good, windows, strict=True) if w]
    for name, figures in (
        ("before", [r.before(_steady_window(r, runs)) for r, _ in pairs]),
        ("during", [r.during(w) for r, w in pairs]),
        ("after", [r.after(w) for r, w in pairs]),
    ):
        known = [f for f in figures if f is not None and f.rows]
        if known:
            first = label if name == "before" else ""
            tail = _move_columns(label, good, runs) if name == "during" else ""
            if name != "during" and label != CONTROL:
                tail = _against(runs, label, name)
            lines.append(f"{first:<18} {name:<7} {_numbers(known)}  {tail}".rstrip())
    peaks = [f.peak for r, w in pairs if (f := r.during(w)) and f.rows]
    if len(peaks) > 1:
        lines.append(f"{'':<18} {'':<7} peaks during: {min(peaks):.2f} to {max(peaks):.2f} s")
    return lines


def _numbers(known: Sequence[Latency]) -> str:
    def middle(pick: Callable[[Latency], float]) -> float:
        return median([pick(f) for f in known])

    return (
        f"{middle(lambda f: f.peak):>8.2f} {middle(lambda f: f.p99):>8.2f} "
        f"{middle(lambda f: f.mean):>8.2f} {middle(lambda f: f.p50):>8.2f} "
        f"{_or_dash(middle(lambda f: f.throughput), 9)}"
    )


def _move_columns(label: str, good: Sequence[Run], runs: Sequence[Run]) -> str:
    if label == CONTROL:
        return "(in the windows of " + ("live)" if good[0].is_turn else "others)")
    against = _against(runs, label)
    seconds = median([r.move.seconds for r in good if r.move])
    moved = median([float(r.report.get("bytes", math.nan)) for r in good]) / 1e6
    groups = median([float(r.report.get("groups", math.nan)) for r in good])
    return f"{against:<15} {seconds:>7.1f} {_or_dash(moved, 7)} {_or_dash(groups, 6)}"


def _against(runs: Sequence[Run], label: str, when: str = "during") -> str:
    """Peak and mean to the control runs' in the same window; unknown where none is as long."""

    def middle(pick: Pick) -> float:
        return median(ratios(runs, label, pick, when))

    peak, mean = middle(lambda f: f.peak), middle(lambda f: f.mean)
    return "-" if math.isnan(peak) else f"{peak:.2f} / {mean:.2f}"


def _or_dash(value: float, width: int) -> str:
    return f"{'-':>{width}}" if math.isnan(value) else f"{value:>{width},.0f}"


def _partner(run: Run, runs: Sequence[Run]) -> Run | None:
    """For a control run: the run whose windows it is shown in."""
    what = (run.part, run.state_bytes, run.rate, run.is_turn)
    same = [r for r in runs if r.move and (r.part, r.state_bytes, r.rate, r.is_turn) == what]
    same.sort(key=lambda r: abs(r.repeat - run.repeat))
    return same[0] if same else None


def _move_window(run: Run, runs: Sequence[Run]) -> TimeWindow | None:
    if run.label != CONTROL:
        return run.move
    partner = _partner(run, runs)
    return partner.move if partner else None


def _steady_window(run: Run, runs: Sequence[Run]) -> TimeWindow | None:
    if run.label != CONTROL:
        return run.steady
    partner = _partner(run, runs)
    return partner.steady if partner else None


def to_json(bench: RescaleBench, partial: bool) -> dict[str, Any]:
    """Everything: settings, machine, runs with all batches, verdicts."""
    settings = asdict(bench.settings)
    return {
        "benchmark": "rescale",
        "partial": partial,
        "machine": machine(),
        "settings": settings,
        "capacity_rows_per_second": bench.capacity,
        "notes": bench.notes,
        "verdicts": [verdict.to_json() for verdict in bench.verdicts()],
        "runs": [_run_json(run, bench.runs) for run in bench.runs],
        "move": None if bench.move is None else {**asdict(bench.move), "rates": bench.move.rates},
        "steady": None if bench.steady is None else asdict(bench.steady),
    }


def _run_json(run: Run, runs: Sequence[Run]) -> dict[str, Any]:
    window = _move_window(run, runs)
    shown = {
        "before": run.before(_steady_window(run, runs)),
        "during": run.during(window),
        "after": run.after(window),
        "control_during": control_during(run, runs),
    }
    return {
        "part": run.part,
        "strategy": run.label,
        "repeat": run.repeat,
        "is_turn": run.is_turn,
        "rate": run.rate,
        "keys": run.keys,
        "payload_bytes": run.payload_bytes,
        "error": run.error or None,
        "move_window": asdict(run.move) if run.move else None,
        "latency": {name: f.to_json() if f else None for name, f in shown.items()},
        "report": run.report,
        "peer_connections": run.peers,
        "peer_samples": run.peer_samples,
        "cores": asdict(run.cores) if str(run.cores) else None,
        "batches_columns": ["done", "slowest", "fastest", "rows"],
        "batches": [
            [round(p.done, 3), round(p.slowest, 3), round(p.fastest, 3), p.rows]
            for p in (run.timeline.points() if run.timeline else [])
        ],
    }
