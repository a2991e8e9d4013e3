"""Seeded scenarios with hosts that fail are equal to a sequential run, and nothing hangs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.cli.main import main
from anabranch.simulation import scenario
from anabranch.simulation.host_faults import HOST_FAULTS
from anabranch.simulation.runner import Summary, describe, run_seeds
from anabranch.simulation.scenario import run_seed

SEEDS = 1_000
SOAK_SEEDS = 10_000
STEPS_MEAN_MAX = 2_000
REGRESSIONS = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "regression_hosts.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


def report(summary: Summary) -> str:
    return "\n\n".join(describe(failure) for failure in summary.failures)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return run_seeds(range(SEEDS), hosts=True)


def test_scenarios_are_equal_to_the_oracle(summary: Summary) -> None:
    assert summary.is_ok, report(summary)
    assert summary.scenarios == SEEDS
    assert summary.steps < STEPS_MEAN_MAX * SEEDS


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_scenarios_are_equal_to_the_oracle() -> None:
    summary = run_seeds(range(SEEDS, SEEDS + SOAK_SEEDS), hosts=True)
    assert summary.is_ok, report(summary)


def test_regression_seeds() -> None:
    summary = run_seeds(REGRESSIONS, hosts=True)
    assert summary.is_ok, report(summary)


def test_every_mechanism_is_at_work(summary: Summary) -> None:
    for mechanism in (
        "agents_fenced",
        "answers_too_late",
        "calls_cancelled",
        "calls_hung",
        "calls_refused",
        "calls_silent",
        "cuts_for_ever",
        "hosts_drained",
        "hosts_lost",
        "joins_twice",
        "messages_swallowed",
        "starts_unanswered",
        "streams_hung",
        "tasks_elsewhere",
    ):
        assert summary.counts[mechanism], mechanism


def test_every_fault_strikes() -> None:
    struck: set[str] = set()
    for seed in range(100):
        for line in run_seed(seed, keep_trace=True, hosts=True).trace:
            if " FAULT " in line:
                struck.add(line.split()[-1])
    assert struck >= {fault.__name__ for fault in HOST_FAULTS}


def test_a_seed_fixes_its_trace_with_hosts_too() -> None:
    first = run_seed(5, keep_trace=True, hosts=True)
    assert run_seed(5, keep_trace=True, hosts=True) == first
    assert run_seed(5, keep_trace=True).trace_hash != first.trace_hash


def test_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["simulate", "--hosts", "--seeds", "3"]) == 0
    assert "3 scenarios" in capsys.readouterr().out
    assert main(["simulate", "--hosts", "--seed", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failure"] is None
    monkeypatch.setattr(scenario, "STEPS_MAX", 10)
    assert main(["simulate", "--hosts", "--seeds", "1", "--first", "3"]) == 1
    assert "replay: anabranch simulate --hosts --seed 3" in capsys.readouterr().out
