"""Thousands of seeded scenarios are equal to a sequential run; a seed fixes its trace."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli.main import main
from anabranch.migration.strategies import ALWAYS_AS_ASKED, STRATEGIES
from anabranch.simulation import scenario
from anabranch.simulation.faults import FAULTS, MOVE_FAULTS, stop_query
from anabranch.simulation.runner import Summary, describe, run_seeds
from anabranch.simulation.scenario import ScenarioResult, run_seed

SEEDS = 2_000
SOAK_SEEDS = 20_000
STEPS_MEAN_MAX = 300
"""Scenarios are short, so that thousands are routine; steps, because seconds are the machine's."""
REGRESSIONS = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "regression_seeds.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


def report(summary: Summary) -> str:
    return "\n\n".join(describe(failure) for failure in summary.failures)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return run_seeds(range(SEEDS))


def test_scenarios_are_equal_to_the_oracle(summary: Summary) -> None:
    assert summary.is_ok, report(summary)
    assert summary.scenarios == SEEDS
    assert summary.steps < STEPS_MEAN_MAX * SEEDS


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_scenarios_are_equal_to_the_oracle() -> None:
    summary = run_seeds(range(SEEDS, SEEDS + SOAK_SEEDS))
    assert summary.is_ok, report(summary)


def test_regression_seeds() -> None:
    summary = run_seeds(REGRESSIONS)
    assert summary.is_ok, report(summary)


@pytest.mark.parametrize("seed", [1, 59, 306])
def test_same_seed_same_trace(seed: int) -> None:
    first = run_seed(seed, keep_trace=True)
    assert run_seed(seed, keep_trace=True) == first
    assert first.trace
    assert run_seed(seed + 1, keep_trace=True).trace_hash != first.trace_hash


def test_same_seed_same_trace_in_another_process() -> None:
    command = [sys.executable, "-m", "anabranch.cli.main", "simulate", "--seed", "59", "--json"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["trace_hash"] == run_seed(59, keep_trace=True).trace_hash


def test_every_fault_strikes() -> None:
    struck: set[str] = set()
    for seed in range(300):
        for line in run_seed(seed, keep_trace=True).trace:
            if " FAULT " in line:
                struck.add(line.split()[-1])
    assert struck == {fault.__name__ for fault in (*FAULTS, *MOVE_FAULTS, stop_query)}


MECHANISMS: dict[str, tuple[str, ...]] = {
    "live": ("groups_copied", "catch_ups", "deltas", "groups_imported"),
    "stop-restart": ("groups_loaded", "begins_gated"),
    "pause": ("groups_imported", "begins_gated", "groups_forwarded"),
    "replicate": ("groups_copied", "groups_shadowed", "deltas"),
    "megaphone": ("groups_fetched", "groups_imported", "groups_forwarded"),
    "rhino": ("groups_copied", "catch_ups", "deltas"),
    "order-unaware": ("groups_imported", "groups_forwarded", "fallbacks"),
    "meces": ("bins_fetched", "groups_imported", "fallbacks"),
    "drrs": ("groups_fetched", "groups_imported", "groups_forwarded", "fallbacks"),
    "lazy": ("keys_fetched", "groups_imported", "fallbacks"),
}


def test_every_mechanism_of_every_strategy_is_at_work(summary: Summary) -> None:
    assert MECHANISMS.keys() == STRATEGIES.keys()
    counts = summary.counts
    assert counts["orders_twice"]
    assert counts["orders_unheard"]
    for strategy, mechanisms in MECHANISMS.items():
        for mechanism in ("requests", "moves", "reached", "ended", *mechanisms):
            assert counts[f"{strategy} {mechanism}"], (strategy, mechanism)


def test_idle_moves_and_queries_that_wake_up_in_them(summary: Summary) -> None:
    counts = summary.counts
    for strategy in STRATEGIES:
        assert bool(counts[f"{strategy} idle_rounds"]) == (strategy not in ALWAYS_AS_ASKED)
    for strategy in ("live", "megaphone", "meces", "drrs", "lazy"):
        assert counts[f"{strategy} woken"], strategy


def test_command_runs_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "5"]) == 0
    assert "5 scenarios" in capsys.readouterr().out
    assert main(["simulate", "--seeds", "3", "--first", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["scenarios"] == 3
    assert main(["simulate", "--seed", "7"]) == 0
    assert "equal to the oracle" in capsys.readouterr().out
    assert main(["simulate", "--seed", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["failure"] is None


def test_command_says_how_to_replay_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scenario, "STEPS_MAX", 10)
    assert main(["simulate", "--seeds", "1", "--first", "3"]) == 1
    shown = capsys.readouterr().out
    assert "replay: anabranch simulate --seed 3" in shown
    assert "no end after 10 steps" in shown
    assert main(["simulate", "--seeds", "1", "--json"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert failure["replay"] == "anabranch simulate --seed 0"
    assert main(["simulate", "--seed", "3"]) == 1


def test_description_ends_with_the_tail_of_the_trace() -> None:
    text = describe(ScenarioResult(4, 99, "lost rows", tuple(f"line {n}" for n in range(99))))
    assert "lost rows" in text
    assert "line 98" in text
    assert "line 5\n" not in text
