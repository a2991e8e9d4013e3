"""Latency over time as a picture, with moves shaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anabranch.errors import needs_extra
from anabranch.loadtest.latency import Timeline


def check_matplotlib() -> None:
    """Say at once, not after an hour, that a plot cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise needs_extra(
            "A picture needs matplotlib", "plot", "; or do not ask for pictures"
        ) from error


def plot_timeline(
    timeline: Timeline, marks: Sequence[tuple[str, float, float]], path: Path, about: str = ""
) -> None:
    """Latency of one run with its reconfigurations (name, start, end) marked, and a caption."""
    check_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 3.6))
    points = timeline.points()
    axes.plot(
        [p.done for p in points], [p.slowest for p in points], color="tab:blue", linewidth=1.5
    )
    axes.fill_between(
        [p.done for p in points],
        [p.fastest for p in points],
        [p.slowest for p in points],
        color="tab:blue",
        alpha=0.2,
        linewidth=0,
        label="rows of each batch, fastest to slowest",
    )
    top = 1.6 * max((p.slowest for p in points), default=1.0)
    for name, start, end in marks:
        axes.axvspan(start, end, color="tab:orange", alpha=0.35, linewidth=0)
        axes.text((start + end) / 2, 0.97 * top, name, ha="center", va="top", fontsize=9)
    axes.set_ylim(0, top)
    axes.set_xlim(0, timeline.end)
    axes.set_xlabel("seconds since the load began; shaded: reconfigurations")
    axes.set_ylabel("latency (s)")
    axes.set_title("Latency of rows, from the time at which they were due", fontsize=11)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left")
    figure.tight_layout(rect=(0, 0.06 if about else 0, 1, 1))
    figure.text(0.01, 0.015, about, fontsize=8, color="0.25")
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
