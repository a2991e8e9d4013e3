"""MQTT against a real broker, and what is said where there is none."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError, InvalidArgument
from anabranch_bench.workloads.riotbench import mqtt
from anabranch_bench.workloads.riotbench.modelstore import ModelStore
from anabranch_bench.workloads.riotbench.mqtt import (
    Address,
    Broker,
    Publish,
    Subscription,
    find_mosquitto,
    publish,
)
from anabranch_bench.workloads.riotbench.retraining import Retraining
from anabranch_bench.workloads.riotbench.streams import find_messages
from anabranch_bench.workloads.riotbench.training import MODEL_TOPIC

needs_mosquitto = pytest.mark.skipif(
    find_mosquitto() is None, reason="Mosquitto is not installed: apt-get install mosquitto"
)


class Received:
    """Collects messages of a subscription."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._changed = threading.Condition()

    def add(self, text: str) -> None:
        with self._changed:
            self.texts.append(text)
            self._changed.notify_all()

    def wait(self, count: int) -> list[str]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.texts) >= count, timeout=20)
            return list(self.texts)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@needs_mosquitto
def test_every_message_arrives(broker: Broker) -> None:
    received = Received()
    sent = [f"message {i}" for i in range(3000)]
    with Subscription(broker.address, "citydata", received.add):
        publish(broker.address, "griddata", ["for somebody else"])
        publish(broker.address, "citydata", sent)
        assert received.wait(len(sent)) == sent
    publish(broker.address, "citydata", ["nobody listens any more"])
    assert len(received.texts) == len(sent)


@needs_mosquitto
def test_a_task_publishes_its_rows_and_hands_them_on(broker: Broker) -> None:
    received = Received()
    rows = pa.table({"id": [1, 2], "message": ["a", "b"]})
    with Subscription(broker.address, "fitdata", received.add):
        assert Publish(broker.address, "fitdata", "message")(rows) is rows
        assert received.wait(2) == ["a", "b"]


@needs_mosquitto
def test_a_message_that_cannot_be_taken_does_not_end_the_subscription(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    received = Received()

    def take(text: str) -> None:
        if text == "bad":
            raise InvalidArgument("This one is of no use.")
        received.add(text)

    with Subscription(broker.address, "models", take):
        publish(broker.address, "models", ["first", "bad", "second"])
        assert received.wait(2) == ["first", "second"]
    assert re.search("topic models was left out:.* This one is of no use", caplog.text)


@needs_mosquitto
def test_announced_models(broker: Broker, tmp_path: Path) -> None:
    """Those of others, and names without a model, are passed over; later ones are heard of."""
    store = ModelStore(str(tmp_path))
    stopped = threading.Event()
    retraining = Retraining(find_messages("grid", sensors=5), store, broker.address)
    retraining.start(lambda: not stopped.is_set())
    newer = [trained.name for trained in retraining.upload(1)]
    names = ["nonsense", "grid-MLR-99.model", "taxi-MLR-5.model", *newer]
    limit = time.monotonic() + 20
    while set(store.current("grid").values()) != set(newer):
        assert time.monotonic() < limit, "the announcement has not arrived"
        publish(broker.address, MODEL_TOPIC, names)  # again, until it listens
        time.sleep(0.1)
    stopped.set()
    assert sorted(newer) == ["grid-DTC-1.model", "grid-MLR-1.model"]
    assert store.current("taxi") == {}


@needs_mosquitto
def test_retraining_outlives_its_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A model that nobody hears of is said; after the run's end the loss is nobody's business."""
    store, is_needed = ModelStore(str(tmp_path)), threading.Event()
    is_needed.set()
    with Broker() as broker:
        publish(broker.address, MODEL_TOPIC, ["nonsense"])  # the connection is there
        retraining = Retraining(find_messages("grid", sensors=5), store, broker.address, 0.2)
    retraining._retrain(1, is_needed.is_set)
    assert re.search("Model grid-MLR-0.model was not announced: .*MQTT broker", caplog.text)
    caplog.clear()
    is_needed.clear()
    retraining._retrain(2, is_needed.is_set)
    assert caplog.text == ""


HOLDS_A_BROKER = """
import os, signal, time
from anabranch_bench.workloads.riotbench.mqtt import Broker
signal.signal(signal.SIGINT, lambda *_: os.write(1, b"interrupted\\n"))  # print() may be in use
print(Broker().address.port, flush=True)
while True:
    time.sleep(1)
"""


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


@needs_mosquitto
def test_a_broker_outlives_ctrl_c_but_not_its_owner() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_BROKER],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert owner.stdout is not None
        port = int(owner.stdout.readline())
        os.killpg(owner.pid, signal.SIGINT)  # as a terminal does: to the whole group
        assert owner.stdout.readline() == "interrupted\n"
        for _ in range(10):
            assert answers(port)
            time.sleep(0.1)
    finally:
        owner.kill()
        owner.communicate()
    limit = time.monotonic() + 20
    while answers(port):
        assert time.monotonic() < limit, "the broker is still there"
        time.sleep(0.05)


def test_without_mosquitto_it_is_told_how_to_get_it(monkeypatch: Any) -> None:
    monkeypatch.setattr(mqtt, "find_mosquitto", lambda: None)
    with pytest.raises(InvalidArgument, match="apt-get install mosquitto"):
        Broker()


def test_addresses() -> None:
    assert Address.parse("localhost:1883") == Address("localhost", 1883)
    for text in ("localhost", ":1", "localhost:x"):
        with pytest.raises(InvalidArgument, match="host:port"):
            Address.parse(text)


def test_no_broker_there() -> None:
    with pytest.raises(AnabranchError, match=r"No MQTT broker answers at 127\.0\.0\.1:9"):
        mqtt.connect(Address("127.0.0.1", 9))
