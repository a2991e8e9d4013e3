"""Pictures of runs: latency over time, where the time of a batch goes, what figures depend on.

Curves are of all runs, the median one above the others; every number is the one that tables have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anabranch_bench.reports.axes import (
    COLOURS,
    DUE,
    colour,
    save,
    scale,
    shade_moves,
    span,
    subplots,
)
from anabranch_bench.reports.comparison_tables import (
    BREAKDOWN,
    batch_times,
    typical_batches,
)
from anabranch_bench.reports.curves import caption, count_text, curves_of, draw_curves, peak_text
from anabranch_bench.results.cases import CONTROL, NATIVE
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.medians import MEDIAN_RULE
from anabranch_bench.results.run_result import RunResult

COLUMNS_MAX = 3
PANEL_MARGIN_SECONDS = 15.0
"""Shown before the moves and after the longest one, at least."""
OVERLAY_MARGIN_SECONDS = 6.0
OTHERS_A_PANEL = 4
"""Curves in a panel besides those of `live` and of the control run."""
TIME_COLOURS = ("#d62728", "#ff7f0e", "#2ca02c", "#9467bd", "0.8")


# -- a panel for each strategy --


def draw_panels(results: RunSet, path: Path) -> bool:
    """Each strategy with its control runs behind it; False if there is nothing to draw."""
    shown = shown_panels(results)
    if not shown:
        return False
    columns = min(COLUMNS_MAX, math.ceil(math.sqrt(len(shown))))
    rows = -(-len(shown) // columns)
    size = (5 * columns, 3.1 * rows)
    figure, grid = subplots(rows, columns, figsize=size, squeeze=False, sharey=True)
    panels = list(grid.flat)
    for axes, runs in zip(panels, shown, strict=False):
        _panel(axes, runs, results)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    scale(panels[: len(shown)])
    for line in grid:
        line[0].set_ylabel("latency (s)")
    figure.suptitle("Latency of rows by the time they were due; shaded: the moves", fontsize=11)
    counts = [count_text(_like(results, r[0]), r[0].label, _name(r)) for r in shown]
    save(figure, path, caption(counts) + " Grey: their control runs.")
    return True


def shown_panels(results: RunSet) -> list[list[RunResult]]:
    """The runs of each strategy and size of state, repeats together."""
    repeats: dict[tuple[str, str, RunLoad], list[RunResult]] = {}
    for label in results.labels():
        for run in (r for r in results.judged(label) if r.move):
            repeats.setdefault((run.part, label, run.load), []).append(run)
    # One size of the series is measured with the strategies.
    return [
        runs
        for (part, label, load), runs in repeats.items()
        if part != "series" or ("strategies", label, load) not in repeats
    ]


def _like(results: RunSet, run: RunResult) -> RunSet:
    """Runs of its part under its load, also those that failed; and those beside it."""
    return results.of_part(run.part).at(run.load).in_turns(run.is_turn)


def _name(runs: list[RunResult]) -> str:
    first = runs[0]
    name = "Spark: stop, repartition, restart" if first.label == NATIVE else first.label
    return name if first.part == "strategies" else f"{name} ({first.load.about})"


def _panel(axes: Any, runs: list[RunResult], results: RunSet) -> None:
    first = runs[0]
    beside = [c for c in results.tried(CONTROL) if any(c in results.controls_of(r) for r in runs)]
    here = RunSet([*runs, *beside])
    shade_moves(axes, runs)
    draw_curves(axes, curves_of(here, CONTROL), 1.6, alpha=0.7)
    draw_curves(axes, curves_of(here, first.label), 1.4)
    axes.set_xlim(*span(runs, PANEL_MARGIN_SECONDS))
    axes.set_title(f"{_name(runs)}\n{peak_text(here, first.label)}", fontsize=9)
    axes.set_xlabel(DUE, fontsize=8)
    axes.legend(fontsize=7, loc="upper right")


# -- strategies over one another --


def draw_overlay(title: str, runs: RunSet, names: Mapping[str, str], path: Path) -> list[Path]:
    """Latency over time of all strategies; below, how long each move took and its peak.

    `names` has what labels are called in a picture, where that is not the label.
    """
    moved = [label for label in runs.labels() if any(r.move for r in runs.judged(label))]
    if not moved:
        return []
    panels = panels_of(moved)
    lines = 1 + max(len(panel) for panel in panels)
    figure, grid = subplots(
        2,
        len(panels),
        figsize=(max(8.0, 5.6 * len(panels)), 3.6 + 0.21 * lines),
        squeeze=False,
        sharex="col",
        height_ratios=(2.9, 0.21 * lines),
    )
    for (top, bottom), panel in zip(grid.T, panels, strict=True):
        shown = [r for label in panel for r in runs.judged(label) if r.move]
        top.sharey(grid[0][0])
        _curves_over_control(top, runs, panel, min(r.move.start for r in shown if r.move))
        _bars(bottom, runs, panel, names)
        top.set_xlim(*span(shown, OVERLAY_MARGIN_SECONDS))
    scale(grid[0])
    grid[0][0].set_ylabel("latency (s)")
    figure.suptitle(title, fontsize=11)
    counts = [count_text(runs, label, names.get(label, label)) for label in runs.labels()]
    return [save(figure, path, caption(counts))]


def panels_of(labels: Sequence[str]) -> list[list[str]]:
    """Few curves in each panel; `live` in all of them."""
    first = [label for label in labels if label == "live"]
    others = [label for label in labels if label != "live"]
    cuts = range(0, max(1, len(others)), OTHERS_A_PANEL)
    return [first + others[at : at + OTHERS_A_PANEL] for at in cuts]


def _curves_over_control(axes: Any, runs: RunSet, labels: Sequence[str], start: float) -> None:
    draw_curves(axes, curves_of(runs, CONTROL), 3.0, alpha=0.6, zorder=1)
    for label in labels:
        width, order = (2.4, 4) if label == "live" else (1.7, 3)
        draw_curves(axes, curves_of(runs, label), width, zorder=order)
    axes.axvline(start, color="black", linewidth=0.8, linestyle=":", zorder=2)
    axes.annotate(" rescale", (start, 1), xycoords=("data", "axes fraction"), fontsize=8, va="top")


def _bars(axes: Any, runs: RunSet, labels: Sequence[str], names: Mapping[str, str]) -> None:
    """From the start to the end of each move; the colours' legend at the same time."""
    shown = [*labels, *(label for label in (CONTROL,) if runs.phases(label, "during"))]
    for place, label in enumerate(shown):
        peak, middle = peak_text(runs, label), runs.median_run(label)
        window = runs.window(middle) if middle else None
        start, seconds = window.start if window else math.nan, runs.move_seconds(label)
        if label == CONTROL:
            text, end = f"  no move, {peak} meanwhile", start
        else:
            text, end = f"  {seconds:.1f} s, {peak}", start + seconds
            hatch = "" if label in COLOURS else "//"
            axes.barh(-place, seconds, 0.7, start, color=colour(label), hatch=hatch)
        axes.text(end, -place, text, fontsize=8, va="center", clip_on=True)
    ticks = [-place for place in range(len(shown))]
    axes.set_yticks(ticks, [names.get(label, label) for label in shown], fontsize=8)
    for tick, label in zip(axes.get_yticklabels(), shown, strict=True):
        tick.set_color(colour(label))
        tick.set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(0.6 - len(shown), 0.6)
    axes.set_xlabel(f"{DUE}; bars: the move")


# -- figures --


def draw_batch_times(results: RunSet, path: Path) -> list[Path]:
    """Where the time of a batch went during the move, a bar for each strategy."""
    typical = typical_batches(results)
    bars = {f"{load.name}: {label}": times for (load, label), times in typical.items()}
    each = [batch_totals(results.at(load), label) for load, label in typical]
    if not bars:
        return []
    figure, axes = subplots(figsize=(8, 1.2 + 0.32 * len(bars)))
    places = [-n for n in range(len(bars))]
    lefts = [0.0] * len(bars)
    for kind, shade in zip(BREAKDOWN, TIME_COLOURS, strict=True):
        widths = [times[kind] for times in bars.values()]
        axes.barh(places, widths, 0.7, lefts, color=shade, label=kind)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    for place, totals in zip(places, each, strict=True):
        axes.plot(totals, [place] * len(totals), "|", color="black", markersize=9)
    axes.set_yticks(places, list(bars), fontsize=8)
    axes.set_xlabel("ms of a batch during the move (mean); rest: Spark and the exchange of rows")
    axes.legend(fontsize=8, ncols=len(BREAKDOWN), loc="lower center", bbox_to_anchor=(0.4, 1.0))
    axes.grid(alpha=0.3, axis="x")
    counts = ", ".join(f"{name} {len(runs)}" for name, runs in zip(bars, each, strict=True))
    told = "Bars: the median of each kind of time, as in the table. Marks: whole batches, each run."
    return [save(figure, path, f"{told}\nRuns: {counts}.")]


def batch_totals(results: RunSet, label: str) -> list[float]:
    """Milliseconds of a batch during the move, of each run that tells them."""
    runs = [r for r in results.judged(label) if r.report.get("batches")]
    return [sum(batch_times(r)[kind] for kind in BREAKDOWN) for r in runs]


def draw_sensitivity(
    places: Mapping[str, Mapping[str, RunLoad]], labels: Sequence[str], results: RunSet, path: Path
) -> list[Path]:
    """Peak and duration along each axis: by its name, its places by their values."""
    if not any(results.at(load).labels() for axis in places.values() for load in axis.values()):
        return []
    size = (4 * len(places), 5.4)
    figure, grid = subplots(2, len(places), figsize=size, squeeze=False, sharey="row", sharex="col")
    for (top, bottom), (name, axis) in zip(grid.T, places.items(), strict=True):
        for label in labels:
            at = [results.at(load) for load in axis.values()]
            peaks = [runs.figure(label, "during", "peak") for runs in at]
            style = {"color": colour(label), "marker": "o", "label": label}
            top.plot(range(len(at)), peaks, **style)
            _dots(top, label, [[f.peak for f in runs.phases(label, "during")] for runs in at])
            if label != CONTROL:
                bottom.plot(range(len(at)), [runs.move_seconds(label) for runs in at], **style)
                _dots(bottom, label, [_move_seconds(runs, label) for runs in at])
        bottom.set_xticks(range(len(axis)), list(axis), fontsize=8)
        bottom.set_xlabel(name)
        for axes in (top, bottom):
            axes.margins(x=0.15)
            axes.grid(alpha=0.3)
    for line in grid:  # only now: a limit ends the scaling to what comes later
        line[0].set_ylim(bottom=0)
    grid[0][0].set_ylabel("peak latency (s)")
    grid[1][0].set_ylabel("move (s)")
    grid[0][0].legend(fontsize=8)
    figure.suptitle("key-count: one parameter changed at a time", fontsize=11)
    loads = [load for axis in places.values() for load in axis.values()]
    counts = {len(results.at(load).judged(label)) for load in loads for label in labels} - {0}
    runs = " to ".join(f"{count}" for count in sorted({min(counts), max(counts)}))
    told = f"Lines: {MEDIAN_RULE}, as in the table. Small dots: each run.\nRuns of each: {runs}."
    return [save(figure, path, told)]


def _dots(axes: Any, label: str, values: Sequence[Sequence[float]]) -> None:
    """Every run at each place of an axis."""
    dots = [(place, value) for place, found in enumerate(values) for value in found]
    if dots:
        style = {"edgecolors": "white", "linewidths": 0.4, "zorder": 5}
        axes.scatter(*zip(*dots, strict=True), s=16, color=colour(label), **style)


def _move_seconds(runs: RunSet, label: str) -> list[float]:
    return [run.move.seconds for run in runs.judged(label) if run.move]
