"""Latency over time as pictures show it: every run, the median run above the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch_bench.reports.axes import COLOURS, colour
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import RunResult

THIN, FAINT = 0.7, 0.45
"""Width and opacity of runs that are not the median one."""


@dataclass(frozen=True)
class Curve:
    """A run in a picture: the slowest row of each batch, by the time at which it was due."""

    run: RunResult
    is_median: bool
    """Whether tables have their peak from this run."""
    due: tuple[float, ...]
    waited: tuple[float, ...]


def curves_of(results: RunSet, label: str) -> list[Curve]:
    """All runs with a label that tables count."""
    middle = results.median_run(label)
    return [_curve(run, run is middle) for run in results.judged(label)]


def _curve(run: RunResult, is_median: bool) -> Curve:
    points = run.timeline.points() if run.timeline else []
    due, waited = [p.done - p.slowest for p in points], [p.slowest for p in points]
    return Curve(run, is_median, tuple(due), tuple(waited))


def draw_curves(axes: Any, curves: Sequence[Curve], width: float, **style: Any) -> None:
    """Thin and faint; the median run thick, and last, so that nothing hides it."""
    for curve in sorted(curves, key=lambda curve: curve.is_median):
        label = curve.run.label
        # Options that have no colour of their own are not the strategy as it is.
        line = "-" if label in COLOURS else "--"
        how = {"linewidth": width, "label": label} if curve.is_median else {"linewidth": THIN}
        shown = style if curve.is_median else {**style, "alpha": FAINT}
        axes.plot(curve.due, curve.waited, color=colour(label), linestyle=line, **how, **shown)


def caption(counts: Iterable[str]) -> str:
    """What a reader has to know of the curves: which one is thick, and how many there are."""
    return (
        "Every run is shown. Thick: the run with the median peak during the move (of an even "
        f"number, the worse of the middle two), as in the tables.\nRuns: {', '.join(counts)}."
    )


def count_text(results: RunSet, label: str, name: str) -> str:
    """How many runs a picture has of a strategy, and how many it cannot have."""
    shown, tried = len(results.judged(label)), len(results.tried(label))
    missing = f" ({tried - shown} failed or left out)" if tried > shown else ""
    return f"{name} {shown}{missing}"


def peak_text(results: RunSet, label: str) -> str:
    """The peak as tables have it, and the range over all runs if there are several."""
    peak, count = results.figure(label, "during", "peak"), len(results.phases(label, "during"))
    least, most = results.spread(label, "during", "peak")
    return f"peak {peak:.2f} s" + (f" [{least:.2f} to {most:.2f}]" if count > 1 else "")
