"""Verdicts, tables, files and pictures of the evaluation, from made-up runs."""

from __future__ import annotations

import argparse
import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.tests.unit.evaluation_support import (
    LOAD,
    MOVE,
    RIGHT,
    WRONG,
    from_spec,
    pair,
    report,
    result,
    timeline,
)

from anabranch.cli.main import main
from anabranch.loadtest.latency import Batch, Timeline, TimeWindow
from anabranch.loadtest.loaded_query import Say
from anabranch_bench.bench.evaluation import Evaluation
from anabranch_bench.bench.evaluation_comparisons import (
    batch_times,
    breakdown,
    plans,
    replication,
    sensitivity,
)
from anabranch_bench.bench.evaluation_plan import PARTS, PLANS, EvaluationSettings, Spec
from anabranch_bench.bench.evaluation_plots import COLOURS, draw, panels_of
from anabranch_bench.bench.evaluation_report import markdown, summary_line, tables_of, to_json
from anabranch_bench.bench.evaluation_results import (
    DISTURBED,
    INTERRUPTED,
    NOISE,
    SEAMLESS,
    UNCLEAR,
    Result,
    Results,
    judge,
)
from anabranch_bench.bench.evaluation_tables import (
    Table,
    failures,
    parameters,
    seamlessness,
    strategies,
)
from anabranch_bench.bench.rescale_runs import CONTROL, STRATEGIES
from anabranch_bench.bench.workload_run import Replication
from anabranch_bench.cli.evaluation import report as write_report
from anabranch_bench.cli.evaluation import settings_from
from anabranch_bench.workloads.verify import Verification

QUICK = EvaluationSettings.quick()


def column(table: Table, name: str) -> list[str]:
    place = table.columns.index(name)
    return [row[place] for row in table.rows]


@pytest.fixture(scope="module")
def quick() -> Evaluation:
    """All of a quick evaluation."""
    evaluation = Evaluation(QUICK, from_spec)
    evaluation.run()
    return evaluation


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


class TestJudge:
    def test_seamless(self) -> None:
        assert judge(pair(), LOAD, "live").word == SEAMLESS

    def test_disturbed(self) -> None:
        judgement = judge(pair(stall=2.0), LOAD, "live")
        assert judgement.word == DISTURBED
        assert "peak x 3.0" in str(judgement)

    def test_a_control_run_that_is_as_bad_elsewhere(self) -> None:
        results = pair(stall=2.0)
        calm = timeline()
        late = [b if b.first_row < 16_000 else later(b, 2.5) for b in calm.batches]
        results.runs[1].timeline = Timeline(calm.load, late)
        assert judge(results, LOAD, "live").word == NOISE

    @pytest.mark.parametrize("batch", [0.4, 0.6])
    def test_runs_that_differ_before_the_move_cannot_be_compared(self, batch: float) -> None:
        """Neither for nor against the strategy."""
        judgement = judge(pair(timeline=timeline(batch)), LOAD, "live")
        assert judgement.word == UNCLEAR
        (reason,) = judgement.reasons
        assert float(reason.removeprefix("mean before x ")) == pytest.approx(batch / 0.5, abs=0.02)

    def test_wrong_results_count_more_than_latency(self) -> None:
        judgement = judge(pair(verdicts=[RIGHT, WRONG]), LOAD, "live")
        assert judgement.word == "WRONG"
        assert "1 missing" in str(judgement)

    def test_a_failed_run(self) -> None:
        results = pair(error="no more memory")
        assert str(judge(results, LOAD, "live")) == "failed: no more memory"

    def test_an_interrupted_run_has_not_failed(self) -> None:
        assert str(judge(pair(error=INTERRUPTED), LOAD, "live")) == "interrupted"
        wrong = pair(error=INTERRUPTED, verdicts=[WRONG])
        assert judge(wrong, LOAD, "live").word == "WRONG"

    def test_repeats_count_without_the_one_that_was_interrupted(self) -> None:
        results = pair()
        results.runs.append(result(repeat=1, error=INTERRUPTED))
        assert judge(results, LOAD, "live").word == SEAMLESS

    def test_without_a_control_run(self) -> None:
        assert judge(Results([result()]), LOAD, "live").word == "-"
        assert judge(Results(), LOAD, "live").word == "-"

    def test_repeats_are_judged_by_their_median(self) -> None:
        runs = [result(stall=stall, repeat=n) for n, stall in enumerate((0.0, 0.0, 5.0))]
        controls = [result(CONTROL, repeat=n) for n in range(3)]
        assert judge(Results([*runs, *controls]), LOAD, "live").word == SEAMLESS


def later(batch: Batch, seconds: float) -> Batch:
    return replace(batch, committed=batch.committed + seconds)


class TestTables:
    def test_markdown(self) -> None:
        text = Table("T", ("a", "long name"), [("1|2", "x"), ("", "yy")], "A note.").markdown()
        assert text.splitlines() == [
            "### T",
            "",
            "| a   | long name |",
            "| --- | --------- |",
            "| 1/2 | x         |",
            "|     | yy        |",
            "",
            "A note.",
        ]

    def test_parameters_tell_the_load(self) -> None:
        (row,) = parameters(pair()).rows
        assert row[0] == "key-count"
        assert row[2:] == ("1,000", "4,000", "25%")

    def test_seamlessness_has_the_control_run_below(self) -> None:
        table = seamlessness(pair(stall=2.0))
        assert column(table, "run") == ["live", CONTROL]
        assert column(table, "peak s") == ["1.00 / 3.00 / 1.00", "1.00 / 1.00 / 1.00"]
        assert column(table, "oracle") == ["equal", "equal"]
        assert column(table, "verdict")[0].startswith("disturbed: peak")

    def test_strategies(self) -> None:
        results = Results([result(), result(CONTROL), result("meces", stall=1.0)])
        table = strategies(LOAD, results)
        assert column(table, "strategy") == ["live", "", "", "meces", "", "", CONTROL, "", ""]
        assert column(table, "phase")[:3] == ["before", "during", "after"]
        during = table.rows[4]
        assert during[-6:] == ("2.00 / 1.42", "3.00", "5.0", "21", "equal", DISTURBED)

    def test_repeats_show_their_spread(self) -> None:
        results = Results([result(stall=s, repeat=n) for n, s in enumerate((0.0, 1.0))])
        assert "live 1.00 to 2.00 s" in strategies(LOAD, results).note

    def test_failures(self) -> None:
        runs = [result(error="broken"), result(verdicts=[WRONG]), result(CONTROL)]
        runs.append(result("meces", error=INTERRUPTED))
        what = column(failures(Results(runs)), "what")
        assert what[0] == "broken"
        assert "1 missing" in what[1]
        assert len(what) == 2

    def test_a_lines_length(self) -> None:
        assert summary_line(result()).endswith("during the move of 3.0 s, results equal")
        assert summary_line(result(CONTROL)) == "key-count: control: results equal"
        assert summary_line(result(error="x")) == "key-count: live: FAILED: x"
        stopped = result(error=INTERRUPTED)
        assert summary_line(stopped) == "key-count: live: interrupted (results equal)"
        assert "RESULTS WRONG" in summary_line(result(verdicts=[WRONG]))

    def test_equal_to_nothing_is_not_told_as_equal(self) -> None:
        """An output that the oracle has no row for has not been checked."""
        results = pair(verdicts=[RIGHT, Verification("other", 0, 0)])
        assert column(seamlessness(results), "oracle") == ["no rows", "equal"]
        assert "nothing came out" in summary_line(results.runs[0])


class TestComparisons:
    def test_times_of_batches(self) -> None:
        times = batch_times(result())
        assert times["batches"] == 2
        assert times["fetching"] == 100
        assert times["fetching, worst"] == 200
        assert times["rest"] == pytest.approx(500 - 10 - 100 - 100 - 20)

    def test_operators_of_a_batch_add_up(self) -> None:
        batch = report()["batches"][0]
        twice = [batch, batch | {"operator": "other", "seconds": 0.7}]
        times = batch_times(result(report=report(batches=twice)))
        assert (times["batches"], times["processing"]) == (1, 200)
        assert times["rest"] == pytest.approx(700 - 2 * 330)

    def test_breakdown(self) -> None:
        table = breakdown(Results([result("meces"), result(CONTROL)]))
        assert column(table, "strategy") == ["meces"]
        assert column(table, "fetching ms") == ["100"]

    def test_sensitivity(self) -> None:
        axis = QUICK.axes[0]
        loads = [axis.load(QUICK.scale, None, f) for f in axis.factors]
        runs = [result("live", loads[0]), result("live", loads[1], 1.0), result("drrs", loads[1])]
        table = sensitivity(axis, QUICK, Results(runs))
        assert table.columns == ("state size", "live", "drrs")
        assert column(table, "state size") == ["14 MB", "52 MB"]
        assert [cell[:4] for cell in column(table, "live")] == ["1.00", "2.00"]
        assert column(table, "drrs")[0] == "- / - / -"

    def test_plans(self) -> None:
        table = plans(Results([result(label) for label in (*PLANS, CONTROL)]))
        assert column(table, "plan") == ["all-at-once", "fluid", "batched", CONTROL]
        assert column(table, "steps") == ["6", "6", "6", "-"]

    def test_the_price_of_replicas(self) -> None:
        kept = Replication(copy_bytes=4_000_000, steady_bytes=50_000_000, seconds=10.0)
        rhino = result("rhino", replication=kept, timeline=timeline(0.75))
        table = replication(Results([rhino, result(CONTROL), result()]))
        assert column(table, "strategy") == ["rhino", "live", CONTROL]
        assert column(table, "replicas MB") == ["4.0", "-", "-"]
        assert column(table, "MB/s") == ["5.0", "-", "-"]
        assert float(column(table, "mean x control")[0]) == pytest.approx(1.5, abs=0.02)


class TestReport:
    def test_every_part_has_tables(self, quick: Evaluation) -> None:
        for part in PARTS:
            for table in tables_of(part, QUICK, quick.results):
                assert all(len(row) == len(table.columns) for row in table.rows)
        names = {part: len(tables_of(part, QUICK, quick.results)) for part in PARTS}
        assert names == {"workloads": 13, "meces": 2, "drrs": 4, "megaphone": 1, "rhino": 1}

    def test_markdown_and_json(self, quick: Evaluation) -> None:
        text = markdown(quick, False, {"meces": ["plots/a.png"]})
        assert text.count("\n## ") == len(PARTS)
        assert "![meces](plots/a.png)" in text
        assert "Interrupted" not in text
        document = json.loads(json.dumps(to_json(quick, False)))
        assert not document["partial"]
        assert len(document["runs"]) == len(quick.results.runs)
        assert set(document["parts"]) == set(PARTS)
        assert document["runs"][0]["latency"]["during"]["peak"] > 0

    def test_after_an_interruption(self, tmp_path: Path) -> None:
        """What is done is in the tables, in the file and in the pictures."""
        pytest.importorskip("matplotlib")
        made: list[Result] = []

        def run(spec: Spec, seconds: float, say: Say) -> Result:
            made.append(from_spec(spec))
            if len(made) == 5:  # the first one warms up
                raise KeyboardInterrupt
            return made[-1]

        evaluation = Evaluation(QUICK, run)
        evaluation.run()
        places = {name: tmp_path / name for name in ("json", "markdown", "plots")}
        places["plots"].mkdir()
        write_report(argparse.Namespace(**places), evaluation)
        text = places["markdown"].read_text()
        assert "Interrupted: these are the results so far." in text
        assert "| live" in text
        document = json.loads(places["json"].read_text())
        assert document["partial"]
        assert [r["error"] for r in document["runs"]] == [None, None, None, INTERRUPTED]
        assert document["failures"]["rows"] == []
        assert "Failed or wrong" not in text
        assert (places["plots"] / "key-count.png").stat().st_size > 10_000

    def test_nothing_at_all(self) -> None:
        evaluation = Evaluation(QUICK, from_spec, should_stop=lambda: True)
        evaluation.run()
        assert "# Evaluation" in markdown(evaluation, True, {})
        assert to_json(evaluation, True)["runs"] == []


class TestPlots:
    def test_pictures(self, quick: Evaluation, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        for part in ("meces", "drrs", "megaphone", "rhino"):
            for path in draw(part, QUICK, quick.results, tmp_path):
                assert path.read_bytes().startswith(b"\x89PNG")
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "drrs-sensitivity.png",
            "meces-key-count.png",
            "meces-time-of-a-batch.png",
            "megaphone-key-count.png",
            "rhino-key-count.png",
        ]

    def test_nothing_to_draw(self, tmp_path: Path) -> None:
        pytest.importorskip("matplotlib")
        for part in PARTS:
            assert draw(part, QUICK, Results(), tmp_path) == []
            assert draw(part, QUICK, Results([result(error="x")]), tmp_path) == []

    def test_curves_that_meet_in_a_panel_can_be_told_apart(self) -> None:
        """With few strategies any of them are neighbours."""
        parts = {
            label: [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
            for label, colour in COLOURS.items()
        }
        close = [
            (a, b)
            for a, b in itertools.combinations(parts, 2)
            if math.dist(parts[a], parts[b]) < 60
        ]
        assert close == []
        assert set(COLOURS) >= {*STRATEGIES, *PLANS, CONTROL}

    def test_few_curves_in_a_panel(self) -> None:
        assert panels_of(["live"]) == [["live"]]
        assert panels_of(["a", "live", "b", "c", "d", "e"]) == [
            ["live", "a", "b", "c", "d"],
            ["live", "e"],
        ]
        assert panels_of(["a", "b"]) == [["a", "b"]]


class TestCommand:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["--workloads", "q9"], "Known: key-count"),
            (["--strategies", "magic"], "strategy must be one of live"),
            (["--strategies", "megaphone:plan=odd"], "all-at-once, fluid, batched"),
            (["--strategies", "spark"], "bench rescale"),
            (["--json", "/no/such/folder/x.json"], "Create it first"),
            (["--repeat", "0"], "--repeat"),
        ],
    )
    def test_mistakes_are_found_early(
        self, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["bench", "evaluation", *words]) == 2
        assert said in capsys.readouterr().err

    def test_settings(self) -> None:
        args = argparse.Namespace(
            quick=True,
            parts=["drrs"],
            strategies=["live", "control", "live"],
            workloads=["q4"],
            seconds=3.0,
            rate=700.0,
            repeat=2,
        )
        settings = settings_from(args)
        assert settings.strategies == settings.compared == ("live",)
        assert (settings.steady, settings.rate, settings.repeat) == (3.0, 700.0, 2)
        assert settings.load("q4").rate == 700.0
        assert settings.scale == EvaluationSettings.quick().scale


def test_the_moves_window_is_the_one_that_counts() -> None:
    assert Results([result(CONTROL), result()]).window(result(CONTROL)) == MOVE
