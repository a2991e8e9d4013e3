"""The benchmark of the autoscaler, on the simulated plant."""

from __future__ import annotations

import json

import pytest

from anabranch.cli.main import main
from anabranch.loadtest.scaled_run import ScaledRun
from anabranch_bench.experiments.autoscale import (
    AutoscaleBench,
    best_static,
    simulate_ways,
    table,
    telling,
)

SMALL = AutoscaleBench(before=30, during=180, after=120, target=1.5, static=(2, 6, 7, 8))


def test_the_autoscaler_is_between_cheap_and_never_late() -> None:
    runs = {run.name: run for run in simulate_ways(SMALL, seed=3)}
    ours, best = runs["autoscaler"], best_static(list(runs.values()))
    assert best is not None
    assert best.late_share <= 0.01
    assert ours.worker_seconds < best.worker_seconds
    assert ours.late_share < runs["threshold"].late_share / 2
    assert ours.actions <= 5
    lines = table(list(runs.values()))
    assert sum("<- best static number" in line for line in lines) == 1
    assert [run.name for run in telling(list(runs.values()))][:2] == ["autoscaler", "threshold"]


def test_runs_survive_a_file() -> None:
    for run in simulate_ways(AutoscaleBench(before=5, during=20, after=5, static=(2,)), seed=1):
        again = ScaledRun.from_json(json.loads(json.dumps(run.to_json())))
        assert again.line() == run.line()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--simulated", "--before", "5", "--during", "20", "--after", "5", "--static", "2"]
    assert main(["bench", "autoscale", *words]) == 0
    assert "threshold" in capsys.readouterr().out
