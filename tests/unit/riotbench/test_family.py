"""The command's options: what they make, and what is refused before anything starts."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InvalidArgument
from anabranch.workloads.contract import Workload
from anabranch.workloads.registry import find_family
from anabranch.workloads.riotbench import family as module
from anabranch.workloads.riotbench.family import APPS, RiotbenchFamily, make
from anabranch.workloads.riotbench.streams import find_messages


def workload(*words: str) -> Workload:
    parser = argparse.ArgumentParser()
    family = RiotbenchFamily()
    family.add_options(parser)
    return family.from_options(parser.parse_args(words))


@pytest.mark.parametrize("app", APPS)
def test_every_application(app: str, tmp_path: Path) -> None:
    models = ["--models", str(tmp_path)] if app in ("train", "pred") else []
    made = workload("--app", app, "--dataset", "grid", *models)
    assert made.name == f"riotbench {app} grid"
    assert made.events.schema.names == ["id", "message"]


def test_all_of_them() -> None:
    family = find_family("riotbench")
    made = family.standard(family.rate)
    assert len({w.name for w in made}) == 16


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--sensors", "0"], "at least one sensor"),
        (["--range-seconds", "0"], "above 0"),
        (["--retrain-seconds", "-1"], "0 or more"),
        (["--broker", "nonsense"], "host:port"),
    ],
)
def test_refused(words: list[str], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        workload("--app", "pred", *words)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["--app", "stats", "--broker", "own"],
            "--broker is for --app etl or train or pred; stats",
        ),
        (["--app", "stats", "--broker", "localhost:1883"], "stats does not have it"),
        (["--app", "etl", "--charts", "charts"], "--charts is for --app stats"),
        (["--app", "pred", "--table", "rows.sqlite"], "--table is for --app etl"),
        (["--app", "etl", "--models", "models"], "--models is for --app train or pred"),
        (["--app", "pred", "--range-seconds", "5"], "--range-seconds is for --app train"),
        (["--app", "train", "--retrain-seconds", "5"], "--retrain-seconds is for --app pred"),
    ],
)
def test_options_of_other_applications(words: list[str], problem: str) -> None:
    """They were ignored without a word."""
    with pytest.raises(InvalidArgument, match=problem):
        workload(*words)


def test_missing_libraries_are_named(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_LIBRARIES", ("sklearn", "no_such_library"))
    with pytest.raises(InvalidArgument, match=r"needs no_such_library.*riotbench"):
        workload("--app", "etl")


def test_unknown_application() -> None:
    with pytest.raises(InvalidArgument, match="Known: etl, stats, train, pred"):
        make("sort", find_messages("city"))
