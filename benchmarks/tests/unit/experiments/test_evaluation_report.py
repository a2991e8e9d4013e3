"""Tables, files and pictures of the evaluation, from made-up runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from benchmarks.tests.unit.made_up_runs import from_plan, result

from anabranch.loadtest.loaded_query import Say
from anabranch_bench.cli.evaluation import report as write_report
from anabranch_bench.experiments.evaluation import Evaluation
from anabranch_bench.experiments.evaluation_plan import PARTS, EvaluationSettings, PlannedRun
from anabranch_bench.experiments.evaluation_report import draw, markdown, tables_of, to_json
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import INTERRUPTED, RunResult

QUICK = EvaluationSettings.quick()


@pytest.fixture(scope="module")
def quick() -> Evaluation:
    """All of a quick evaluation."""
    evaluation = Evaluation(QUICK, from_plan)
    evaluation.run()
    return evaluation


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
        made: list[RunResult] = []

        def run(planned: PlannedRun, seconds: float, say: Say) -> RunResult:
            made.append(from_plan(planned))
            if len(made) == 5:  # the first one warms up
                raise KeyboardInterrupt
            return made[-1]

        evaluation = Evaluation(QUICK, run)
        evaluation.run()
        places = {name: tmp_path / name for name in ("json", "markdown", "plots")}
        places["plots"].mkdir()
        write_report(argparse.Namespace(stored=None, **places), evaluation)
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
        evaluation = Evaluation(QUICK, from_plan, should_stop=lambda: True)
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
            assert draw(part, QUICK, RunSet(), tmp_path) == []
            assert draw(part, QUICK, RunSet([result(error="x")]), tmp_path) == []
