"""Classes, models, the model store, who uses which model; charts and their archives."""

from __future__ import annotations

import threading
import time
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.riotbench.charts import ChartFolder, DrawCharts, draw
from anabranch_bench.workloads.riotbench.datasets import TAXI
from anabranch_bench.workloads.riotbench.models import (
    CLASSES,
    classes_of,
    parse_name,
    train,
    train_regression,
    train_tree,
)
from anabranch_bench.workloads.riotbench.modelstore import ModelStore, Pins
from anabranch_bench.workloads.riotbench.oracle.train import label
from anabranch_bench.workloads.riotbench.prediction import Predict
from anabranch_bench.workloads.riotbench.retraining import Retraining
from anabranch_bench.workloads.riotbench.streams import find_messages


def trips(count: int = 3000) -> Any:
    """Features of taxi messages."""
    from anabranch_bench.workloads.riotbench.observations import ParseFeatures, as_matrix

    events = pa.Table.from_batches([find_messages("taxi").between(0, count)])
    return np.asarray(as_matrix(ParseFeatures(TAXI)(events).column("features"), 3))


def test_classes_are_percentiles_of_the_batch() -> None:
    targets = np.arange(1.0, 101.0)
    counts = dict(zip(CLASSES, np.bincount(classes_of(targets)).tolist(), strict=True))
    assert counts == {"BAD": 50, "GOOD": 25, "VERYGOOD": 24, "EXCELLENT": 1}
    repeated = np.array([1.0, 9.0, 9.0, 2.0, 3.0, 4.0])
    found = [CLASSES[c] for c in classes_of(repeated)]
    assert [t for t, c in zip(repeated, found, strict=True) if c == "EXCELLENT"] == [9.0, 9.0]


def test_classes_are_the_oracles() -> None:
    targets = trips(501)[:, -1]
    ranked = sorted(targets.tolist())
    assert [CLASSES[c] for c in classes_of(targets)] == [label(t, ranked) for t in targets.tolist()]


def test_regression_is_least_squares_and_exact_on_a_plane() -> None:
    features = trips()
    inputs = np.column_stack([np.ones(len(features)), features[:, :-1]])
    weights, *_ = np.linalg.lstsq(inputs, features[:, -1], rcond=None)
    model = train_regression(features)
    assert [model.intercept_, *model.coef_] == pytest.approx(weights, rel=1e-6)
    plane = np.column_stack([features[:, :2], 1.0 + 2.0 * features[:, 0] - features[:, 1]])
    assert train_regression(plane).score(plane[:, :-1], plane[:, -1]) == pytest.approx(1.0)


def test_the_tree_learns_the_classes() -> None:
    features = trips()
    right = train_tree(features).predict(features) == classes_of(features[:, -1])
    assert right.mean() >= 0.95


def test_both_models_are_described() -> None:
    regression, tree = train(TAXI, 864_000, trips(500))
    assert (regression.name, tree.name) == ("taxi-MLR-864000.model", "taxi-DTC-864000.model")
    assert parse_name(tree.name) == ("taxi", "DTC", 864_000)
    assert list(regression.figures) == ["intercept", "trip_time_in_secs", "trip_distance"]
    assert regression.rows == tree.rows == sum(tree.figures[c] for c in CLASSES) == 500


@pytest.mark.parametrize("name", ["x.model", "city-XYZ-1.model", "city-MLR-one.model", "../etc"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="not a model's name"):
        ModelStore(str(tmp_path)).load(name)


def models(*ends: int) -> Sequence[Any]:
    return [trained for end in ends for trained in train(TAXI, end, trips(100 + end))]


def test_later_models_become_current_and_stay(tmp_path: Path) -> None:
    store = ModelStore(str(tmp_path / "models"))
    assert store.current("taxi") == {}
    for trained in models(1, 3, 2):
        store.upload(trained)
    with pytest.raises(InvalidArgument, match="Upload it first"):
        store.activate("taxi-MLR-9.model")
    for name in ("taxi-MLR-1.model", "taxi-MLR-3.model", "taxi-DTC-2.model", "taxi-MLR-2.model"):
        store.activate(name)
    assert store.current("taxi") == {"MLR": "taxi-MLR-3.model", "DTC": "taxi-DTC-2.model"}
    loaded = store.load("taxi-MLR-3.model")
    assert loaded.coef_.tolist() == models(3)[0].model.coef_.tolist()


def activated(folder: Path, *ends: int) -> ModelStore:
    store = ModelStore(str(folder))
    for trained in models(*ends):
        store.upload(trained)
        store.activate(trained.name)
    return store


def test_a_block_keeps_its_models(tmp_path: Path) -> None:
    store = activated(tmp_path, 1)
    pins = Pins(store, "taxi", str(tmp_path / "pins"), 10)
    before = pins.models_of(0)
    activated(tmp_path, 2)
    assert pins.models_of(0) == before == {"MLR": "taxi-MLR-1.model", "DTC": "taxi-DTC-1.model"}
    assert pins.models_of(1)["MLR"] == "taxi-MLR-2.model"


def test_all_tasks_agree_on_the_models_of_a_block(tmp_path: Path) -> None:
    store = activated(tmp_path, 1, 2)
    names = ("taxi-MLR-1.model", "taxi-MLR-2.model")
    pins = Pins(store, "taxi", str(tmp_path / "pins"))

    def ask(number: int) -> str:
        if number % 2:
            (tmp_path / "current-taxi-MLR").write_text(names[number % 4 // 2])
        return pins.models_of(number // 8)["MLR"]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, range(400)))
    for block in range(50):
        assert len(set(found[8 * block : 8 * block + 8])) == 1
    assert len(list((tmp_path / "pins").iterdir())) == 50


def test_predictions_use_the_models_of_each_block(tmp_path: Path) -> None:
    """With a perfect model there is no error, with a constant one it is known."""
    store = activated(tmp_path, 1)
    pins = Pins(store, "taxi", str(tmp_path / "pins"), 2)
    features = [[60.0, 1.0, 9.0], [120.0, 2.0, 50.0]]

    def rows(*ids: int) -> pa.Table:
        return pa.table(
            {"id": pa.array(ids), "sensor": ["t"] * len(ids), "features": features[: len(ids)]}
        )

    first = Predict(TAXI, pins)(rows(0, 1)).to_pylist()
    assert {r["regression"] for r in first} == {"taxi-MLR-1.model"}
    assert [r["value"] for r in first] == [9.0, 50.0]
    activated(tmp_path, 2)
    mixed = Predict(TAXI, pins)(rows(1, 2)).to_pylist()
    assert [r["tree"] for r in mixed] == ["taxi-DTC-1.model", "taxi-DTC-2.model"]
    for row, inputs in zip(mixed, features, strict=True):
        model = store.load(row["regression"])
        assert row["predicted"] == pytest.approx(model.predict([inputs[:-1]])[0])
        assert row["class"] == CLASSES[store.load(row["tree"]).predict([inputs])[0]]


def test_without_models_it_is_told_where_to_get_them(tmp_path: Path) -> None:
    pins = Pins(ModelStore(str(tmp_path)), "taxi", str(tmp_path / "pins"))
    with pytest.raises(InvalidArgument, match="--app train --dataset taxi"):
        pins.models_of(0)


def test_history_gives_models_to_start_from(tmp_path: Path) -> None:
    store = ModelStore(str(tmp_path))
    retraining = Retraining(find_messages("taxi"), store)
    retraining.start(lambda: False)
    assert store.current("taxi") == {"MLR": "taxi-MLR-0.model", "DTC": "taxi-DTC-0.model"}


def wait_until(is_so: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < limit, "it takes too long"
        time.sleep(0.05)


def retrain(store: ModelStore) -> None:
    """In the background, until the current models are newer than before."""

    def numbers() -> list[int]:
        return [parse_name(name)[2] for name in store.current("taxi").values()]

    before, done = max(numbers()), threading.Event()
    Retraining(find_messages("taxi"), store, None, 0.2).start(lambda: not done.is_set())
    wait_until(lambda: min(numbers()) > before)
    done.set()


def test_new_models_follow_whatever_is_there(tmp_path: Path) -> None:
    """TRAIN numbers its models by time; those of PRED, in this run and the next, are newer."""
    store = ModelStore(str(tmp_path))
    for trained in train(TAXI, TAXI.start_ms + 864_000, trips(500)):
        store.upload(trained)
        store.activate(trained.name)
    (tmp_path / "taxi-notes.model").write_text("somebody else's")
    last = TAXI.start_ms + 864_000
    for _ in range(2):
        retrain(store)
        current = store.current("taxi")
        assert set(current) == {"MLR", "DTC"}
        numbers = {parse_name(name)[2] for name in current.values()}
        assert min(numbers) > last, "a model of before is still current"
        assert store.load(current["MLR"]).n_features_in_ == 2
        last = max(numbers)
    assert (tmp_path / "taxi-notes.model").read_text() == "somebody else's"


def test_data_sets_do_not_mix(tmp_path: Path) -> None:
    """In one folder; a model of three columns is of no use to a stream of five."""
    store = activated(tmp_path, 9)
    retraining = Retraining(find_messages("city"), store)
    retraining.start(lambda: False)
    assert store.current("city") == {"MLR": "city-MLR-0.model", "DTC": "city-DTC-0.model"}
    assert store.current("taxi") == {"MLR": "taxi-MLR-9.model", "DTC": "taxi-DTC-9.model"}
    pins = Pins(store, "city", str(tmp_path / "pins"))
    assert store.load(pins.models_of(0)["MLR"]).n_features_in_ == 4


def test_a_chart_has_a_line_for_each_field() -> None:
    chart = draw(
        "a < b", {"dust": [(0, 1.0), (50, 3.0)], "light": [(100, 2.0)], "flat": [(5, 2.0)]}
    )
    root = ElementTree.fromstring(chart)
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert (root.get("width"), root.get("height")) == ("800", "600")
    assert [line.get("points") for line in lines] == [
        "60.0,540.0 400.0,60.0",
        "94.0,300.0",
        "740.0,300.0",
    ]


def flush(number: int, sensors: Sequence[str]) -> pa.Table:
    return pa.table(
        {
            "statistic": ["average"] * len(sensors),
            "sensor": sensors,
            "shard": [0] * len(sensors),
            "flush": [number] * len(sensors),
            "field": ["light"] * len(sensors),
            "at_ms": list(range(len(sensors))),
            "results": [[1.0]] * len(sensors),
        }
    )


def test_charts_are_archived_once(tmp_path: Path) -> None:
    folder = ChartFolder(str(tmp_path / "charts"), 3)
    task = DrawCharts(folder)
    flushes = [flush(n, ["a", "a", "b"]) for n in range(4)]
    for rows in flushes:
        assert task(rows) is rows
    assert len(folder.archives) == 8 // 3
    assert len(folder.waiting) == 8 % 3
    for rows in flushes:  # as a task does that Spark runs again
        task(rows)
    names = [n for archive in folder.archives for n in zipfile.ZipFile(archive).namelist()]
    assert len(folder.archives) == 2
    assert len(names) == len(set(names)) == 6
    assert {n.split("-")[1] for n in names} == {"a", "b"}
