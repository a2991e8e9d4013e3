"""Calls between processes: the token, control messages, streams, errors."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from anabranch.errors import AnabranchError, CorruptState, ServiceUnavailable
from anabranch.model.batch_times import BatchTimes
from anabranch.model.ids import Epoch, KeyGroup, Lane
from anabranch.protocol.epochs import TransactionReport
from anabranch.transport.access import Access
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Peer
from anabranch.transport.messages.control import Ping
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.lanes import (
    TransactionDone,
    TransactionHeader,
    TransactionReports,
)
from anabranch.transport.messages.names import Request
from anabranch.transport.messages.state import AsOf, GroupEpochs
from anabranch.transport.server import ConnectionLost, Server

SCHEMA = pa.schema([("v", pa.int64())])


def header(operator: str = "hello") -> TransactionHeader:
    return TransactionHeader(
        operator, 1, Epoch(1), None, Lane(0), 1, 1, (KeyGroup(0),), 1, BatchTimes(0, 0, 0)
    )


def reports(rows: int) -> TransactionReports:
    return TransactionReports(
        (TransactionDone(TransactionReport("w1", (0,), None), {"rows": rows}),)
    )


@dataclass
class Sum:
    rows: list[int]
    schema: pa.Schema = SCHEMA

    @property
    def report(self) -> TransactionReports:
        return reports(len(self.rows))

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"v": [sum(self.rows)]})


class Echo:
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.lost = threading.Event()
        self.calls = 0

    def call(self, request: Request) -> object:
        self.calls += 1
        assert isinstance(request, AsOf)
        (operator,) = request.operators
        if operator == "fail":
            raise CorruptState("file x is damaged")
        if operator == "bug":
            raise KeyError("oops")
        return GroupEpochs({operator: {1: 2}})

    def exchange(self, header: TransactionHeader, rows: Iterator[pa.RecordBatch]) -> Sum:
        self.calls += 1
        if header.operator == "refuse":
            raise CorruptState("not you")
        self.begun.set()
        try:
            return Sum([v for batch in rows for v in batch.column("v").to_pylist()])
        except ConnectionLost:
            self.lost.set()
            raise


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def server(echo: Echo) -> Iterator[Server]:
    server = Server("127.0.0.1", Access("secret"), echo)
    yield server
    server.stop()


@pytest.fixture
def peer(server: Server) -> Peer:
    return Peer(server.address, Credentials("secret"), "The peer")


def question(operator: str) -> AsOf:
    return AsOf((operator,), ())


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, pa.int64())})


def send_nothing(peer: Peer, operator: str = "hello") -> None:
    exchange = peer.exchange(header(operator))
    exchange.done_writing(SCHEMA)
    exchange.read()


def test_call_and_exchange(peer: Peer) -> None:
    assert peer.call(question("hello"), 20) == GroupEpochs({"hello": {1: 2}})
    assert peer.call(question("other"), 20) == GroupEpochs({"other": {1: 2}})
    exchange = peer.exchange(header())
    exchange.write(batch(1, 2))
    exchange.write(batch(3))
    exchange.done_writing(SCHEMA)
    received = [exchange.read() for _ in range(3)]
    assert received[0] == (None, reports(3))
    assert received[1] == (batch(6), None)
    assert received[2] is None


def test_exchange_without_rows(peer: Peer) -> None:
    exchange = peer.exchange(header())
    exchange.done_writing(pa.schema([]))
    assert exchange.read() == (None, reports(0))


@pytest.mark.parametrize("token", ["", "wrong", "secret ", "Secret"])
def test_nothing_is_looked_at_without_the_token(server: Server, echo: Echo, token: str) -> None:
    stranger = Peer(server.address, Credentials(token), "The peer")
    with pytest.raises(ServiceUnavailable, match="token"):
        stranger.call(question("hello"), 20)
    with pytest.raises(ServiceUnavailable, match="token"):
        send_nothing(stranger)
    with flight.FlightClient(f"grpc://{server.address}") as bare:
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(bare.do_action("as-of"))
        with pytest.raises(flight.FlightUnauthenticatedError):
            list(bare.list_flights())
    assert echo.calls == 0


def test_errors_keep_their_kind(peer: Peer) -> None:
    with pytest.raises(CorruptState, match="file x is damaged"):
        peer.call(question("fail"), 20)
    with pytest.raises(CorruptState, match="not you"):
        send_nothing(peer, "refuse")
    with pytest.raises(AnabranchError, match="KeyError"):
        peer.call(question("bug"), 20)


def test_a_stream_without_its_end_mark_is_not_complete(peer: Peer, echo: Echo) -> None:
    exchange = peer.exchange(header())
    exchange.write(batch(1))
    assert echo.begun.wait(20)  # a call that is cancelled before it arrives is no call
    exchange.close()
    assert echo.lost.wait(20)


def test_nobody_there() -> None:
    with pytest.raises(ServiceUnavailable, match="The peer cannot be reached"):
        Peer("127.0.0.1:9", Credentials("secret"), "The peer").call(question("hello"), 20)


class Ready(flight.FlightServerBase):  # type: ignore[misc]
    def do_action(self, context: object, action: flight.Action) -> Iterator[bytes]:
        yield b"{}"


def test_a_new_process_on_the_port_of_a_dead_one_is_reached_at_once() -> None:
    """A connection that has failed would wait for a second before it tries again."""
    with Ready("grpc://127.0.0.1:0") as dead:
        peer = Peer(f"127.0.0.1:{dead.port}", Credentials("secret"), "The peer")
        assert peer.call(Ping(), 20) == Nothing()
    with pytest.raises(ServiceUnavailable):
        peer.call(Ping(), 20)
    with Ready(f"grpc://{peer.address}"):
        assert peer.call(Ping(), 20) == Nothing()


def test_a_server_stops_although_a_call_does_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, and goes on: the call ends with the process."""
    begun, end = threading.Event(), threading.Event()

    class Stuck(Echo):
        def call(self, request: Request) -> object:
            begun.set()
            end.wait(60)
            return super().call(request)

    monkeypatch.setattr("anabranch.transport.server.STOP_SECONDS_MAX", 0.2)
    server = Server("127.0.0.1", Access("secret"), Stuck())
    peer = Peer(server.address, Credentials("secret"), "The peer")
    caller = threading.Thread(target=lambda: peer.call(question("hello"), 60))
    caller.start()
    assert begun.wait(20)
    server.stop()
    assert f"Calls at {server.address} do not end" in caplog.text
    end.set()
    caller.join(20)
    assert not caller.is_alive()


FORGETTING = """
import threading, time
from anabranch.transport import client
from anabranch.transport.access import Access
from anabranch.transport.auth import Credentials
from anabranch.transport.messages.control import Ping
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.server import Server

class Slow:
    def call(self, request):
        time.sleep(0.002)
        return Nothing()

server = Server("127.0.0.1", Access("token"), Slow())
end = time.monotonic() + 2
calls = []

def call():
    while time.monotonic() < end:
        calls.append(client.Peer(server.address, Credentials("token"), "worker").call(Ping(), 20))

threads = [threading.Thread(target=call) for _ in range(8)]
for thread in threads:
    thread.start()
while time.monotonic() < end:
    client.forget(server.address)
    time.sleep(0.001)
for thread in threads:
    thread.join()
server.stop()
print(len(calls))
"""


def test_a_connection_is_not_closed_under_a_call() -> None:
    """That would be a use of freed memory: the driver died of it."""
    done = subprocess.run(
        [sys.executable, "-c", FORGETTING], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def user_timeouts(address: str) -> set[int]:
    """TCP_USER_TIMEOUT of this process's sockets at both ends of connections to an address."""
    port, found = int(address.rpartition(":")[2]), set()
    for name in os.listdir("/proc/self/fd"):
        try:
            # Only sockets: a second end of a pipe would keep its reader for ever.
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as end:
                if port in (end.getsockname()[1], end.getpeername()[1]):
                    found.add(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        except (OSError, IndexError):  # closed meanwhile, or not connected
            pass
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_kernels_end_what_is_not_acknowledged(server: Server, peer: Peer) -> None:
    """Both ends: so a lane on a host that is cut off leaves no thread in a worker."""
    peer.call(question("hello"), 20)
    assert user_timeouts(server.address) == {15_000, 20_000}
