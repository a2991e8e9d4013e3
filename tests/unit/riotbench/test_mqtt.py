"""MQTT against a real broker, and what is said where there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.workloads.riotbench import mqtt
from anabranch.workloads.riotbench.mqtt import (
    Address,
    Broker,
    Publish,
    Subscription,
    find_mosquitto,
    publish,
)

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
