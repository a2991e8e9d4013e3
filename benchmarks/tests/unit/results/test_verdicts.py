"""Verdicts: words, targets, spreads."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from benchmarks.tests.unit.made_up_runs import RIGHT, WRONG, pair, result, timeline

from anabranch.loadtest.latency import Batch, Timeline
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import INTERRUPTED
from anabranch_bench.results.verdicts import (
    DISTURBED,
    NOISE,
    SEAMLESS,
    UNCLEAR,
    Spread,
    seamlessness,
)


class TestJudge:
    def test_seamless(self) -> None:
        assert seamlessness(pair(), "live").word == SEAMLESS

    def test_disturbed(self) -> None:
        judgement = seamlessness(pair(stall=2.0), "live")
        assert judgement.word == DISTURBED
        assert "peak x 3.0" in judgement.cell

    def test_a_control_run_that_is_as_bad_elsewhere(self) -> None:
        results = pair(stall=2.0)
        calm = timeline()
        late = [b if b.first_row < 16_000 else later(b, 2.5) for b in calm.batches]
        results.runs[1].timeline = Timeline(calm.load, late)
        assert seamlessness(results, "live").word == NOISE

    @pytest.mark.parametrize("batch", [0.4, 0.6])
    def test_runs_that_differ_before_the_move_cannot_be_compared(self, batch: float) -> None:
        """Neither for nor against the strategy."""
        judgement = seamlessness(pair(timeline=timeline(batch)), "live")
        assert judgement.word == UNCLEAR
        assert float(judgement.figures.removeprefix("mean before x ")) == pytest.approx(
            batch / 0.5, abs=0.02
        )

    def test_wrong_results_count_more_than_latency(self) -> None:
        judgement = seamlessness(pair(verifications=[RIGHT, WRONG]), "live")
        assert judgement.word == "WRONG"
        assert "1 missing" in judgement.cell

    def test_a_failed_run(self) -> None:
        results = pair(error="no more memory")
        assert seamlessness(results, "live").cell == "failed: no more memory"

    def test_an_interrupted_run_has_not_failed(self) -> None:
        assert seamlessness(pair(error=INTERRUPTED), "live").cell == "interrupted"
        wrong = pair(error=INTERRUPTED, verifications=[WRONG])
        assert seamlessness(wrong, "live").word == "WRONG"

    def test_repeats_count_without_the_one_that_was_interrupted(self) -> None:
        results = pair()
        results.runs.append(result(repeat=1, error=INTERRUPTED))
        assert seamlessness(results, "live").word == SEAMLESS

    def test_without_a_control_run(self) -> None:
        assert seamlessness(RunSet([result()]), "live").word == "-"
        assert seamlessness(RunSet(), "live").word == "-"

    def test_repeats_are_judged_by_their_median(self) -> None:
        runs = [result(stall=stall, repeat=n) for n, stall in enumerate((0.0, 0.0, 5.0))]
        controls = [result(CONTROL, repeat=n) for n in range(3)]
        assert seamlessness(RunSet([*runs, *controls]), "live").word == SEAMLESS


def later(batch: Batch, seconds: float) -> Batch:
    return replace(batch, committed=batch.committed + seconds)


def test_spread() -> None:
    assert Spread.of([2.0]).text(1, " s") == "2.0 s"
    assert Spread.of([1.0, 3.0, 2.0, math.nan]).text(1) == "2.0 [1.0 to 3.0]"
    assert Spread.of([]).n == 0
