"""Pictures of the evaluation: strategies over one another, the control run behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.loadtest.latency import TimeWindow
from anabranch.loadtest.timeline_plot import check_matplotlib
from anabranch_bench.bench.evaluation_comparisons import BREAKDOWN, batch_times
from anabranch_bench.bench.evaluation_loads import WorkloadLoad
from anabranch_bench.bench.evaluation_plan import PLANS, EvaluationSettings, specs_of
from anabranch_bench.bench.evaluation_results import PICKS, Result, Results
from anabranch_bench.bench.rescale_runs import CONTROL

COLOURS = {
    "live": "#1f77b4",
    "meces": "#2ca02c",
    "drrs": "#9467bd",
    "rhino": "#17becf",
    "lazy": "#bcbd22",
    "megaphone": "#ff7f0e",
    "replicate": "#e377c2",
    "order-unaware": "#8c564b",
    "pause": "#333333",
    "stop-restart": "#d62728",
    "megaphone:plan=all-at-once": "#6a00a8",
    "megaphone:plan=fluid": "#005f73",
    CONTROL: "#8c8c8c",
}
"""Of strategies, the same in all pictures; any of them may meet in one panel."""
OTHERS_A_PANEL = 4
"""Curves in a panel besides those of `live` and of the control run."""
LINEAR_MAX = 5.0
"""Greatest over least latency up to which a linear scale shows both."""
MARGIN_SECONDS = 6.0
"""Shown before the moves and after the longest one, at least."""
TIME_COLOURS = ("#d62728", "#ff7f0e", "#2ca02c", "#9467bd", "0.8")


def draw(part: str, settings: EvaluationSettings, results: Results, folder: Path) -> list[Path]:
    """A part's pictures, as far as there is something to show; the files."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    view = results.of(specs_of(part, settings))
    made: list[tuple[str, Any]] = []
    match part:
        case "workloads":
            made = [(load.name, overlay(load, results)) for load in view.loads()]
        case "meces":
            made = [(f"meces {load.name}", overlay(load, view)) for load in view.loads()]
            made.append(("meces time of a batch", time_bars(view)))
        case "drrs":
            made = [("drrs sensitivity", sensitivity_panels(settings, view))]
        case "megaphone" | "rhino":
            made = [(f"{part} {load.name}", overlay(load, view)) for load in view.loads()]
    return [_save(figure, folder, name) for name, figure in made if figure is not None]


def _save(figure: Any, folder: Path, name: str) -> Path:
    from matplotlib import pyplot

    path = folder / f"{name.replace(' ', '-')}.png"
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path


# -- latency over time --


def overlay(load: WorkloadLoad, results: Results) -> Any:
    """Latency over time of all strategies; below, how long each move took and its peak."""
    from matplotlib import pyplot

    shown = {label: _typical(load, label, results) for label in results.labels(load)}
    control = shown.pop(CONTROL, None)
    moved = {label: run for label, run in shown.items() if run.move}
    if not moved:
        return None
    panels = panels_of(list(moved))
    lines = 1 + max(len(panel) for panel in panels)
    figure, grid = pyplot.subplots(
        2,
        len(panels),
        figsize=(max(8.0, 5.6 * len(panels)), 3.6 + 0.21 * lines),
        squeeze=False,
        sharex="col",
        height_ratios=(2.9, 0.21 * lines),
    )
    for (top, bottom), panel in zip(grid.T, panels, strict=True):
        runs = {label: moved[label] for label in panel}
        top.sharey(grid[0][0])
        _curves(top, runs, control)
        _bars(bottom, runs, None if control is None else results.window(control), control)
        top.set_xlim(*_span(list(runs.values())))
    _scale(grid[0])
    grid[0][0].set_ylabel("latency (s)")
    figure.suptitle(f"{load.name}, {load.rate:,.0f} rows/s ({load.about})", fontsize=11)
    figure.tight_layout()
    return figure


def _typical(load: WorkloadLoad, label: str, results: Results) -> Result:
    """Of the repeats, the one in the middle by its peak."""

    def peak(run: Result) -> float:
        return run.phase("during", results.window(run)).peak

    runs = sorted(results.good(load, label), key=peak)
    return runs[(len(runs) - 1) // 2]


def _span(runs: Sequence[Result]) -> tuple[float, float]:
    """What a panel shows: the moves and some seconds around them, without what settles."""
    start = min(run.move.start for run in runs if run.move)
    end = max(run.move.end for run in runs if run.move)
    margin = max(MARGIN_SECONDS, (end - start) / 2)
    return max(runs[0].settle, start - margin), min(end + margin, max(run.end for run in runs))


def panels_of(labels: Sequence[str]) -> list[list[str]]:
    """Few curves in each panel; `live` in all of them."""
    first = [label for label in labels if label == "live"]
    others = [label for label in labels if label != "live"]
    cuts = range(0, max(1, len(others)), OTHERS_A_PANEL)
    return [first + others[at : at + OTHERS_A_PANEL] for at in cuts]


def _curves(axes: Any, runs: dict[str, Result], control: Result | None) -> None:
    if control is not None:
        _curve(axes, control, linewidth=3, alpha=0.6, zorder=1)
    for label, run in runs.items():
        width, order = (2.0, 4) if label == "live" else (1.3, 3)
        _curve(axes, run, linewidth=width, zorder=order)
    start = min(run.move.start for run in runs.values() if run.move)
    axes.axvline(start, color="black", linewidth=0.8, linestyle=":", zorder=2)
    axes.annotate(" rescale", (start, 1), xycoords=("data", "axes fraction"), fontsize=8, va="top")
    axes.tick_params(axis="y", which="both", labelsize=8)
    axes.grid(alpha=0.3, which="both", linewidth=0.5)


def _scale(panels: Sequence[Any]) -> None:
    """From zero while that shows everything; logarithmic if one peak would flatten the rest."""
    values = [y for axes in panels for line in axes.lines for y in _heights(line)]
    if not values or max(values) <= LINEAR_MAX * min(values):
        panels[0].set_ylim(0, 1.15 * max(values, default=1.0))
        return
    for axes in panels:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if _leads(value) else "")


def _heights(line: Any) -> list[float]:
    """Of a curve; the mark of the rescale is none."""
    values = [float(value) for value in line.get_ydata()]
    return values if len(values) > 2 else []


def _leads(value: float) -> bool:
    """Of the ticks between powers of ten, those that get a number: 2 and 5."""
    return f"{value:e}"[0] in "25"


def _curve(axes: Any, run: Result, **style: Any) -> None:
    """The slowest row of each batch, at the time at which it was due."""
    assert run.timeline is not None
    points = run.timeline.points()
    due, waited = [p.done - p.slowest for p in points], [p.slowest for p in points]
    # Options that have no colour of their own are not the strategy as it is.
    line = "-" if run.label in COLOURS else "--"
    axes.plot(due, waited, color=_colour(run.label), linestyle=line, **style)


def _bars(
    axes: Any, runs: dict[str, Result], window: TimeWindow | None, control: Result | None
) -> None:
    """From the start to the end of each move; the colours' legend at the same time."""
    names: list[str] = []
    for label, run in runs.items():
        assert run.move is not None
        place, seconds, peak = -len(names), run.move.seconds, run.phase("during").peak
        hatch = "" if label in COLOURS else "//"
        axes.barh(place, seconds, 0.7, run.move.start, color=_colour(label), hatch=hatch)
        text = f"  {seconds:.1f} s, peak {peak:.2f} s"
        axes.text(run.move.end, place, text, fontsize=8, va="center", clip_on=True)
        names.append(label)
    if control is not None and window is not None:
        peak = control.phase("during", window).peak
        text = f"  no move, peak {peak:.2f} s meanwhile"
        axes.text(window.start, -len(names), text, fontsize=8, va="center")
        names.append(CONTROL)
    axes.set_yticks([-n for n in range(len(names))], [_name(name) for name in names], fontsize=8)
    for tick, name in zip(axes.get_yticklabels(), names, strict=True):
        tick.set_color(_colour(name))
        tick.set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(0.6 - len(names), 0.6)
    axes.set_xlabel("due at (s since the load began); bars: the move")


def _name(label: str) -> str:
    is_plan = label in PLANS and PLANS[label] != "batched"
    return f"megaphone {PLANS[label]}" if is_plan else label


def _colour(label: str) -> str:
    return COLOURS.get(label) or COLOURS.get(label.partition(":")[0], "black")


# -- comparisons --


def time_bars(results: Results) -> Any:
    """Where the time of a batch went during the move, a bar for each strategy."""
    from matplotlib import pyplot

    bars = {
        f"{load.name}: {label}": batch_times(run)
        for load in results.loads()
        for label in results.labels(load)
        for run in results.good(load, label)[:1]
        if run.report.get("batches")
    }
    if not bars:
        return None
    figure, axes = pyplot.subplots(figsize=(8, 1.2 + 0.32 * len(bars)))
    places = [-n for n in range(len(bars))]
    lefts = [0.0] * len(bars)
    for kind, colour in zip(BREAKDOWN, TIME_COLOURS, strict=True):
        widths = [times[kind] for times in bars.values()]
        axes.barh(places, widths, 0.7, lefts, color=colour, label=kind)
        lefts = [left + width for left, width in zip(lefts, widths, strict=True)]
    axes.set_yticks(places, list(bars), fontsize=8)
    axes.set_xlabel("ms of a batch during the move (mean); rest: Spark and the exchange of rows")
    axes.legend(fontsize=8, ncols=len(BREAKDOWN), loc="lower center", bbox_to_anchor=(0.4, 1.0))
    axes.grid(alpha=0.3, axis="x")
    figure.tight_layout()
    return figure


def sensitivity_panels(settings: EvaluationSettings, results: Results) -> Any:
    """Peak and duration along each axis."""
    from matplotlib import pyplot

    places = {
        axis: [(f, axis.load(settings.scale, settings.rate, f)) for f in axis.factors]
        for axis in settings.axes
    }
    if not any(results.good(load) for loads in places.values() for _, load in loads):
        return None
    figure, grid = pyplot.subplots(
        2, len(places), figsize=(4 * len(places), 5.4), squeeze=False, sharey="row", sharex="col"
    )
    for (top, bottom), (axis, loads) in zip(grid.T, places.items(), strict=True):
        names = [axis.shown(settings.scale, settings.rate, f) for f, _ in loads]
        for label in settings.axis_strategies:
            peaks = [results.figure(load, label, "during", PICKS["peak"]) for _, load in loads]
            seconds = [_move_seconds(results, load, label) for _, load in loads]
            style = {"color": _colour(label), "marker": "o", "label": label}
            top.plot(range(len(loads)), peaks, **style)
            if label != CONTROL:
                bottom.plot(range(len(loads)), seconds, **style)
        bottom.set_xticks(range(len(loads)), names, fontsize=8)
        bottom.set_xlabel(axis.name)
        for axes in (top, bottom):
            axes.margins(x=0.15)
            axes.grid(alpha=0.3)
    for line in grid:  # only now: a limit ends the scaling to what comes later
        line[0].set_ylim(bottom=0)
    grid[0][0].set_ylabel("peak latency (s)")
    grid[1][0].set_ylabel("move (s)")
    grid[0][0].legend(fontsize=8)
    figure.suptitle("key-count: one parameter changed at a time", fontsize=11)
    figure.tight_layout()
    return figure


def _move_seconds(results: Results, load: WorkloadLoad, label: str) -> float:
    seconds = [r.move.seconds for r in results.good(load, label) if r.move]
    return sorted(seconds)[len(seconds) // 2] if seconds else float("nan")
