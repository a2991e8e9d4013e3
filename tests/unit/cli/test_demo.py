"""`anabranch demo --from FILE`: a run that was made before, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.loadtest.timelines import back_to_back

from anabranch.cli import demo
from anabranch.cli.demo import DemoMove, DemoRun
from anabranch.cli.main import main
from anabranch.loadtest import timeline_plot
from anabranch.loadtest.latency import TimeWindow
from anabranch.loadtest.picture_source import sha256_of, source_of


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError("a stored run needs no Java")

    monkeypatch.setattr(demo, "check_java", fail)


def made_up() -> DemoRun:
    timeline = back_to_back(0.5, 30, (10, 12))
    changes = [DemoMove("2 -> 3 workers", 10.0, 12.0, "what moved")]
    return DemoRun("2026-01-02 03:04 UTC", 2, 0.5, timeline, changes)


def test_a_stored_run_is_shown_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, path, plot = made_up(), tmp_path / "demo.json", tmp_path / "demo.png"
    path.write_text(json.dumps(run.to_json()))
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    plot_timeline = timeline_plot.plot_timeline

    def noted(*args: Any) -> None:
        drawn.append(args)
        plot_timeline(*args)

    monkeypatch.setattr(timeline_plot, "plot_timeline", noted)
    assert main(["demo", "--from", str(path), "--plot", str(plot)]) == 0
    said = capsys.readouterr().out
    ((timeline, marks, place, about),) = drawn
    assert timeline.points() == run.timeline.points()
    assert (marks, place) == ([("2 -> 3 workers", 10.0, 12.0)], plot)
    assert about == (
        "One run, 2026-01-02 03:04 UTC, on 2 cores; load average of the machine before it: 0.5."
    )
    assert source_of(plot) == sha256_of(path)
    assert "what moved" in said
    peak = run.timeline.during(TimeWindow(10.0, 12.0)).peak
    assert peak > 2
    assert f"/{1000 * peak:>5.0f} ms" in said


def test_the_picture_has_a_caption(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run, path = made_up(), tmp_path / "demo.png"
    timeline_plot.plot_timeline(run.timeline, [], path, run.about)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_another_file_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    for text in ("{}", "[]", "no JSON"):
        path.write_text(text)
        assert main(["demo", "--from", str(path)]) == 2
        assert "Give a file that `anabranch demo --json FILE` wrote." in capsys.readouterr().err
