"""Benchmarks with sizes at which their figures mean nothing: they run, and end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.processes import workers_alive

from anabranch.state import backend
from anabranch_bench.experiments import (
    backends,
    checkpoint_modes,
    hybrid,
    recovery,
    rescale,
    rescale_findings,
)
from anabranch_bench.runs import key_count_runs, turns

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def quiet(text: str) -> None:
    pass


def test_recovery(tmp_path: Path) -> None:
    settings = recovery.RecoverySettings(
        (0.004,), ("hybrid", "spark"), rows=200, repeat=2, settle_seconds=3.0
    )
    before = set(workers_alive())
    found = list(recovery.RecoveryBench(tmp_path, settings, quiet).run())
    assert [r.side for r in found] == ["hybrid", "spark"]
    assert all(len(r.seconds) == 2 and min(r.seconds) > 0 for r in found)
    assert len(found[0].whole_seconds) == 2
    assert set(workers_alive()) == before
    assert not list(tmp_path.iterdir()), "folders of drivers that were killed"


def test_hybrid(spark: SparkSession, tmp_path: Path) -> None:
    settings = hybrid.HybridSettings(state_gb=0.004, rows=300, batches=3)
    found = {m.state: m for m in hybrid.HybridBench(spark, tmp_path, settings, quiet).run()}
    assert set(found) == set(hybrid.STATES)
    assert all(len(m.batch_seconds) == 3 and m.rescale_seconds > 0 for m in found.values())
    assert found["remote"].hit_rate is not None
    assert found["local"].hit_rate is not None
    assert found["remote"].hit_rate < found["local"].hit_rate
    assert found["remote"].state_mb < found["local"].state_mb


def test_backends(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "MEMORY_BYTES_MIN", 0)
    settings = backends.BackendSettings(
        rows=4_000,
        keys=3_000,
        batches=2,
        native_rows=1_000,
        state_memory_bytes=256 << 10,
        beyond_batches=3,
        beyond_rows=4_000,
    )
    bench = backends.BackendsBench(spark, tmp_path, settings, quiet)
    found = {comparison.part: comparison for comparison in bench.run(backends.PARTS)}
    assert set(found) == set(backends.PARTS)
    assert all(comparison.ours for comparison in found.values())
    assert "4,000 rows a batch" in found["rows"].note


def test_checkpoints(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_count_runs, "SETTLE_SECONDS", 1.0)
    monkeypatch.setattr(key_count_runs, "CAPACITY_ROWS", 5_000)
    settings = checkpoint_modes.CheckpointSettings(state_gb=0.05, rate=4_000.0, seconds=2.0)
    bench = checkpoint_modes.CheckpointsBench(spark, tmp_path, settings, quiet)
    found = list(bench.run(("changelog", "unaligned")))
    assert not any(result.error for result in found)
    assert [bool(result.rows_deferred) for result in found] == [False, True]


def test_live_and_its_control_in_turns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WARM_SECONDS", "WARM_AGAIN_SECONDS", "REST_SECONDS"):
        monkeypatch.setattr(turns, name, 2.0)
    monkeypatch.setattr(key_count_runs, "SETTLE_SECONDS", 2.0)
    settings = rescale.RescaleSettings(
        state_gb=0.01,
        rate=2000,
        timing=key_count_runs.Timing(1.0, 2.0),
        strategies=("live", "lazy"),
        live_repeat=2,
        series_gb=(0.01,),  # not asked for, so it has no runs
    )
    bench = rescale.RescaleBench(spark, tmp_path, settings, quiet)
    bench.run(("strategies",))
    assert not bench.found.has_failed, bench.found.notes
    seen = [(run.label, run.repeat) for run in bench.found.results.runs if run.is_turn]
    live = [("live", number) for number in (0, 1)]
    control = [("control", number) for number in (0, 1, 2)]
    assert seen == [control[0], live[0], control[1], live[1], control[2]]
    for run in bench.found.results.runs:
        assert run.timeline is not None
        assert run.timeline.end > (run.move.end if run.move else 2.0)
        if run.move is not None:
            assert run.phase("during").rows >= 0.9 * run.load.rate * run.move.seconds
            assert run.report["groups"]
    met = {verdict.name: verdict.figures for verdict in bench.found.verdicts()}
    assert "times" in met["live: mean latency to control's"]
    shown = "\n".join(table.markdown() for table in rescale_findings.tables_of(bench.found.results))
    assert "nan" not in shown
    assert "in the windows of live" in shown
    assert "in the windows of others" in shown
