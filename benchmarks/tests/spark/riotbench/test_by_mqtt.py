"""What dataflows publish, models that are announced, and Ctrl-C, with a real broker."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.tests.spark.riotbench.running import WAIT, check, nothing
from pyspark.sql import SparkSession
from tests.interrupted import interrupt

from anabranch_bench.workloads.riotbench.etl import Etl
from anabranch_bench.workloads.riotbench.models import parse_name, train
from anabranch_bench.workloads.riotbench.mqtt import Broker, Subscription, find_mosquitto
from anabranch_bench.workloads.riotbench.pred import Prediction
from anabranch_bench.workloads.riotbench.prediction import CLASS_TOPIC, ERROR_TOPIC
from anabranch_bench.workloads.riotbench.streams import find_messages

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


@pytest.mark.soak
def test_etl_publishes_what_comes_out(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    stream = find_messages("grid", sensors=40)
    received: list[str] = []
    with Subscription(broker.address, stream.dataset.topic, received.append):
        workload = Etl(stream, broker.address)
        found = check(spark, tmp_path, workload, 1200, 4, nothing)["published"]
        wait_for(received, 1200)
    assert sorted(received) == sorted(pa.concat_tables(found).column("message").to_pylist())


@pytest.mark.soak
def test_pred_hears_of_new_models(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    """In a folder with models that TRAIN has left, which are numbered by time."""
    stream = find_messages("city", sensors=40)
    workload = Prediction(stream, str(tmp_path / "models"), broker.address, 0.5, block=100)
    store, trained_until = workload.store, stream.dataset.start_ms + 120_000
    features = np.random.default_rng(1).uniform(1, 50, (200, len(stream.dataset.features)))
    for trained in train(stream.dataset, trained_until, features):
        store.upload(trained)
        store.activate(trained.name)

    def numbers() -> list[int]:
        return [parse_name(name)[2] for name in store.current("city").values()]

    def update() -> None:
        before, limit = max(numbers()), time.monotonic() + WAIT
        while min(numbers()) <= before:
            assert time.monotonic() < limit, "no new models"
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
    for column in ("regression", "tree"):
        old, new = (
            [parse_name(name)[2] for b in some for name in b.column(column).to_pylist()]
            for some in (batches[:2], batches[2:])
        )
        assert trained_until <= min(old) <= max(old) < min(new), "models change while it runs"
    expected = zip(found.column("id").to_pylist(), found.column("class").to_pylist(), strict=True)
    assert sorted(classes) == sorted(f"{number},{kind}" for number, kind in expected)


@pytest.mark.soak
def test_ctrl_c_finishes_what_was_sent() -> None:
    """The broker of a run is not interrupted with it: the last batch is published and verified."""
    words = ["run", "riotbench", "--app", "etl", "--dataset", "grid", "--sensors", "40"]
    words += ["--broker", "own", "--rate", "300", "--duration", "10m", "--verify"]
    under_load = re.compile(r" +[1-9][0-9.]* s ")
    rest = interrupt(words, lambda line: under_load.match(line) is not None)
    assert "Interrupted." in rest
    assert re.search(r"published: all [0-9,]+ rows are right", rest), rest
