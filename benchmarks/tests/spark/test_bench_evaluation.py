"""`anabranch bench evaluation` on Spark: interrupted, and (soak) whole."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.interrupted import interrupt

from anabranch.cli.main import main
from anabranch.loadtest import session
from anabranch.loadtest.latency import Timeline
from anabranch_bench.cli import evaluation as command
from anabranch_bench.experiments.evaluation_loads import Scale
from anabranch_bench.results.cases import CONTROL
from anabranch_bench.results.run_result import INTERRUPTED

KEYS = 2000
WAIT = 480


@pytest.fixture
def _small(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command with the tests' session and a small state."""
    scale = Scale(keys=KEYS, payload_bytes=16, key_count_rate=1000, key_groups=16)
    monkeypatch.setattr(Scale, "quick", lambda: scale)
    monkeypatch.setattr(session, "spark_session", lambda: nullcontext((spark, tmp_path / "runs")))


def words_for(folder: Path, *strategies: str) -> list[str]:
    return [
        *("bench", "evaluation", "--quick", "--parts", "workloads", "rhino"),
        *("--workloads", "key-count", "--strategies", *strategies, "--seconds", "0.5"),
        *("--json", str(folder / "out.json"), "--markdown", str(folder / "out.md")),
    ]


def document_in(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return found


def outcomes(document: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(run["strategy"], run["error"]) for run in document["runs"]]


@pytest.mark.soak
@pytest.mark.usefixtures("_small")
def test_ctrl_c_keeps_the_runs_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run that it ends, with replicas and a rescale, tells what it has."""
    seen: list[str] = []

    def on_progress(text: str) -> None:
        if re.search(r": rhino: [2-9] s under load", text):
            seen.append(text)
            if len(seen) == 2:  # the first one may be told just before the rescale
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(command, "show_progress", on_progress)
    assert main(words_for(tmp_path, "rhino")) == 130
    document = document_in(tmp_path)
    assert document["partial"] is True
    assert outcomes(document) == [(CONTROL, None), ("rhino", INTERRUPTED)]
    assert document["failures"]["rows"] == []
    for run in document["runs"]:
        (verdict,) = run["verdicts"]
        assert verdict["right"]
        assert verdict["expected_rows"] == KEYS
        rows = sum(batch.rows for batch in Timeline.from_json(run["timeline"]).batches)
        assert 0 < rows < run["rows"] - KEYS
    control, rhino = document["runs"]
    assert control["move_window"] is None
    assert control["replication"] is None
    assert rhino["replication"]["copy_bytes"] > KEYS / 3 * 16
    assert rhino["report"]["strategy"] == "rhino"
    text = (tmp_path / "out.md").read_text()
    assert "Interrupted: these are the results so far." in text
    assert re.search(r"\| key-count +\| rhino .*\| interrupted", text)
    assert re.search(r"\| +\| control .*\| equal", text)
    said = capsys.readouterr().out
    assert "2 runs and 1 that warm up, about" in said
    assert "rhino: interrupted (results equal)" in said


# -- as users start it --


@pytest.mark.soak
def test_the_command_with_riotbench_and_pictures(tmp_path: Path) -> None:
    chosen, strategies = ["key-count", "stats", "pred"], ["live", "rhino"]
    words = ["--parts", "workloads", "--workloads", *chosen, "--strategies", *strategies]
    words += ["--json", "out.json", "--markdown", "out.md", "--plots", "plots"]
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", "bench", "evaluation", "--quick", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = document_in(tmp_path)
    assert len(document["runs"]) == len(chosen) * 3
    verdicts = [verdict for run in document["runs"] for verdict in run["verdicts"]]
    assert all(v["right"] and v["expected_rows"] for v in verdicts)
    assert all(run["error"] is None for run in document["runs"])
    assert document["partial"] is False
    kept = [run["replication"] for run in document["runs"] if run["strategy"] == "rhino"]
    assert all(replication["copy_bytes"] > 0 for replication in kept)
    pictures = {path.name for path in (tmp_path / "plots").iterdir()}
    assert pictures == {"key-count.png", "riotbench-stats.png", "riotbench-pred.png"}
    text = (tmp_path / "out.md").read_text()
    assert all(f"(plots/{name})" in text for name in pictures)


@pytest.mark.soak
def test_ctrl_c_in_a_terminal(tmp_path: Path) -> None:
    """It goes to the whole group: JVM and workers get it too."""
    words = ["--parts", "workloads", "--workloads", "key-count", "--strategies", "live"]
    words = ["bench", "evaluation", "--quick", *words, "--seconds", "6", "--json", "out.json"]
    rest = interrupt(
        words,
        lambda line: line.startswith("[2/2"),
        folder=tmp_path,
        seconds_later=7,  # less than its load takes
    )
    assert "key-count: control: interrupted (results equal)" in rest
    assert "Interrupted: these are the results so far." in rest
    assert outcomes(document_in(tmp_path)) == [("live", None), (CONTROL, INTERRUPTED)]
