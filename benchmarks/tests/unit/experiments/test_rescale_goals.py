"""What the figures of `anabranch bench rescale` say about its goals."""

from __future__ import annotations

import re
from dataclasses import replace

from benchmarks.tests.unit.made_up_runs import four_runs, in_turns, make_run, tables
from tests.unit.loadtest.timelines import back_to_back

from anabranch.loadtest.latency import TimeWindow, median
from anabranch_bench.experiments.rescale_goals import (
    MoveRate,
    SteadyCost,
    judge_absolute,
    judge_live,
    judge_move,
    judge_others,
    judge_series,
    judge_steady,
)
from anabranch_bench.probes.machine import CoreShares
from anabranch_bench.reports.pictures import shown_panels
from anabranch_bench.reports.report import summary_line
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import RunResult
from anabranch_bench.results.verdicts import Verdict


def by_name(verdicts: list[Verdict], words: str) -> Verdict:
    (found,) = [v for v in verdicts if words in v.name]
    return found


class TestVerdicts:
    MOVE = TimeWindow(10, 14)

    def test_a_move_that_nobody_sees(self) -> None:
        verdicts = judge_live(RunSet(four_runs(0)))
        assert [v.passed for v in verdicts] == [True] * 5

    def test_a_move_that_stalls(self) -> None:
        verdicts = judge_live(RunSet(four_runs(4)))
        assert by_name(verdicts, "peak latency to control").passed is False
        assert by_name(verdicts, "stop-restart").passed is False
        assert "FAIL" in str(by_name(verdicts, "stop-restart"))

    def test_what_was_there_before_the_move_is_shown(self) -> None:
        runs = four_runs(0)
        runs[0].timeline = back_to_back(1.0, 30)
        verdict = by_name(judge_live(RunSet(runs)), "mean latency to control")
        assert verdict.passed is False
        assert "before the move 2.0" in str(verdict)
        assert "growth from then on 1.0" in str(verdict), "it was slow all the time"
        assert "after the move 2.0" in str(verdict)

    def test_an_outlier_beside_both_moves_does_not_make_them_good(self) -> None:
        """Half of what each move is compared with is a control time of chance."""
        usual, chance, slow = (back_to_back(seconds, 60) for seconds in (0.5, 2.0, 0.8))
        runs = [
            make_run("control", usual, repeat=0),
            make_run("live", slow, self.MOVE, repeat=0),
            make_run("control", chance, repeat=1),
            make_run("live", slow, self.MOVE, repeat=1),
            make_run("control", usual, repeat=2),
        ]
        for name in ("peak", "mean"):
            verdict = by_name(
                judge_live(RunSet(in_turns(runs))), f"live: {name} latency to control"
            )
            assert verdict.figures.startswith("0.6"), "to the times beside"
            assert "to the median of all control times 1.6" in verdict.figures
            assert verdict.passed is False

    def test_small_states_say_nothing_about_ways_that_stop(self) -> None:
        runs = four_runs(0)
        for run in runs:
            run.load = replace(run.load, keys=1000)
        verdict = by_name(judge_live(RunSet(runs)), "stop-restart")
        assert verdict.passed is None
        assert "not judged: 0." in str(verdict)

    def test_failed_runs_are_not_measured(self) -> None:
        runs = four_runs(0)
        runs[0].error = "broken"
        runs.append(make_run("control", back_to_back(0.5, 30), repeat=1))
        assert all(v.passed is None for v in judge_live(RunSet(runs)))
        assert "not measured" in str(judge_live(RunSet(runs))[0])
        assert "| live     | broken |" in tables(runs)
        assert "FAILED: broken" in summary_line(runs[0])

    def test_fetching_on_demand_against_blocking(self) -> None:
        blocked = back_to_back(0.5, 40, (10, 20))
        runs = [make_run(name, blocked, TimeWindow(10, 20)) for name in ("pause", "order-unaware")]
        runs += [
            make_run(name, back_to_back(0.5, 40), TimeWindow(10, 20)) for name in ("meces", "lazy")
        ]
        runs.append(make_run("drrs", back_to_back(0.5, 40, (10, 19)), TimeWindow(10, 20)))
        found = {v.name.partition(":")[0]: v.passed for v in judge_others(RunSet(runs))}
        assert found == {"meces": True, "lazy": True, "drrs": False}

    def test_series(self) -> None:
        def size(keys: int, stall: tuple[float, float] | None) -> list[RunResult]:
            live = make_run("live", back_to_back(0.5, 30, stall), self.MOVE, "series", keys)
            return [live, make_run("control", back_to_back(0.5, 30), None, "series", keys)]

        flat = size(1_000_000, None) + size(4_000_000, None)
        assert judge_series(RunSet(flat))[0].passed is True
        stalled = RunSet(size(1_000_000, None) + size(4_000_000, (10, 13)))
        assert judge_series(stalled)[0].passed is False
        assert judge_series(RunSet(size(1_000_000, None)))[0].passed is None
        spoiled = in_turns(size(4_000_000, (10, 13)))
        spoiled[0].cores = CoreShares(0.5, 0.4)
        spoiled[1].cores = CoreShares(0.5, 0.1)
        (verdict,) = judge_series(RunSet(size(1_000_000, None) + spoiled))
        assert verdict.passed is None
        assert "not judged: 1 of 2 moves left out (cores 50% busy, 40.0% stolen)" in str(verdict)
        assert "1 of 1 moves left out" in tables(spoiled)
        before = re.compile(r"^\| live +\| 1 +\| before ", re.MULTILINE)
        assert not before.search(tables(spoiled))
        assert before.search(tables(flat))
        assert shown_panels(RunSet(spoiled)) == []

    def test_move(self) -> None:
        assert judge_move(None)[0].passed is None
        copies = (1e9, 1.2e9, 0.9e9)
        assert judge_move(MoveRate("lazy", ((10**9, 1.9),), copies))[0].passed is True
        assert judge_move(MoveRate("lazy", ((10**9, 2.1), (10**9, 2.2)), copies))[0].passed is False

    def test_steady(self) -> None:
        coarse = tuple(1 + 0.01 * (n % 7) for n in range(30))
        same = SteadyCost(coarse[::-1], coarse)
        slower = SteadyCost(tuple(1.05 * c for c in coarse), coarse)
        assert judge_steady(same, RunSet([]))[0].passed is True
        assert judge_steady(slower, RunSet([]))[0].passed is False
        noisy = SteadyCost(
            tuple(c * (1.02 + 0.1 * (n % 3 - 1)) for n, c in enumerate(coarse)), coarse
        )
        assert judge_steady(noisy, RunSet([]))[0].passed is None, "neither met nor missed"
        low, high = same.interval()
        assert low <= median(same.ratios) <= high
        assert judge_steady(None, RunSet([]))[0].passed is None

    def test_background_traffic(self) -> None:
        runs = [make_run("live", back_to_back(0.5, 9), peers=0)]
        runs.append(make_run("rhino", back_to_back(0.5, 9), peers=2))
        runs[0].peer_samples = 7
        verdict = by_name(judge_steady(None, RunSet(runs)), "background")
        assert verdict.passed is True
        assert "in 1 runs, 7 looks" in verdict.figures
        assert "rhino: 2" in verdict.figures
        runs.append(make_run("lazy", back_to_back(0.5, 9), peers=1))
        assert by_name(judge_steady(None, RunSet(runs)), "background").passed is False

    def test_absolute(self) -> None:
        fast = make_run("live", back_to_back(0.5, 30), self.MOVE, "absolute", 5_000_000)
        slow = make_run("live", back_to_back(1.5, 30), self.MOVE, "absolute", 5_000_000)
        few = make_run("live", back_to_back(0.5, 30), self.MOVE, "absolute", 200_000)
        assert judge_absolute(RunSet([few]))[0].passed is None
        assert judge_absolute(RunSet([fast]))[0].passed is True
        assert judge_absolute(RunSet([slow]))[0].passed is False
        assert judge_absolute(RunSet([]))[0].passed is None
