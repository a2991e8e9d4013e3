"""The command's options: what they make, and what is refused before anything starts."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.contract import Workload
from anabranch_bench.workloads.registry import find_family
from anabranch_bench.workloads.riotbench import family as module
from anabranch_bench.workloads.riotbench.datasets import DATASETS
from anabranch_bench.workloads.riotbench.family import APPS, RiotbenchFamily, make
from anabranch_bench.workloads.riotbench.pred import Prediction
from anabranch_bench.workloads.riotbench.streams import find_messages
from anabranch_bench.workloads.riotbench.train import Training


def options_of(*words: str) -> argparse.Namespace:
    """As the command has them."""
    parser = argparse.ArgumentParser()
    family = RiotbenchFamily()
    parser.add_argument("--rate", type=int, default=family.rate)
    family.add_options(parser)
    return parser.parse_args(words)


def workload(*words: str) -> Workload:
    return RiotbenchFamily().from_options(options_of(*words))


@pytest.mark.parametrize("app", APPS)
def test_every_application(app: str, tmp_path: Path) -> None:
    models = ["--models", str(tmp_path)] if app in ("train", "pred") else []
    made = workload("--app", app, "--dataset", "grid", *models)
    assert made.name == f"riotbench {app} grid"
    assert made.events.schema.names == ["id", "message"]


def test_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of workloads needs no folders yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    family = find_family("riotbench")
    made = family.standard(1000)
    assert len({w.name for w in made}) == 16
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("app", ["train", "pred"])
def test_temporary_folders(app: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each workload, made when it is needed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = (make(app, find_messages("city")) for _ in range(2))
    assert isinstance(first, Training | Prediction)
    assert isinstance(second, Training | Prediction)
    assert first.store is first.store
    assert first.store != second.store
    assert {Path(w.store.path) for w in (first, second)} == set(tmp_path.iterdir())


def test_pins_are_not_left_among_the_models(tmp_path: Path) -> None:
    """And are found again where a query says that they are."""
    models = tmp_path / "models"
    stream = find_messages("city", sensors=5)
    made = Prediction(stream, str(models))
    made.retraining.start(lambda: False)
    made.pins.models_of(0)
    assert not [path for path in models.iterdir() if path.is_dir()]
    one, other = (Prediction(stream, str(models), pins=str(tmp_path / "pins")) for _ in range(2))
    assert one.pins == other.pins


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_data_set_has_a_rate(dataset: str) -> None:
    rates = {"city": 700, "taxi": 400, "fit": 500, "grid": 1000}
    for words, rate in (([], rates[dataset]), (["--rate", "77"], 77)):
        options = options_of("--app", "etl", "--dataset", dataset, *words)
        RiotbenchFamily().from_options(options)
        assert options.rate == rate


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
