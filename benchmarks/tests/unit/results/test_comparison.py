"""What a run is compared with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.tests.unit.made_up_runs import four_runs, in_turns, make_run, tables
from tests.unit.loadtest.timelines import RATE, back_to_back

from anabranch.loadtest.latency import TimeWindow
from anabranch_bench.experiments.rescale_goals import judge_live
from anabranch_bench.results.comparison import RunSet

MOVE = TimeWindow(10, 14)


class TestComparison:
    def test_one_bad_control_run_does_not_matter(self) -> None:
        runs = four_runs(0)[:2]
        runs += [
            make_run("control", back_to_back(0.5, 30), repeat=1),
            make_run("control", back_to_back(2.0, 40), repeat=2),
        ]
        assert RunSet(runs).ratios("live", "peak") == pytest.approx([1.0])
        assert RunSet(runs).ratios("live", "mean", "before") == pytest.approx([1.0])

    def test_a_control_run_that_ended_before_the_move_does_not_count(self) -> None:
        runs = [
            make_run("live", back_to_back(0.5, 40), TimeWindow(10, 35)),
            make_run("control", back_to_back(0.5, 30)),
        ]
        assert RunSet(runs).ratios("live", "peak") == []
        assert judge_live(RunSet(runs))[0].passed is None
        assert "not measured" in str(judge_live(RunSet(runs))[0])

    def test_a_move_in_turns_has_its_own_control(self) -> None:
        slow, usual, fast = (back_to_back(seconds, 30) for seconds in (1.0, 0.5, 0.25))
        move = MOVE
        runs = [
            make_run("control", slow, repeat=0),
            make_run("live", usual, move, repeat=0),
            make_run("control", usual, repeat=1),
            make_run("live", usual, move, repeat=1),
            make_run("control", usual, repeat=2),
            make_run("live", fast, move, repeat=2),
        ]
        runs = in_turns(runs)
        runs.append(make_run("control", slow, repeat=2))  # of other strategies
        runs.append(make_run("lazy", slow, move))
        assert RunSet(runs).ratios("live", "mean") == pytest.approx([2 / 3, 1.0, 0.5], rel=0.05)
        assert RunSet(runs).ratios("lazy", "mean") == pytest.approx([1.0])
        shown = tables(runs)
        assert shown.count("\n| control ") == 2
        assert "in the windows of live" in shown
        assert "in the windows of others" in shown

    def test_a_time_beside_a_move_counts_though_it_is_shorter(self) -> None:
        move = TimeWindow(10, 35)
        runs = [
            make_run("control", back_to_back(1.0, 30), repeat=0),
            make_run("live", back_to_back(0.5, 50), move, repeat=0),
            make_run("control", back_to_back(0.5, 50), repeat=1),
        ]
        runs = in_turns(runs)
        assert RunSet(runs).controls_of(runs[1]) == [runs[0], runs[2]]
        assert RunSet(runs).ratios("live", "mean") == pytest.approx([2 / 3], rel=0.05)

    def test_a_control_run_at_another_rate_does_not_count(self) -> None:
        runs = four_runs(0)
        runs[3].load = replace(runs[3].load, rate=RATE / 2)
        assert RunSet(runs[:2] + runs[3:]).ratios("spark", "peak") == []
