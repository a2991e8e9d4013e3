"""`anabranch run` finds mistakes before anything heavy starts, and tells what it measured."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.arguments import seconds as parse_seconds
from anabranch.cli.main import main
from anabranch.coordinator.move_handle import MoveReport
from anabranch.errors import InvalidArgument
from anabranch.loadtest.latency import Batch, Timeline, TimeWindow
from anabranch.loadtest.schedule import OpenLoop
from anabranch_bench.cli import run as command
from anabranch_bench.reports.report import run_document
from anabranch_bench.results.loads import RunLoad
from anabranch_bench.results.run_result import INTERRUPTED, MeasuredMove, RunResult
from anabranch_bench.runs.loaded_run import CATCHING_UP, Rescale, RunSettings
from anabranch_bench.runs.under_load import Moment, told
from anabranch_bench.workloads.registry import FAMILIES, find_family
from anabranch_bench.workloads.verify import Verification


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake that is found too late fails here."""

    def too_late() -> None:
        raise AssertionError("Java was looked for")

    monkeypatch.setattr(command, "check_java", too_late)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nexmark", "--query", "q9"], "Known: q0, q1"),
        (["nexmark", "--query", "q4", "--strategy", "magic"], "strategy must be one of live"),
        (["nexmark", "--query", "q4", "--delayed", "0.1", "--delay-ms", "9000"], "watermark"),
        (["nexmark", "--query", "q4", "--hot-auction-ratio", "0"], "at least 1"),
        (["auction", "--rescale", "3"], "WORKERS@TIME"),
        (["auction", "--rescale", "0@5s"], "WORKERS@TIME"),
        (["auction", "--rescale", "3@5h"], "WORKERS@TIME"),
        (["auction", "--rescale", "3@1m", "--duration", "1m"], "longer --duration"),
        (["auction", "--duration", "0s"], "above 0"),
        (["auction", "--rescale", "3@50s", "--duration", "40s"], "longer --duration"),
        (["auction", "--workers", "0"], "between 1 and 256"),
        (["auction", "--rescale", "300@5s"], "between 1 and 256"),
        (["key-count", "--payload-bytes", "9"], "--preload"),
        (["key-count", "--keys", "0"], "at least one key"),
        (["key-count", "--json", "/no/such/folder/x.json"], "Create it first"),
    ],
)
def test_mistakes_are_found_early(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nexmrk"], "nexmark"),
        (["nexmark"], "--query"),
        (["auction", "--rate", "0"], "above 0"),
        (["auction", "--duration", "soon"], "--duration"),
    ],
)
def test_usage(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", *words])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    family = find_family(name)
    assert family.name == name
    with pytest.raises(SystemExit, match="0"):
        main(["run", name, "--help"])
    assert "--rescale" in capsys.readouterr().out
    workloads = [] if name == "riotbench" else family.standard(1000)
    assert all(w.outputs and w.description for w in workloads)


def test_unknown_family() -> None:
    with pytest.raises(InvalidArgument, match="Known: nexmark"):
        find_family("nothing")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("500ms", 0.5), ("2m", 120), ("1.5s", 1.5), (".5m", 30), ("0", 0)],
)
def test_times(text: str, seconds: float) -> None:
    """Durations and rescales are written in the same way."""
    assert parse_seconds(text) == seconds
    assert command.parse_rescale(f"3@{text}") == Rescale(3, seconds)


@pytest.mark.parametrize("text", ["", "s", ".", "-1", "1h", "1 s", "nan", "inf", "1.2.3"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write 30s, 500ms or 2m"):
        parse_seconds(text)


# -- what is told --


def report() -> MoveReport:
    return MoveReport("live", "done", 2.0, ("w1", "w2"), ("w1", "w2", "w3"), 85, 1000, {}, ())


def moved(start: float, end: float, told: MoveReport | None = None) -> MeasuredMove:
    told = told or report()
    return MeasuredMove(TimeWindow(start, end), told.as_json(), str(told))


def result(right: bool = True) -> RunResult:
    """A batch a second; those between 4 and 6 seconds take twice as long."""
    load = OpenLoop(0, 1000.0, 100.0)
    batches = [
        Batch(at * 100, at * 100 + 100, 1000.0 + at, 1001.5 + at + (0.5 if 4 <= at < 6 else 0))
        for at in range(10)
    ]
    settings = RunSettings(100, 10, rescales=(Rescale(3, 4),), verify=True)
    found = RunResult(RunLoad("key-count", 100), settings.case)
    found.timeline, found.rows, found.output_rows = Timeline(load, batches), 1000, 77
    found.moves = [moved(4.0, 6.0)]
    found.verifications = [Verification("counts", 5, 5 if right else 4, (), 0 if right else 1)]
    return found


def test_phases() -> None:
    phases = dict(result().phases())
    assert list(phases) == [f"{w} 2 -> 3 workers" for w in ("before", "during", "after")]
    assert phases["before 2 -> 3 workers"].peak == pytest.approx(1.5)
    assert phases["during 2 -> 3 workers"].peak == pytest.approx(2.0)
    assert phases["after 2 -> 3 workers"].peak == pytest.approx(1.5)


def test_without_a_rescale_there_is_one_phase() -> None:
    found = result()
    found.moves = []
    ((name, latency),) = found.phases()
    assert (name, latency.rows) == ("all", 1000)
    found.timeline = None
    assert found.phases() == []


def test_summary(capsys: pytest.CaptureFixture[str]) -> None:
    command.show_summary(result(), True)
    said = capsys.readouterr().out
    assert "1,000 rows in, 77 rows out." in said
    assert "during 2 -> 3 workers" in said
    assert "2,000 ms" in said
    assert "key groups moved  85" in said
    assert "counts: all 5 rows are right" in said
    assert "nan" not in said


def test_a_wrong_result_is_loud(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(right=False)
    found.error = INTERRUPTED
    command.show_summary(found, True)
    output = capsys.readouterr()
    assert "WRONG" in output.err
    assert "Interrupted." in output.out
    assert found.is_right is False


def test_json() -> None:
    said: dict[str, Any] = json.loads(json.dumps(run_document(result())))
    names = [phase["phase"] for phase in said["latency"]]
    assert names == [f"{w} 2 -> 3 workers" for w in ("before", "during", "after")]
    assert said["latency"][1]["peak"] == pytest.approx(2.0)
    assert said["reconfigurations"][0]["report"]["groups"] == 85
    assert len(said["batches"]) == 10
    assert said["verdicts"][0]["right"] is True
    cells = [value for phase in said["latency"] for value in phase.values()]
    assert not any(isinstance(value, float) and math.isnan(value) for value in cells)


def test_json_has_phases_of_the_same_name() -> None:
    """Out, in, and out again."""
    found = result()
    back = replace(report(), workers_before=("w1", "w2", "w3"), workers_after=("w1", "w2"))
    found.moves = [moved(2.0, 3.0), moved(4.0, 6.0, back), moved(7.0, 8.0)]
    phases = run_document(found)["latency"]
    out = [phase for phase in phases if phase["phase"] == "during 2 -> 3 workers"]
    assert len(phases) == 9
    assert [phase["peak"] for phase in out] == pytest.approx([1.5, 2.0])
    assert phases[4]["peak"] == pytest.approx(2.0)


def test_display_is_a_line_a_second(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("anabranch_bench.cli.run.time.monotonic", lambda: now[0])
    display = command.Display(RunSettings(100, 10))
    for seconds in (0.0, 0.5, 1.0, 1.4):
        now[0] = 100 + seconds
        display.show(
            Moment("load", seconds, 5, 0.25, lambda: {"w1": 128}, 0.5 if seconds else None)
        )
    lines = capsys.readouterr().out.splitlines()
    assert sum("250 ms" in line for line in lines) == 2
    assert "w1 128  [##########..........]  50%" in lines[-1]


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Wrong results count more than an interruption."""
    from contextlib import nullcontext

    from anabranch.loadtest import session
    from anabranch_bench.runs import loaded_run

    found = result()

    class Run:
        def __init__(self, *_: Any) -> None:
            self.result = found

        def run(self) -> None: ...

    monkeypatch.setattr(command, "check_java", lambda: None)
    monkeypatch.setattr(session, "spark_session", lambda *_: nullcontext((None, tmp_path)))
    monkeypatch.setattr(loaded_run, "WorkloadRun", Run)
    words = ["run", "key-count", "--json", str(tmp_path / "out.json")]
    assert main(words) == 0
    assert json.loads((tmp_path / "out.json").read_text())["rows"] == 1000
    found.error = INTERRUPTED
    assert main(words) == 130
    found.verifications = [Verification("counts", 1, 0, (), 1)]
    assert main(words) == 1


def test_catching_up_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time that it has changed, and from time to time if one batch has all of it."""
    now = [100.0]
    monkeypatch.setattr("anabranch_bench.cli.run.time.monotonic", lambda: now[0])
    display = command.Display(RunSettings(100, 10))
    for at, left in ((0.0, 5000), (0.5, 5000), (1.0, 4000), (1.5, 4000), (6.5, 4000), (7.0, 0)):
        now[0] = 100.0 + at
        moment = Moment(CATCHING_UP, -1.0, 10, None, left=left)
        display.show(moment)
    said = [f"catching up, {left} rows left" for left in ("5,000", "4,000", "4,000")]
    assert capsys.readouterr().out.splitlines() == said
    assert told(replace(moment, left=1234)) == "catching up, 1,234 rows left"
