"""Latency over time as a picture: one panel for each strategy, the control run behind it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.bench.rescale_runs import CONTROL, NATIVE, Run
from anabranch.bench.verdicts import control_of
from anabranch.errors import InvalidArgument

COLUMNS = 3
MARGIN_SECONDS = 15


def check_matplotlib() -> None:
    """Say at once, not after an hour, that a plot cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise InvalidArgument(
            "The plot needs matplotlib: pip install 'anabranch[plot]', or leave --plot out."
        ) from error


def plot_runs(runs: Sequence[Run], path: Path) -> bool:
    """Draw the first repeat of each strategy; False if there is nothing to draw."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [r for r in runs if r.repeat == 0 and r.move and r.timeline and r.part != "series"]
    if not shown:
        return False
    rows = -(-len(shown) // COLUMNS)
    figure, grid = pyplot.subplots(
        rows,
        min(COLUMNS, len(shown)),
        figsize=(5 * min(COLUMNS, len(shown)), 2.9 * rows),
        squeeze=False,
        sharey=True,
    )
    panels = [axes for line in grid for axes in line]
    for axes, run in zip(panels, shown, strict=False):
        _panel(axes, run, control_of(run, runs))
    for axes in panels[len(shown) :]:
        axes.set_axis_off()
    for line in grid:
        line[0].set_ylabel("latency (s)")
    figure.suptitle("Latency of rows by the time they were due; shaded: the move", fontsize=11)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return True


def _panel(axes: Any, run: Run, control: Run | None) -> None:
    assert run.move is not None
    assert run.timeline is not None
    axes.axvspan(run.move.start, run.move.end, color="tab:orange", alpha=0.25, linewidth=0)
    if control is not None and control.timeline is not None:
        _curve(axes, control, "0.6", CONTROL)
    _curve(axes, run, "tab:blue", run.label)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlim(max(0, run.move.start - MARGIN_SECONDS), run.move.end + MARGIN_SECONDS)
    name = "Spark: stop, repartition, restart" if run.label == NATIVE else run.label
    latency = run.during()
    peak = f", peak {latency.peak:.2f} s" if latency else ""
    absolute = f" ({run.keys:,} keys)" if run.part == "absolute" else ""
    axes.set_title(f"{name}{absolute}{peak}", fontsize=10)
    axes.set_xlabel("due at (s since the load began)", fontsize=8)
    axes.grid(alpha=0.3, which="both", linewidth=0.5)
    axes.legend(fontsize=7, loc="upper left")


def _curve(axes: Any, run: Run, colour: str, label: str) -> None:
    """A saw: of the rows of a batch, the first one waits longest."""
    assert run.timeline is not None
    ends = [(p.done, waited) for p in run.timeline.points() for waited in (p.slowest, p.fastest)]
    due, waited = [done - waited for done, waited in ends], [waited for _, waited in ends]
    axes.plot(due, waited, color=colour, linewidth=1, label=label)
