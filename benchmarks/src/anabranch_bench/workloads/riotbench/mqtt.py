"""MQTT: publish, subscribe, and a Mosquitto of one's own on a free port of this machine."""

from __future__ import annotations

import functools
import logging
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.state.scratch import Scratch

if TYPE_CHECKING:
    from paho.mqtt.client import Client

_log = logging.getLogger("anabranch_bench.workloads")

TIMEOUT_SECONDS = 10.0
_IN_FLIGHT = 1000
_QOS = 1
_BROKER_SCRIPT = '"$0" -c "$1" </dev/null & read -r _; kill $! 2>/dev/null; wait $!'
"""Runs a broker for as long as standard input is open: it ends with us, whatever ends us."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int

    @staticmethod
    def parse(text: str) -> Address:
        """From `host:port`."""
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit():
            raise InvalidArgument(f"A broker is given as host:port, as localhost:1883, not {text}.")
        return Address(host, int(port))


def find_mosquitto() -> str | None:
    """The broker's program; Debian puts it where only root looks."""
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


class Broker:
    """A Mosquitto that listens on loopback only, without persistence; stop it after use."""

    def __init__(self) -> None:
        program = find_mosquitto()
        if program is None:
            raise InvalidArgument(
                "Mosquitto is not installed. Install it (Debian: apt-get install mosquitto), or "
                "name a running broker with --broker host:port."
            )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = Address("127.0.0.1", probe.getsockname()[1])
        self._scratch = Scratch()
        config = self._scratch.path / "mosquitto.conf"
        config.write_text(
            f"listener {self.address.port} 127.0.0.1\n"
            "allow_anonymous true\npersistence false\nlog_type error\nmax_queued_messages 0\n",
            encoding="utf-8",
        )
        self._process = subprocess.Popen(
            ["sh", "-c", _BROKER_SCRIPT, program, str(config)],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends the load; what was sent is still published
        )
        self._wait()

    def _wait(self) -> None:
        limit = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < limit and self._process.poll() is None:
            try:
                socket.create_connection((self.address.host, self.address.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        self.stop()
        raise AnabranchError("Mosquitto did not start. Its own message is above.")

    def stop(self) -> None:
        """End it. Idempotent."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._scratch.close()

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def connect(address: Address) -> Client:
    """A client that is connected, with its own thread."""
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(_IN_FLIGHT)
    try:
        client.connect(address.host, address.port)
    except OSError as error:
        raise AnabranchError(
            f"No MQTT broker answers at {address.host}:{address.port} ({error}). Start one, or "
            "let the command start its own with --broker own."
        ) from error
    client.loop_start()
    return client


@functools.lru_cache(maxsize=4)
def _publisher(address: Address) -> Client:
    """One for each process: Spark keeps its Python processes from batch to batch."""
    return connect(address)


def publish(address: Address, topic: str, payloads: Sequence[str]) -> None:
    """Send texts and wait until the broker has all of them (at least once)."""
    client = _publisher(address)
    sent = [client.publish(topic, payload, qos=_QOS) for payload in payloads]
    limit = time.monotonic() + TIMEOUT_SECONDS
    for receipt in sent:
        try:
            receipt.wait_for_publish(max(0.0, limit - time.monotonic()))
            is_published = receipt.is_published()
        except RuntimeError as error:  # what paho raises without a connection
            raise AnabranchError(
                f"The connection to the MQTT broker at {address.host}:{address.port} is lost "
                f"({error}). Check that it runs."
            ) from error
        if not is_published:
            raise AnabranchError(
                f"The MQTT broker at {address.host}:{address.port} has not confirmed messages for "
                f"{TIMEOUT_SECONDS:.0f} seconds. Check that it runs."
            )


class Subscription:
    """Calls a function with the text of every message of a topic, until it is closed."""

    def __init__(self, address: Address, topic: str, receive: Callable[[str], None]) -> None:
        self._topic = topic
        self._receive = receive
        self._client = connect(address)
        ready = threading.Event()
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.on_message = lambda _c, _u, message: self._take(message.payload)
        self._client.subscribe(topic, qos=_QOS)
        if not ready.wait(TIMEOUT_SECONDS):
            self.close()
            raise AnabranchError(f"The MQTT broker did not accept a subscription to {topic}.")

    def _take(self, payload: bytes | bytearray) -> None:
        """An error here would end the client's thread, and nobody would hear another message."""
        try:
            self._receive(payload.decode())
        except (AnabranchError, OSError, ValueError) as error:
            _log.warning("A message of topic %s was left out: %s", self._topic, error)

    def close(self) -> None:
        """No more calls. Idempotent."""
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Publish:
    """A task that publishes a column of texts and hands its rows on.

    At least once: a task that Spark runs again publishes again.
    """

    address: Address
    topic: str
    column: str

    def __call__(self, rows: pa.Table) -> pa.Table:
        """The same rows."""
        texts: Any = rows.column(self.column).to_pylist()
        publish(self.address, self.topic, texts)
        return rows
