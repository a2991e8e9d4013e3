"""Servers with certificates: who can call them, and what is said to who cannot."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator, Iterator
from datetime import datetime, timezone

import pyarrow as pa
import pytest

from anabranch.errors import AccessRefused, ServiceUnavailable
from anabranch.model.batch_times import BatchTimes
from anabranch.model.ids import Epoch, KeyGroup, Lane
from anabranch.transport import client, tls
from anabranch.transport.access import Access, Role
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Peer
from anabranch.transport.messages.control import Ping
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.lanes import TransactionHeader, TransactionReports
from anabranch.transport.messages.names import Request, StreamRequest
from anabranch.transport.messages.state import AsOf, CopyGroups, DoneHead
from anabranch.transport.server import Server
from anabranch.transport.signs_of_life import Item

TOKEN = "secret"
OURS, OTHERS = tls.make_authority(), tls.make_authority()
NO_ROWS = pa.schema([])

Use = Callable[[Peer], None]


class Answer:
    report = TransactionReports()
    schema = NO_ROWS

    def batches(self) -> Iterator[pa.RecordBatch]:
        return iter(())


class Handler:
    def __init__(self) -> None:
        self.calls = 0
        self.may_go_on = threading.Event()

    def call(self, request: Request) -> object:
        self.calls += 1
        return Nothing()

    def exchange(self, header: TransactionHeader, rows: Iterator[pa.RecordBatch]) -> Answer:
        self.calls += 1
        list(rows)
        return Answer()

    def stream(self, request: StreamRequest) -> Iterator[Item]:
        self.calls += 1
        while True:
            yield DoneHead(0, 0, (), None), {}
            self.may_go_on.wait(10)


@pytest.fixture
def handler() -> Handler:
    return Handler()


@pytest.fixture
def access() -> Access:
    return Access(TOKEN)


@pytest.fixture
def server(access: Access, handler: Handler) -> Iterator[Server]:
    server = Server("127.0.0.1", access, handler, OURS.certificate)
    yield server
    handler.may_go_on.set()
    server.stop()


def header() -> TransactionHeader:
    times, groups = BatchTimes(0, 0, 0), (KeyGroup(0),)
    return TransactionHeader("o", 1, Epoch(1), None, Lane(0), 1, 1, groups, 1, times)


def ping(peer: Peer) -> None:
    assert peer.call(Ping(), 10) == Nothing()


def send(peer: Peer) -> None:
    exchange = peer.exchange(header())
    exchange.done_writing(NO_ROWS)
    while exchange.read() is not None:
        pass


def copy(peer: Peer) -> None:
    pieces = peer.stream(CopyGroups("o", 1, (), False), 10)
    next(pieces)
    assert isinstance(pieces, Generator)
    pieces.close()


EACH_WAY = pytest.mark.parametrize("use", [ping, copy, send])


@EACH_WAY
def test_a_caller_that_trusts_the_authority(server: Server, use: Use) -> None:
    use(Peer(server.address, Credentials(TOKEN, OURS.pem), "The peer"))


@EACH_WAY
def test_one_that_trusts_another_authority(server: Server, handler: Handler, use: Use) -> None:
    with pytest.raises(AccessRefused, match=r"not signed by the authority.*token file"):
        use(Peer(server.address, Credentials(TOKEN, OTHERS.pem), "The peer"))
    assert handler.calls == 0


@EACH_WAY
def test_one_that_does_not_encrypt(server: Server, handler: Handler, use: Use) -> None:
    with pytest.raises(AccessRefused, match="speaks TLS"):
        use(Peer(server.address, Credentials(TOKEN), "The peer"))
    assert handler.calls == 0


@EACH_WAY
def test_a_server_that_does_not_encrypt(handler: Handler, use: Use) -> None:
    server = Server("127.0.0.1", Access(TOKEN), handler)
    with pytest.raises(AccessRefused, match="does not speak TLS"):
        use(Peer(server.address, Credentials(TOKEN, OURS.pem), "The peer"))
    server.stop()
    assert handler.calls == 0


def foreign_server(monkeypatch: pytest.MonkeyPatch, handler: Handler) -> tuple[Server, bytes]:
    foreign = tls.make_authority()
    monkeypatch.undo()
    return Server("127.0.0.1", Access(TOKEN), handler, foreign.certificate), foreign.pem


def test_a_certificate_with_another_name(monkeypatch: pytest.MonkeyPatch, handler: Handler) -> None:
    monkeypatch.setattr(tls, "SERVICE_NAME", "somebody-else")
    server, trusted = foreign_server(monkeypatch, handler)
    with pytest.raises(AccessRefused, match="not that of a state service"):
        ping(Peer(server.address, Credentials(TOKEN, trusted), "The peer"))
    server.stop()
    assert handler.calls == 0


def test_a_certificate_of_another_time(monkeypatch: pytest.MonkeyPatch, handler: Handler) -> None:
    monkeypatch.setattr(tls, "_VALID_FROM", datetime(2040, 1, 1, tzinfo=timezone.utc))
    monkeypatch.setattr(tls, "_VALID", 10 * tls._VALID)
    server, trusted = foreign_server(monkeypatch, handler)
    with pytest.raises(AccessRefused, match="Set the clock"):
        ping(Peer(server.address, Credentials(TOKEN, trusted), "The peer"))
    server.stop()
    assert handler.calls == 0


def test_nobody_there_is_no_matter_of_certificates(server: Server) -> None:
    with socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{dead.getsockname()[1]}"
        for credentials in (Credentials(TOKEN), Credentials(TOKEN, OURS.pem)):
            with pytest.raises(ServiceUnavailable, match="cannot be reached") as raised:
                ping(Peer(address, credentials, "The peer"))
            assert not isinstance(raised.value, AccessRefused)


def test_one_that_hangs_up_is_no_matter_of_certificates() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def hang_up() -> None:
            while True:
                try:
                    listener.accept()[0].close()
                except OSError:
                    return

        threading.Thread(target=hang_up, daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        for credentials in (Credentials(TOKEN), Credentials(TOKEN, OURS.pem)):
            with pytest.raises(ServiceUnavailable) as raised:
                ping(Peer(address, credentials, "The peer"))
            assert not isinstance(raised.value, AccessRefused)
        listener.shutdown(socket.SHUT_RDWR)


def test_a_process_may_work_for_two_services(handler: Handler, server: Server) -> None:
    """Their connections are told apart, also where an address was used by one before."""
    ours = Peer(server.address, Credentials(TOKEN, OURS.pem), "The peer")
    ping(ours)
    with pytest.raises(AccessRefused):
        ping(Peer(server.address, Credentials(TOKEN, OTHERS.pem), "The peer"))
    ping(ours)
    client.forget(server.address)
    assert server.address not in client._connections


# --- tokens -------------------------------------------------------------------------------------


def test_a_token_that_does_not_allow_a_call(server: Server, handler: Handler) -> None:
    lane = Peer(server.address, Credentials(TOKEN, OURS.pem).for_lanes(), "The peer")
    ping(lane)
    send(lane)
    assert handler.calls == 2
    with pytest.raises(AccessRefused, match="service's own token"):
        lane.call(AsOf(("o",), ()), 20)
    with pytest.raises(AccessRefused, match="service's own token"):
        copy(lane)
    assert handler.calls == 2


def test_a_revoked_token_ends_streams_too(server: Server, access: Access, handler: Handler) -> None:
    access.admit("joined", Role.SERVICE)
    peer = Peer(server.address, Credentials("joined", OURS.pem), "The peer")
    pieces = peer.stream(CopyGroups("o", 1, (), False), 10)
    next(pieces)
    access.revoke("joined")
    handler.may_go_on.set()
    with pytest.raises(AccessRefused, match="revoked"):
        for _ in pieces:
            pass
    with pytest.raises(AccessRefused, match="does not know the token"):
        ping(peer)
