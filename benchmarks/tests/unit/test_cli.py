"""`--from FILE`: tables, verdicts and pictures of runs that were made before, without Spark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.tests.unit.made_up_runs import (
    RIGHT,
    WRONG,
    four_runs,
    from_plan,
    in_turns,
    make_run,
)
from tests.unit.loadtest.timelines import back_to_back

from anabranch.cli.main import main
from anabranch.cli.progress import print_result
from anabranch.loadtest.latency import TimeWindow
from anabranch_bench.cli import bench, cluster
from anabranch_bench.cli.experiment import print_each, print_head
from anabranch_bench.experiments.backends import BackendSettings
from anabranch_bench.experiments.checkpoint_modes import CheckpointSettings, ModeResult
from anabranch_bench.experiments.cluster import ClusterSettings
from anabranch_bench.experiments.evaluation import Evaluation
from anabranch_bench.experiments.evaluation_plan import EvaluationSettings
from anabranch_bench.experiments.evaluation_report import from_json, markdown, to_json
from anabranch_bench.experiments.hybrid import HybridResult, HybridSettings
from anabranch_bench.experiments.recovery import Recovery, RecoverySettings
from anabranch_bench.experiments.rescale_findings import RescaleFindings, tables_of
from anabranch_bench.experiments.rescale_goals import MoveRate, SteadyCost
from anabranch_bench.experiments.throughput import ThroughputSettings
from anabranch_bench.probes.machine import CoreShares
from anabranch_bench.reports.report import side_by_side_line, write_json
from anabranch_bench.results.comparison import RunSet
from anabranch_bench.results.run_result import INTERRUPTED, Replication
from anabranch_bench.results.verdicts import SideBySide

SETTINGS = replace(
    EvaluationSettings.quick(), parts=("workloads", "drrs"), workloads=("key-count", "q4")
)


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AssertionError("a stored result needs no Java")

    for module in bench.BENCHMARKS:
        monkeypatch.setattr(module, "check_java", fail, raising=False)


def rescale_findings() -> RescaleFindings:
    """Turns and runs of their own, in two parts, with everything that a run can tell."""
    turns = [
        make_run("control", back_to_back(0.5, 30), repeat=0),
        make_run("live", back_to_back(0.7, 30), TimeWindow(10, 14), repeat=0),
        make_run("control", back_to_back(0.6, 30), repeat=1),
    ]
    runs = in_turns(turns) + four_runs(0)[1:]
    runs[0].cores = CoreShares(0.5, 0.02)
    runs.append(make_run("meces", back_to_back(0.5, 9)))
    runs[-1].error = INTERRUPTED
    return RescaleFindings(
        RunSet(runs),
        MoveRate("lazy", ((10**9, 1.9),), (1e9, 1.1e9)),
        SteadyCost((1.0, 1.1), (1.0, 1.0)),
        {"strategies": 120_000.0},
        ["a note"],
    )


def told(found: RescaleFindings) -> list[str]:
    tables = [table.markdown() for table in tables_of(found.results)]
    return [*tables, *map(str, found.verdicts()), str(found.capacity), *found.notes]


def test_rescale_says_the_same_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, path = rescale_findings(), tmp_path / "rescale.json"
    write_json(path, found.to_json(False, {}))
    stored = RescaleFindings.from_json(json.loads(path.read_text()))
    assert told(stored) == told(found)
    assert [r.timeline is not None for r in stored.results.runs] == [True] * 7
    again = tmp_path / "again.json"
    write_json(again, stored.to_json(False, {}))
    assert again.read_text() == path.read_text()
    plot = tmp_path / "rescale.png"
    pytest.importorskip("matplotlib")
    missed = any(verdict.passed is False for verdict in found.verdicts())
    assert missed
    assert main(["bench", "rescale", "--from", str(path), "--plot", str(plot)]) == 1
    said = capsys.readouterr().out
    assert all(table.markdown() in said for table in tables_of(found.results))
    assert found.machine["made"] in said
    assert plot.stat().st_size > 10_000


def test_a_run_of_two_parts_is_one_run(tmp_path: Path) -> None:
    """Else the connections that were seen in it would count twice."""
    (run,) = in_turns([make_run("live", back_to_back(0.5, 30), TimeWindow(10, 14))])
    again = make_run("live", back_to_back(0.5, 30), TimeWindow(10, 14), part="series")
    again.timeline = run.timeline
    in_turns([again])
    found = RescaleFindings(RunSet([run, again]))
    stored = RescaleFindings.from_json(json.loads(json.dumps(found.to_json(False, {}))))
    assert any("in 1 runs" in verdict.figures for verdict in found.verdicts())
    assert told(stored) == told(found)


def test_the_evaluation_says_the_same_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = Evaluation(SETTINGS, from_plan)
    evaluation.run()
    evaluation.results.runs[0].replication = Replication(5, 6, 7.0)
    path, report, plots = (tmp_path / name for name in ("e.json", "e.md", "plots"))
    write_json(path, to_json(evaluation, False))
    document = json.loads(path.read_text())
    stored = from_json(document)
    assert stored.settings == SETTINGS
    assert markdown(stored, False, {}) == markdown(evaluation, False, {})
    pytest.importorskip("matplotlib")
    words = ["--from", str(path), "--markdown", str(report), "--plots", str(plots)]
    assert main(["bench", "evaluation", *words]) == 0
    text = report.read_text()
    assert text.startswith(markdown(evaluation, False, {})[:200])
    assert len(list(plots.iterdir())) == len([line for line in text.splitlines() if "![" in line])
    assert "Interrupted" not in capsys.readouterr().err


def test_files_have_a_line_for_each_run(tmp_path: Path) -> None:
    path = tmp_path / "rescale.json"
    found = rescale_findings()
    write_json(path, found.to_json(False, {}))
    lines = path.read_text().splitlines()
    assert sum(line.startswith('{"part":') for line in lines) == len(found.results.runs)
    assert max(map(len, lines)) < 10_000


SIDES = [
    SideBySide.of_rates("aggregate", (3.0, 5.0, 4.0), (1.0, 2.0, 1.5), 2.0, "twice", "a note"),
    SideBySide("memory", "bytes a key", (78.0,), (), "at most 120", True),
]


def cluster_results() -> list[Any]:
    """A move between two times without one, and a loss."""
    runs = [
        make_run("control", back_to_back(0.5, 30), part="1gbit"),
        make_run("live", back_to_back(0.5, 30), TimeWindow(10, 14), "1gbit"),
        make_run("control", back_to_back(0.5, 30), part="1gbit", repeat=1),
    ]
    for run in in_turns(runs):
        run.verifications = [RIGHT]
    seconds = "seconds without a batch", (13.0,), (121.0,)
    return [*runs, SideBySide.of_seconds("host cut off", *seconds, "no longer")]


RESULTS: list[tuple[str, Any, list[Any], Any]] = [
    ("cluster", ClusterSettings(), cluster_results(), cluster.line),
    ("throughput", ThroughputSettings(), SIDES, side_by_side_line),
    ("backends", BackendSettings(), SIDES, side_by_side_line),
    (
        "recovery",
        RecoverySettings(),
        [Recovery("hybrid", 0.5, [15.0, 13.0], [0.4], [20.0]), Recovery("spark", 0.5, [14.0])],
        Recovery.line,
    ),
    (
        "hybrid",
        HybridSettings(),
        [HybridResult("hybrid", (0.3, 0.2), 30_000.0, 547.0, 85.0, 0.795, 23.3, 1.6)],
        HybridResult.line,
    ),
    (
        "checkpoints",
        CheckpointSettings(),
        [ModeResult("full", 0, 5e4, 6e4, 2.7, None, 3e8, 3.2, 1.0, 0, 0, 3.8)],
        str,
    ),
]


@pytest.mark.parametrize(("name", "settings", "results", "line"), RESULTS)
def test_others_say_the_same_from_a_file(
    name: str,
    settings: Any,
    results: list[Any],
    line: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_head(name, settings, as_json=True)
    print_each(results, line, as_json=True)
    print_result("", {"passed": True})  # what some of them tell at the end
    path = tmp_path / "stored.jsonl"
    path.write_text(capsys.readouterr().out)
    assert main(["bench", name, "--from", str(path)]) == 0
    said = capsys.readouterr().out
    print_each(results, line, as_json=False)
    assert capsys.readouterr().out in said
    assert re.match(rf"From {path}, made \d{{4}}-", said)


@pytest.mark.parametrize("place", [0, 1, -1])
def test_a_cluster_that_did_something_wrong(
    place: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = cluster_results()
    if place == -1:
        results[place] = replace(results[place], passed=False)
    else:
        results[place].verifications = [WRONG]
    print_head("cluster", ClusterSettings(), as_json=True)
    print_each(results, cluster.line, as_json=True)
    path = tmp_path / "stored.jsonl"
    path.write_text(capsys.readouterr().out)
    assert main(["bench", "cluster", "--from", str(path)]) == 1
    assert ("Failed or wrong" in capsys.readouterr().out) == (place != -1)


@pytest.mark.parametrize(
    ("content", "words", "said"),
    [
        (None, ["rescale"], "Give a file that `anabranch bench rescale` made with --json"),
        ("[]", ["evaluation"], "has no stored benchmark"),
        ("", ["throughput"], "has no stored benchmark"),
        ("no JSON", ["hybrid"], "`anabranch bench hybrid` made with --json"),
        ({"benchmark": "evaluation"}, ["rescale"], "Use `anabranch bench evaluation --from"),
        ({"benchmark": "rescale"}, ["rescale", "--json", "x.json"], "Leave --json out"),
        ({"benchmark": "recovery"}, ["recovery", "--json"], "Leave --json out"),
    ],
)
def test_mistakes(
    content: Any, words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "stored.json"
    if content is not None:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert main(["bench", *words, "--from", str(path)]) == 2
    assert said in capsys.readouterr().err
