"""A run whose workers change, as a picture: load, workers with the reasons, latency."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.loadtest.scaled_run import ScaledRun
from anabranch.loadtest.timeline_plot import check_matplotlib

REASON_WIDTH = 46
COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown")


def plot_scaled(run: ScaledRun, path: Path) -> None:
    """One run, with what was decided beside it."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        3, 1, figsize=(11, 7.2), sharex=True, height_ratios=(1, 1.3, 1.3)
    )
    end = run.end
    _draw_load(axes[0], run, end)
    _draw_workers(axes[1], [run], end)
    for number, told in enumerate(run.decisions, 1):
        for each in axes:
            each.axvline(told.at, color="0.6", linewidth=0.8, linestyle=":")
        axes[1].annotate(str(number), (told.at, told.to), fontsize=9, weight="bold", xytext=(3, 4),
                         textcoords="offset points")  # fmt: skip
    _draw_latency(axes[2], [run])
    axes[0].set_title("A flash crowd: the autoscaler finds the number of workers", fontsize=11)
    axes[2].set_xlim(0, end)
    axes[2].set_xlabel("seconds since the load began")
    reasons = (
        textwrap.fill(
            f"{n}. {told.at:.0f} s, {told.workers} → {told.to} [{told.rule}]: {told.reason}",
            REASON_WIDTH,
        )
        for n, told in enumerate(run.decisions, 1)
    )
    figure.tight_layout(rect=(0, 0.04, 0.68, 1))
    figure.text(0.69, 0.95, "\n\n".join(reasons), fontsize=8, va="top", family="sans-serif")
    figure.text(0.01, 0.012, about(run), fontsize=8, color="0.25")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def plot_comparison(runs: Sequence[ScaledRun], path: Path) -> None:
    """Several ways to decide under the same load."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(3, 1, figsize=(10, 7), sharex=True, height_ratios=(1, 1.3, 1.5))
    end = max(run.end for run in runs)
    _draw_load(axes[0], runs[0], end)
    _draw_workers(axes[1], runs, end)
    _draw_latency(axes[2], runs)
    axes[2].set_yscale("log")
    axes[2].set_ylim(bottom=0.5)
    axes[1].legend(fontsize=8, loc="upper right")
    axes[2].set_xlim(0, end)
    axes[2].set_xlabel("seconds since the load began")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.text(0.01, 0.012, about(runs[0]), fontsize=8, color="0.25")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def about(run: ScaledRun) -> str:
    """When and on what it was made."""
    machine = (
        ""
        if run.cores is None
        else f" on {run.cores} cores, load average before it {run.load_average:.1f}"
    )
    cost = f"a row costs {1000 * run.scenario.row_seconds:g} ms of waiting."
    return f"One run each, {run.made}{machine}; {cost}"


def _draw_load(axes: Any, run: ScaledRun, end: float) -> None:
    times, rates = [0.0], [run.load.rate_at(0.0)]
    passed = 0.0
    for seconds, rate in run.load.pieces:
        times += [passed, passed + seconds]
        rates += [rate, rate]
        passed += seconds
    axes.fill_between(times, rates, color="0.8", linewidth=0)
    axes.set_ylabel("rows/s that come")
    axes.set_ylim(0, 1.15 * max(rates))


def _draw_workers(axes: Any, runs: Sequence[ScaledRun], end: float) -> None:
    for colour, run in zip(COLOURS, runs, strict=False):
        times = [max(0.0, at) for at, _ in run.workers] + [end]
        counts = [count for _, count in run.workers]
        axes.step(times, [*counts, counts[-1]], where="post", color=colour, label=run.name)
    most = max(count for run in runs for _, count in run.workers)
    axes.set_ylim(0, most + 1.5)
    axes.set_ylabel("workers")
    axes.grid(alpha=0.3)


def _draw_latency(axes: Any, runs: Sequence[ScaledRun]) -> None:
    for colour, run in zip(COLOURS, runs, strict=False):
        points = run.points()
        axes.plot([at for at, _ in points], [s for _, s in points], color=colour, label=run.name)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("latency of rows (s)")
    axes.grid(alpha=0.3)
