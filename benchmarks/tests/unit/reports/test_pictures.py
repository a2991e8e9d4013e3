"""Which runs and curves are in a picture."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from benchmarks.tests.unit.made_up_runs import make_run
from tests.unit.loadtest.timelines import back_to_back

from anabranch.loadtest.latency import TimeWindow
from anabranch_bench.experiments.evaluation_plan import PLANS
from anabranch_bench.reports.axes import COLOURS
from anabranch_bench.reports.pictures import draw_panels, panels_of, shown_panels
from anabranch_bench.results.cases import CONTROL, STRATEGIES
from anabranch_bench.results.comparison import RunSet


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
