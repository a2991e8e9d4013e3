"""What all pictures share: colours, shaded moves, scales, captions, files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anabranch.loadtest.timeline_plot import check_matplotlib
from anabranch_bench.results.cases import CONTROL, NATIVE
from anabranch_bench.results.run_result import RunResult

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
    NATIVE: "#7a3b00",
    CONTROL: "#8c8c8c",
}
"""Of strategies, the same in all pictures; any of them may meet in one panel."""
LINEAR_MAX = 5.0
"""Greatest over least latency up to which a linear scale shows both."""
DUE = "due at (s since the load began)"
CAPTION_INCHES, CAPTION_LETTERS_AN_INCH = 0.17, 16
"""Of a line."""


def subplots(*args: Any, **more: Any) -> tuple[Any, Any]:
    """A figure that needs no screen, and its axes."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(*args, **more)


def save(figure: Any, path: Path, caption: str = "") -> Path:
    """Write a picture with its caption below, and forget it."""
    from matplotlib import pyplot

    width = int(CAPTION_LETTERS_AN_INCH * figure.get_figwidth())
    lines = [part for line in caption.splitlines() for part in textwrap.wrap(line, width)]
    bottom = CAPTION_INCHES * len(lines) / figure.get_figheight()
    figure.tight_layout(rect=(0, bottom, 1, 1))
    style = {"fontsize": 7.5, "va": "bottom", "color": "0.25"}
    figure.text(0.01, bottom / 8, "\n".join(lines), **style)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
    return path


def colour(label: str) -> str:
    """Of a strategy; one with options has its strategy's if it has none of its own."""
    return COLOURS.get(label) or COLOURS.get(label.partition(":")[0], "black")


def shade_moves(axes: Any, runs: Sequence[RunResult]) -> None:
    """From the start to the end of each move; darker where they overlap."""
    moves = [run.move for run in runs if run.move]
    for move in moves:
        alpha = 0.3 / len(moves)
        axes.axvspan(move.start, move.end, color="tab:orange", alpha=alpha, linewidth=0)


def span(runs: Sequence[RunResult], margin_seconds: float) -> tuple[float, float]:
    """What a panel shows: the moves and some seconds around them, without what settles."""
    moves = [run.move for run in runs if run.move]
    start, end = min(move.start for move in moves), max(move.end for move in moves)
    margin = max(margin_seconds, (end - start) / 2)
    return max(runs[0].settle, start - margin), min(end + margin, max(run.end for run in runs))


def scale(panels: Sequence[Any]) -> None:
    """From zero while that shows everything; logarithmic if one peak would flatten the rest."""
    values = [y for axes in panels for line in axes.lines for y in _heights(line)]
    for axes in panels:
        axes.grid(alpha=0.3, which="both", linewidth=0.5)
        axes.tick_params(axis="y", which="both", labelsize=8)
    if not values or max(values) <= LINEAR_MAX * min(values):
        panels[0].set_ylim(0, 1.15 * max(values, default=1.0))
        return
    for axes in panels:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if _leads(value) else "")


def _heights(line: Any) -> list[float]:
    """Of a curve; the mark of a rescale is none."""
    values = [float(value) for value in line.get_ydata()]
    return values if len(values) > 2 else []


def _leads(value: float) -> bool:
    """Of the ticks between powers of ten, those that get a number: 2 and 5."""
    return f"{value:e}"[0] in "25"
