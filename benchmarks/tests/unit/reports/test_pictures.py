"""Which runs and curves are in a picture."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks.tests.unit.made_up_runs import LOAD, MOVE, column, make_run, result
from tests.unit.loadtest.timelines import back_to_back

from anabranch.loadtest.latency import TimeWindow
from anabranch_bench.experiments.evaluation_plan import PLANS
from anabranch_bench.reports import axes, pictures
from anabranch_bench.reports.axes import COLOURS
from anabranch_bench.reports.comparison_tables import comparison
from anabranch_bench.reports.curves import Curve, curves_of, peak_text
from anabranch_bench.reports.pictures import (
    draw_batch_times,
    draw_overlay,
    draw_panels,
    draw_sensitivity,
    panels_of,
    shown_panels,
)
from anabranch_bench.results.cases import CONTROL, STRATEGIES
from anabranch_bench.results.comparison import FIGURES, RunSet


def test_a_plot(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    assert not draw_panels(RunSet(), path)
    runs = [
        make_run("live", back_to_back(0.5, 30), TimeWindow(10, 14)),
        make_run("control", back_to_back(0.5, 30)),
    ]
    assert draw_panels(RunSet(runs), path)
    assert path.read_bytes().startswith(b"\x89PNG")


PEAKS = [4.0, 1.0, 2.0]
"""Of three runs: the median one is neither the first nor the lowest."""


def three_runs(label: str = "live") -> RunSet:
    """Each with a stall of another length, and a control run each."""
    order = [3.0, 0.0, 1.0]
    runs = [result(label, stall=stall, repeat=n) for n, stall in enumerate(order)]
    return RunSet([*runs, *(result(CONTROL, repeat=n) for n in range(3))])


class TestEveryRunIsShown:
    """And the table's figure is that of the curve that stands out."""

    def test_the_thick_curve_is_the_median_run_of_the_table(self) -> None:
        results = three_runs()
        shown = curves_of(results, "live")
        assert [peak_of(curve) for curve in shown] == pytest.approx(PEAKS, abs=0.01)
        (thick,) = [curve for curve in shown if curve.is_median]
        (cell,) = column(comparison("", results), "peak s")[:1]
        assert cell == f"{peak_of(thick):.2f}" == "2.00"
        assert "peak 2.00 s [1.00 to 4.00]" in peak_text(results, "live")

    def test_of_two_runs_it_is_the_worse_one(self) -> None:
        results = RunSet([result(stall=stall, repeat=n) for n, stall in enumerate((1.0, 0.0))])
        assert [curve.is_median for curve in curves_of(results, "live")] == [True, False]
        assert column(comparison("", results), "peak s") == ["2.00"]
        rates = [FIGURES["rows/s"](run.phase("during")) for run in results.runs]
        assert results.figure("live", "during", "rows/s") == min(rates)

    def test_all_figures_of_a_picture_are_in_its_table(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        figures = kept(monkeypatch)
        results = three_runs()
        draw_overlay("", results, {}, tmp_path / "overlay.png")
        draw_panels(results, tmp_path / "panels.png")
        peak, seconds = (column(comparison("", results), name)[0] for name in ("peak s", "move s"))
        overlay, panels = figures
        assert f"{float(seconds):.1f} s, peak {peak} s [1.00 to 4.00]" in texts(overlay)
        assert f"peak {peak} s [1.00 to 4.00]" in texts(panels)
        for figure in figures:
            lines = [line for line in figure.axes[0].lines if line.get_color() == COLOURS["live"]]
            widths = [line.get_linewidth() for line in lines]
            assert len(lines) == 3, "all runs"
            assert max(widths) > sorted(widths)[-2], "one of them stands out"
            thick = lines[widths.index(max(widths))]
            assert max(thick.get_ydata()) == pytest.approx(float(peak), abs=0.01)
            assert "of an even number, the worse" in texts(figure)
            assert re.search(r"Runs: live.* 3", texts(figure))

    def test_runs_that_failed_are_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        figures = kept(monkeypatch)
        results = three_runs()
        results.runs[0].error = "broken"
        draw_overlay("", results, {}, tmp_path / "overlay.png")
        draw_panels(results, tmp_path / "panels.png")
        assert "Runs: live 2 (1 failed or left out), control 3." in texts(figures[0])
        assert " 2 (1 failed or left out). Grey" in texts(figures[1])

    def test_sensitivity_has_a_dot_for_each_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        figures = kept(monkeypatch)
        draw_sensitivity({"size": {"1": LOAD}}, ["live"], three_runs(), tmp_path / "s.png")
        top = figures[0].axes[0]
        assert [y for _, y in top.collections[0].get_offsets()] == pytest.approx(PEAKS, abs=0.01)
        assert list(top.lines[0].get_ydata()) == pytest.approx([2.0], abs=0.01)
        assert "Runs of each: 3." in texts(figures[0])

    def test_times_of_batches_have_a_mark_for_each_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        figures = kept(monkeypatch)
        draw_batch_times(three_runs("meces"), tmp_path / "t.png")
        (marks,) = figures[0].axes[0].lines
        assert len(marks.get_xdata()) == 3
        assert "Runs: key-count: meces 3." in texts(figures[0])


def peak_of(curve: Curve) -> float:
    """The highest row of a curve that was on its way during the move."""
    points = zip(curve.due, curve.waited, strict=True)
    inside = [y for due, y in points if due <= MOVE.end and due + y >= MOVE.start]
    return max(inside)


def kept(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Pictures that would be saved, as they are then."""
    pytest.importorskip("matplotlib")
    figures: list[Any] = []
    save = axes.save

    def keep(figure: Any, path: Path, caption: str = "") -> Path:
        figures.append(figure)
        return save(figure, path, caption)

    monkeypatch.setattr(pictures, "save", keep)
    return figures


def texts(figure: Any) -> str:
    """All that is written in a picture."""
    from matplotlib.text import Text

    found = "\n".join(text.get_text() for text in figure.findobj(Text))
    return re.sub(r"\s+", " ", found)


def test_a_plot_shows_each_size_once() -> None:
    timeline, move = back_to_back(0.5, 30), TimeWindow(10, 14)
    runs = [
        make_run(label, timeline, move, part, keys)
        for part, keys in (("strategies", 200), ("series", 200), ("series", 400))
        for label in ("live", "live")
    ]
    shown = [(some[0].part, some[0].load.keys) for some in shown_panels(RunSet(runs))]
    assert shown == [("strategies", 200), ("series", 400)]


def test_curves_that_meet_in_a_panel_can_be_told_apart() -> None:
    """With few strategies any of them are neighbours."""
    parts = {
        label: [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        for label, colour in COLOURS.items()
    }
    close = [
        (a, b) for a, b in itertools.combinations(parts, 2) if math.dist(parts[a], parts[b]) < 60
    ]
    assert close == []
    assert set(COLOURS) >= {*STRATEGIES, *PLANS, CONTROL}


def test_few_curves_in_a_panel() -> None:
    assert panels_of(["live"]) == [["live"]]
    assert panels_of(["a", "live", "b", "c", "d", "e"]) == [
        ["live", "a", "b", "c", "d"],
        ["live", "e"],
    ]
    assert panels_of(["a", "b"]) == [["a", "b"]]
