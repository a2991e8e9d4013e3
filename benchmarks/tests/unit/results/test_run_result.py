"""What one run showed, phase by phase."""

from __future__ import annotations

import math

import pytest
from benchmarks.tests.unit.made_up_runs import MOVE, result

from anabranch.loadtest.latency import TimeWindow
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import brief


class TestPhases:
    def test_without_a_stall_all_phases_are_alike(self) -> None:
        run = result()
        phases = [run.phase(name) for name in ("before", "during", "after")]
        assert [f.peak for f in phases] == pytest.approx([1.0] * 3, abs=0.01)
        assert [f.throughput for f in phases] == pytest.approx([1000] * 3, rel=0.01)
        assert run.stable_after == 0.0

    def test_a_stall_shows_in_its_phase_only(self) -> None:
        run = result(stall=2.0)
        assert run.phase("before").peak == pytest.approx(1.0, abs=0.01)
        assert run.phase("during").peak == pytest.approx(3.0, abs=0.01)
        assert run.phase("after").peak == pytest.approx(1.0, abs=0.01)
        # The batch after it has the rows that came meanwhile; it is done at 13.
        assert run.stable_after == pytest.approx(3.0, abs=0.01)

    def test_before_leaves_out_what_settles(self) -> None:
        run = result(settle=9.0)
        assert run.phase("before").rows < result().phase("before").rows

    def test_a_window_that_outlasts_the_control_run(self) -> None:
        control = result(CONTROL)
        assert control.phase("during", TimeWindow(10, 500)).peak == pytest.approx(1.0, abs=0.01)
        assert math.isnan(control.phase("after", TimeWindow(10, 500)).peak)


def test_the_moves_window_is_the_one_that_counts() -> None:
    assert RunSet([result(CONTROL), result()]).window(result(CONTROL)) == MOVE


def test_errors_are_told_in_a_line() -> None:
    text = "It failed.\nTraceback:\n  File x\nTypeError: a\n\tat java\nValueError: b\n\tat java"
    assert brief(ValueError(text)) == "It failed. ... ValueError: b"
    assert brief(ValueError("")) == "ValueError('')"
