"""Latency over time as a picture: one panel for each strategy, the control run behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.loadtest.latency import TimeWindow
from anabranch.loadtest.timeline_plot import check_matplotlib
from anabranch_bench.bench.comparison import controls_of, judged
from anabranch_bench.bench.rescale_runs import CONTROL, NATIVE, Run

COLUMNS_MAX = 3
MARGIN_SECONDS = 15
TEETH_MAX = 60
"""Batches that can be told apart in a panel."""


def plot_runs(runs: Sequence[Run], path: Path) -> bool:
    """Draw the runs that `shown_runs` chooses; False if there is nothing to draw."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = shown_runs(runs)
    if not shown:
        return False
    columns = min(COLUMNS_MAX, math.ceil(math.sqrt(len(shown))))
    rows = -(-len(shown) // columns)
    figure, grid = pyplot.subplots(
        rows,
        columns,
        figsize=(5 * columns, 2.9 * rows),
        squeeze=False,
        sharey=True,
    )
    panels = [axes for line in grid for axes in line]
    for axes, run in zip(panels, shown, strict=False):
        controls = controls_of(run, runs)
        _panel(axes, run, _median(controls, run.move) if controls else None)
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    for line in grid:
        line[0].set_ylabel("latency (s)")
    figure.suptitle("Latency of rows by the time they were due; shaded: the move", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return True


def shown_runs(runs: Sequence[Run]) -> list[Run]:
    """The median run of each strategy and size of state, by its peak."""
    repeats: dict[tuple[str, str, int], list[Run]] = {}
    labels = dict.fromkeys(r.label for r in runs)
    told = [run for label in labels for run in judged(runs, label)]
    for run in (r for r in told if r.move and r.timeline):
        repeats.setdefault((run.part, run.label, run.keys), []).append(run)
    # One size of the series is measured with the strategies.
    return [
        _median(some)
        for (part, label, keys), some in repeats.items()
        if part != "series" or ("strategies", label, keys) not in repeats
    ]


def _median(runs: Sequence[Run], window: TimeWindow | None = None) -> Run:
    """The one in the middle by its peak during its own move, or in the window."""

    def peak(run: Run) -> float:
        latency = run.during(window)
        return latency.peak if latency else 0.0

    return sorted(runs, key=peak)[(len(runs) - 1) // 2]


def _panel(axes: Any, run: Run, control: Run | None) -> None:
    assert run.move is not None
    assert run.timeline is not None
    axes.axvspan(run.move.start, run.move.end, color="tab:orange", alpha=0.25, linewidth=0)
    if control is not None and control.timeline is not None:
        _curve(axes, control, "0.6", CONTROL)
    _curve(axes, run, "tab:blue", run.label)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    axes.set_xlim(max(0, run.move.start - MARGIN_SECONDS), run.move.end + MARGIN_SECONDS)
    name = "Spark: stop, repartition, restart" if run.label == NATIVE else run.label
    latency = run.during()
    peak = f", peak {latency.peak:.2f} s" if latency else ""
    sizes = {"absolute": f" ({run.keys:,} keys)", "series": f" ({run.state_bytes / 1e9:.2g} GB)"}
    axes.set_title(f"{name}{sizes.get(run.part, '')}{peak}", fontsize=10)
    axes.set_xlabel("due at (s since the load began)", fontsize=8)
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.legend(fontsize=7, loc="upper right")


def _curve(axes: Any, run: Run, colour: str, label: str) -> None:
    """A saw: of the rows of a batch, the first one waits longest. Many teeth become a band."""
    assert run.timeline is not None
    points = run.timeline.points()
    if len(points) > TEETH_MAX:
        due = [p.done - p.slowest for p in points]
        slowest, fastest = [p.slowest for p in points], [p.fastest for p in points]
        axes.fill_between(due, fastest, slowest, color=colour, alpha=0.25, linewidth=0)
        axes.plot(due, slowest, color=colour, linewidth=1, label=label)
        return
    ends = [(p.done, waited) for p in points for waited in (p.slowest, p.fastest)]
    due, waited = [done - waited for done, waited in ends], [waited for _, waited in ends]
    axes.plot(due, waited, color=colour, linewidth=1, label=label)
