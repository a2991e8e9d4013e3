"""What dataflows publish, and models that are announced, over a real broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from anabranch.workloads.riotbench.etl import Etl
from anabranch.workloads.riotbench.modelstore import ModelStore
from anabranch.workloads.riotbench.mqtt import Broker, Subscription, find_mosquitto
from anabranch.workloads.riotbench.pred import Prediction
from anabranch.workloads.riotbench.prediction import CLASS_TOPIC, ERROR_TOPIC
from anabranch.workloads.riotbench.streams import find_messages
from anabranch.workloads.riotbench.training import announce
from tests.spark.riotbench.running import WAIT, check, nothing

pytestmark = pytest.mark.skipif(
    find_mosquitto() is None, reason="Mosquitto is not installed: apt-get install mosquitto"
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def wait_for(texts: list[str], count: int) -> None:
    limit = time.monotonic() + WAIT
    while len(texts) < count and time.monotonic() < limit:
        time.sleep(0.05)
    assert len(texts) == count


def test_etl_publishes_what_comes_out(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    stream = find_messages("grid", sensors=40)
    received: list[str] = []
    with Subscription(broker.address, stream.dataset.topic, received.append):
        workload = Etl(stream, broker.address)
        found = check(spark, tmp_path, workload, 1200, 3, nothing)["published"]
        wait_for(received, 1200)
    assert sorted(received) == sorted(pa.concat_tables(found).column("message").to_pylist())


def test_pred_hears_of_new_models(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    models = str(tmp_path / "models")
    store = ModelStore(models)
    workload = Prediction(find_messages("city", sensors=40), models, broker.address, block=100)

    def update() -> None:
        for trained in workload.retraining.train(1):
            announce(store, broker.address, trained)
        limit = time.monotonic() + WAIT
        while not all("-1." in name for name in store.current().values()):
            assert time.monotonic() < limit, "the announcement has not arrived"
            time.sleep(0.05)

    classes: list[str] = []
    errors: list[str] = []
    with ExitStack() as stack:
        stack.enter_context(Subscription(broker.address, CLASS_TOPIC, classes.append))
        stack.enter_context(Subscription(broker.address, ERROR_TOPIC, errors.append))
        batches = check(spark, tmp_path, workload, 2000, 4, nothing, update)["errors"]
        found = pa.concat_tables(batches)
        wait_for(classes, 2000)
        wait_for(errors, 2000 - found.column("error").null_count)
    assert {name for b in batches[2:] for name in b.column("regression").to_pylist()} == {
        "city-MLR-1.model"
    }
    expected = zip(found.column("id").to_pylist(), found.column("class").to_pylist(), strict=True)
    assert sorted(classes) == sorted(f"{number},{kind}" for number, kind in expected)
