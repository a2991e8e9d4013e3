"""Tables, lines and what they are made of, from made-up runs."""

from __future__ import annotations

import pytest
from benchmarks.tests.unit.made_up_runs import (
    LOAD,
    MOVE,
    RIGHT,
    WRONG,
    column,
    make_run,
    pair,
    report,
    result,
    tables,
    timeline,
)
from tests.unit.loadtest.timelines import back_to_back

from anabranch.loadtest.latency import TimeWindow
from anabranch_bench.experiments.evaluation_plan import PLANS, EvaluationSettings
from anabranch_bench.probes.machine import CoreShares
from anabranch_bench.reports.comparison_tables import (
    batch_times,
    breakdown,
    plans,
    replication,
    sensitivity,
    typical_batches,
)
from anabranch_bench.reports.pictures import batch_totals
from anabranch_bench.reports.report import summary_line
from anabranch_bench.reports.run_tables import failures, parameters, seamless, strategies
from anabranch_bench.reports.tables import Table
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import INTERRUPTED, MeasuredMove, Replication, RunResult
from anabranch_bench.results.verdicts import DISTURBED
from anabranch_bench.workloads.verify import Verification

QUICK = EvaluationSettings.quick()


def fetching(milliseconds: float, repeat: int) -> RunResult:
    """A run whose batches all fetch for so long."""
    batches = [batch | {"load_ms": milliseconds} for batch in report()["batches"]]
    return result("meces", moves=[MeasuredMove(MOVE, report(batches=batches))], repeat=repeat)


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
        (row,) = parameters(pair(), 1000).rows
        assert row[0] == "key-count"
        assert row[2:] == ("1,000", "4,000", "25%")

    def test_seamlessness_has_the_control_run_below(self) -> None:
        table = seamless(pair(stall=2.0))
        assert column(table, "run") == ["live", CONTROL]
        assert column(table, "peak s") == ["1.00 / 3.00 / 1.00", "1.00 / 1.00 / 1.00"]
        assert column(table, "oracle") == ["equal", "equal"]
        assert column(table, "verdict")[0].startswith("disturbed: peak")

    def test_strategies(self) -> None:
        results = RunSet([result(), result(CONTROL), result("meces", stall=1.0)])
        table = strategies(LOAD.title, results)
        assert column(table, "strategy") == ["live", "", "", "meces", "", "", CONTROL, "", ""]
        assert column(table, "phase")[:3] == ["before", "during", "after"]
        during = table.rows[4]
        assert during[-6:] == ("2.00 / 1.42", "3.00", "5.0", "21", "equal", DISTURBED)

    def test_repeats_show_their_spread(self) -> None:
        results = RunSet([result(stall=s, repeat=n) for n, s in enumerate((0.0, 1.0))])
        assert "live 1.00 to 2.00 s" in strategies(LOAD.title, results).note

    def test_failures(self) -> None:
        runs = [result(error="broken"), result(verifications=[WRONG]), result(CONTROL)]
        runs.append(result("meces", error=INTERRUPTED))
        what = column(failures(RunSet(runs)), "what")
        assert what[0] == "broken"
        assert "1 missing" in what[1]
        assert len(what) == 2

    def test_a_lines_length(self) -> None:
        assert summary_line(result()).endswith("during the move of 3.0 s, results equal")
        assert summary_line(result(CONTROL)) == "key-count: control: results equal"
        assert summary_line(result(error="x")) == "key-count: live: FAILED: x"
        stopped = result(error=INTERRUPTED)
        assert summary_line(stopped) == "key-count: live: interrupted (results equal)"
        assert "RESULTS WRONG" in summary_line(result(verifications=[WRONG]))

    def test_equal_to_nothing_is_not_told_as_equal(self) -> None:
        """An output that the oracle has no row for has not been checked."""
        results = pair(verifications=[RIGHT, Verification("other", 0, 0)])
        assert column(seamless(results), "oracle") == ["no rows", "equal"]
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
        times = batch_times(result(moves=[MeasuredMove(MOVE, report(batches=twice))]))
        assert (times["batches"], times["processing"]) == (1, 200)
        assert times["rest"] == pytest.approx(700 - 2 * 330)

    def test_repeats_count_alike_in_the_times_of_batches(self) -> None:
        """In the table and in its picture: neither the first one nor the lower one."""
        runs = [fetching(ms, repeat) for repeat, ms in enumerate((900, 100, 500))]
        (times,) = typical_batches(RunSet(runs)).values()
        assert times["fetching"] == 500
        assert column(breakdown(RunSet(runs)), "fetching ms") == ["500"]
        assert sorted(batch_totals(RunSet(runs), "meces")) == pytest.approx([500, 630, 1030])
        (times,) = typical_batches(RunSet(runs[1:])).values()
        assert times["fetching"] == 500, "of two, the worse one"

    def test_breakdown(self) -> None:
        table = breakdown(RunSet([result("meces"), result(CONTROL)]))
        assert column(table, "strategy") == ["meces"]
        assert column(table, "fetching ms") == ["100"]

    def test_sensitivity(self) -> None:
        axis = QUICK.axes[0]
        loads = [axis.load(QUICK.scale, None, f) for f in axis.factors]
        runs = [result("live", loads[0]), result("live", loads[1], 1.0), result("drrs", loads[1])]
        table = sensitivity(
            axis.name, axis.places(QUICK.scale, None), QUICK.axis_strategies, RunSet(runs)
        )
        assert table.columns == ("state size", "live", "drrs")
        assert column(table, "state size") == ["14 MB", "52 MB"]
        assert [cell[:4] for cell in column(table, "live")] == ["1.00", "2.00"]
        assert column(table, "drrs")[0] == "- / - / -"

    def test_plans(self) -> None:
        table = plans(PLANS, RunSet([result(label) for label in (*PLANS, CONTROL)]))
        assert column(table, "plan") == ["all-at-once", "fluid", "batched", CONTROL]
        assert column(table, "steps") == ["6", "6", "6", "-"]

    def test_the_price_of_replicas(self) -> None:
        kept = Replication(copy_bytes=4_000_000, steady_bytes=50_000_000, seconds=10.0)
        rhino = result("rhino", replication=kept, timeline=timeline(0.75))
        table = replication(RunSet([rhino, result(CONTROL), result()]))
        assert column(table, "strategy") == ["rhino", "live", CONTROL]
        assert column(table, "replicas MB") == ["4.0", "-", "-"]
        assert column(table, "MB/s") == ["5.0", "-", "-"]
        assert float(column(table, "mean x control")[0]) == pytest.approx(1.5, abs=0.02)


class TestRescale:
    def test_the_table_has_all_windows(self) -> None:
        runs = [
            make_run("live", back_to_back(0.5, 30), TimeWindow(10, 14)),
            make_run("control", back_to_back(0.5, 30)),
        ]
        text = tables(runs)
        assert text.count("before") == text.count("during") == text.count("after") == 2
        assert "1.00 / 1.00" in text
        assert "85" in text

    def test_no_throughput_is_known_before_the_first_batch_has_ended(self) -> None:
        runs = [make_run("live", back_to_back(4, 30), TimeWindow(10, 14))]
        text = tables(runs)
        (before,) = [line for line in text.splitlines() if "before" in line]
        # It is looked at from 2 s on; the first batch takes 4.
        cells = [cell.strip() for cell in before.split("|")]
        assert cells[8:10] == ["-", "-"]  # rows a second, and to control's
        assert "nan" not in text

    def test_a_line_tells_what_became_of_the_cores(self) -> None:
        run = make_run("live", back_to_back(0.5, 30), TimeWindow(10, 14))
        assert "cores" not in summary_line(run)
        run.cores = CoreShares(0.6, 0.123)
        assert "cores 60% busy, 12.3% stolen" in summary_line(run)
