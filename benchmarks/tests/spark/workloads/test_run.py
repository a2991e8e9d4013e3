"""`anabranch run` as users start it, interrupted while a rescale runs."""

from __future__ import annotations

import json
import re
import signal
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.interrupted import interrupt

from anabranch_bench.runs.loaded_run import Rescale, RunSettings, WorkloadRun
from anabranch_bench.runs.under_load import Moment
from anabranch_bench.workloads.keycount import KeyCountConfig, KeyCountWorkload


def test_a_run_with_rescales(spark: SparkSession, tmp_path: Path) -> None:
    """Two rescales, the second while the first may still run."""
    settings = RunSettings(
        2000, 4, workers=1, rescales=(Rescale(2, 1.0), Rescale(1, 2.5)), verify=True
    )
    workload = KeyCountWorkload(KeyCountConfig(keys=500, preload=True))
    moments: list[Moment] = []
    result = WorkloadRun(spark, tmp_path, workload, settings, moments.append).run()
    assert [str(v) for v in result.verifications] == ["counts: all 500 rows are right"]
    assert result.rows >= 500 + 4 * 2000
    assert not result.is_interrupted
    assert len(result.moves) == 2
    assert result.moves[1].report["outcome"] == "done"
    assert {m.phase for m in moments} >= {"warming up", "load"}
    assert any(m.latency for m in moments)
    during = [latency for name, latency in result.phases() if name.startswith("during")]
    assert all(latency.rows for latency in during)


@pytest.mark.soak
def test_a_rescale_that_is_due_when_nobody_looks(spark: SparkSession, tmp_path: Path) -> None:
    """Something takes so long that the load should have ended; the rescale still comes."""
    settings = RunSettings(1000, 1, workers=1, rescales=(Rescale(2, 0.95),), verify=True)
    workload = KeyCountWorkload(KeyCountConfig(keys=100, preload=True))

    def show(moment: Moment) -> None:
        if moment.phase == "load" and moment.seconds < settings.duration:
            time.sleep(settings.duration + 0.2 - moment.seconds)

    result = WorkloadRun(spark, tmp_path, workload, settings, show).run()
    (move,) = result.moves
    assert move.window.start > settings.duration
    assert move.report["outcome"] == "done"
    assert result.is_right


def test_stopping_early_keeps_what_was_done(spark: SparkSession, tmp_path: Path) -> None:
    workload = KeyCountWorkload(KeyCountConfig(keys=500, preload=True))
    settings = RunSettings(2000, 600, verify=True)
    seconds: list[float] = []
    run = WorkloadRun(
        spark,
        tmp_path,
        workload,
        settings,
        lambda moment: seconds.append(moment.seconds),
        lambda: bool(seconds and seconds[-1] > 1.0),
    )
    result = run.run()
    assert result.is_interrupted
    assert result.is_right
    assert result.verifications
    assert result.timeline is not None
    assert result.timeline.end > 0


@pytest.mark.slow
def test_sigterm_has_a_summary_and_one_last_line(tmp_path: Path) -> None:
    """It does not wait for the batch that runs, and shows nothing of Py4J."""
    words = ["run", "key-count", "--keys", "100", "--rate", "1000", "--duration", "10m"]
    words += ["--json", str(tmp_path / "out.json")]
    started = re.compile(r"warming up, [1-9][\d,]* rows")
    rest = interrupt(words, lambda line: bool(started.match(line)), by=signal.SIGTERM)
    assert "Interrupted." in rest
    assert rest.splitlines()[-1] == "anabranch: ended by SIGTERM."
    assert not re.search("traceback|py4j", rest, re.IGNORECASE)
    assert json.loads((tmp_path / "out.json").read_text())["interrupted"] is True


@pytest.mark.soak
def test_ctrl_c_tells_what_was_done(tmp_path: Path) -> None:
    words = ["run", "key-count", "--keys", "100", "--rate", "1000", "--duration", "10m"]
    words += ["--rescale", "3@2s", "--verify", "--json", str(tmp_path / "out.json")]
    rest = interrupt(words, lambda line: " s " in line and "w3" in line)
    assert "Interrupted." in rest
    assert "counts: all 100 rows are right" in rest
    assert json.loads((tmp_path / "out.json").read_text())["interrupted"] is True
