"""Calls over a cable that is cut: every one of them ends, and none by freed memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from tests.cable import Cable, cable_to
from tests.contract.test_transport import SCHEMA, Echo, batch, header, question

from anabranch.errors import CallTimedOut, NotReachable
from anabranch.transport import in_flight, signs_of_life, wire
from anabranch.transport.access import Access
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Exchange, Peer
from anabranch.transport.in_flight import IN_FLIGHT, InFlight
from anabranch.transport.messages.names import Request, StreamRequest
from anabranch.transport.messages.state import CopyGroups, GoneHead
from anabranch.transport.server import Server
from anabranch.transport.signs_of_life import Item

WAIT = 20
TOKEN = "secret"
BIG = pa.record_batch({"v": pa.array(range(1 << 20), pa.int64())})


class Slow(Echo):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def call(self, request: Request) -> object:
        self.begun.set()
        assert self.go_on.wait(WAIT)
        return super().call(request)

    def exchange(self, header: Any, rows: Iterator[pa.RecordBatch]) -> Any:
        if header.operator == "greedy":
            for _ in rows:
                self.begun.set()
        if header.operator == "deaf":
            self.begun.set()
            assert self.go_on.wait(WAIT)
        answer = super().exchange(header, rows)
        assert self.go_on.wait(WAIT)
        return answer

    def stream(self, request: StreamRequest) -> Iterator[Item]:
        yield GoneHead(1), {}
        self.begun.set()
        assert self.go_on.wait(WAIT)


@pytest.fixture
def slow() -> Iterator[Slow]:
    handler = Slow()
    yield handler
    handler.go_on.set()


@pytest.fixture
def cable(slow: Slow) -> Iterator[Cable]:
    server = Server("127.0.0.1", Access(TOKEN), slow)
    with Cable(server.address) as cable:
        yield cable
    slow.go_on.set()
    server.stop()


@pytest.fixture
def peer(cable: Cable) -> Peer:
    return Peer(cable.address, Credentials(TOKEN), "The worker")


def begun(work: Callable[[], object]) -> Future[object]:
    """In a thread that nobody waits for if it hangs."""
    done: Future[object] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def write_for_ever(exchange: Exchange) -> None:
    with closing(exchange):
        while True:
            exchange.write(BIG)


def read_answer(exchange: Exchange) -> object:
    with closing(exchange):
        exchange.write(batch(1))
        exchange.done_writing(SCHEMA)
        return exchange.read()


WAYS: dict[str, Callable[[Peer], object]] = {
    "patient call": lambda peer: peer.call_patiently(question("hello")),
    "stream": lambda peer: list(peer.stream(CopyGroups("x", 1, (), False))),
    "exchange, reading": lambda peer: read_answer(peer.exchange(header())),
    "exchange, writing": lambda peer: write_for_ever(peer.exchange(header("deaf"))),
}
EVERY_WAY = pytest.mark.parametrize("way", WAYS)


@EVERY_WAY
def test_what_goes_to_a_dead_process_ends_at_once(
    peer: Peer, slow: Slow, cable: Cable, way: str
) -> None:
    call = begun(lambda: WAYS[way](peer))
    assert slow.begun.wait(WAIT)
    cable.cut()
    time.sleep(0.3)
    assert not call.done(), "no socket notices it"
    started = time.monotonic()
    IN_FLIGHT.gone(TOKEN, cable.address)
    with pytest.raises(NotReachable, match="The worker is gone, says the coordinator"):
        call.result(WAIT)
    assert time.monotonic() - started < 2
    assert not IN_FLIGHT.count(cable.address)


def test_bytes_on_the_way_do_not_hold_up_the_end_of_a_call(slow: Slow) -> None:
    """gRPC waits until the kernel has sent them. It has some in about every second round."""
    slow.go_on.set()
    server = Server("127.0.0.1", Access(TOKEN), slow)
    try:
        for _ in range(6):
            with cable_to(server.address) as cable:
                slow.begun.clear()
                peer = Peer(cable.address, Credentials(TOKEN), "The worker")
                call = begun(lambda peer=peer: write_for_ever(peer.exchange(header("greedy"))))  # type: ignore[misc]
                assert slow.begun.wait(WAIT)
                cable.cut()
                time.sleep(0.2)
                IN_FLIGHT.gone(TOKEN, cable.address)
                with pytest.raises(NotReachable, match="is gone"):
                    call.result(8)
    finally:
        server.stop()


@EVERY_WAY
def test_a_cut_cable_ends_a_call_after_some_silence(
    peer: Peer, slow: Slow, cable: Cable, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "SILENCE_SECONDS", 2 * wire.SIGN_SECONDS)
    monkeypatch.setattr(in_flight, "PROBE_SECONDS_MAX", 0.5)
    call = begun(lambda: WAYS[way](peer))
    assert slow.begun.wait(WAIT)
    cable.cut()
    with pytest.raises(NotReachable, match=f"cut off: its host does not answer at {cable.address}"):
        call.result(WAIT)


@pytest.mark.parametrize("way", ["patient call", "exchange, reading"])
def test_a_connection_that_a_firewall_forgot_ends_too(
    peer: Peer, slow: Slow, cable: Cable, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host answers, but nothing comes by this connection."""
    monkeypatch.setattr(in_flight, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(in_flight.Underway, "is_mute", lambda self: self.silent_seconds() > 4)
    call = begun(lambda: WAYS[way](peer))
    assert slow.begun.wait(WAIT)
    cable.cut()
    cable.heal(forget=True)
    with pytest.raises(NotReachable, match="has sent nothing for"):
        call.result(WAIT)


@pytest.mark.parametrize("way", ["patient call", "exchange, reading"])
def test_who_shows_signs_of_life_is_waited_for(
    peer: Peer, slow: Slow, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(signs_of_life, "SIGN_SECONDS", 0.2)
    monkeypatch.setattr(InFlight, "_probe_host", lambda self, address: pytest.fail("silent"))
    call = begun(lambda: WAYS[way](peer))
    assert slow.begun.wait(WAIT)
    time.sleep(3)
    slow.go_on.set()
    assert call.result(WAIT) is not None


def test_a_unary_call_ends_at_its_deadline(peer: Peer, cable: Cable, slow: Slow) -> None:
    slow.go_on.set()
    peer.call(question("hello"), WAIT)
    cable.cut()
    started = time.monotonic()
    with pytest.raises(CallTimedOut):
        peer.call(question("hello"), 1)
    assert time.monotonic() - started < 3


def test_nothing_is_begun_where_nobody_is(peer: Peer, slow: Slow, cable: Cable) -> None:
    slow.go_on.set()
    IN_FLIGHT.gone(TOKEN, cable.address)

    def unary(peer: Peer) -> object:
        return peer.call(question("hello"), WAIT)

    for way in (*WAYS.values(), unary):
        with pytest.raises(NotReachable, match="is gone") as raised:
            way(peer)
        assert raised.value.address == cable.address
    IN_FLIGHT.here(TOKEN, cable.address)  # another process has the port now
    peer.call(question("hello"), WAIT)


def test_what_another_service_says_of_an_address_does_not_count(
    peer: Peer, slow: Slow, cable: Cable
) -> None:
    """Its worker had the port before; its coordinator may be late to notice the end."""
    call = begun(lambda: peer.call_patiently(question("hello")))
    assert slow.begun.wait(WAIT)
    IN_FLIGHT.gone("token of another service", cable.address)
    slow.go_on.set()
    assert call.result(WAIT) is not None
    assert peer.call(question("hello"), WAIT) is not None


def test_a_new_connection_to_a_host_that_is_cut_off_fails_soon(peer: Peer, cable: Cable) -> None:
    cable.cut()
    started = time.monotonic()
    with pytest.raises(NotReachable):
        peer.exchange(header())
    assert time.monotonic() - started < 10


def test_the_host_of_a_busy_process_answers(peer: Peer, cable: Cable) -> None:
    assert in_flight.answers(cable.address)
    assert in_flight.answers("127.0.0.1:9"), "a refusal is an answer"
    cable.cut()
    assert not in_flight.answers(cable.address)


def test_many_calls_end_together_safely(peer: Peer, slow: Slow, cable: Cable) -> None:
    """Those that open, read and write, and those that end by themselves at that moment."""
    for _ in range(5):
        IN_FLIGHT.here(TOKEN, cable.address)
        calls = [begun(lambda way=way: way(peer)) for way in WAYS.values() for _ in range(6)]  # type: ignore[misc]
        time.sleep(0.05)
        IN_FLIGHT.gone(TOKEN, cable.address)
        for call in calls:
            with pytest.raises(NotReachable):
                call.result(WAIT)
    assert not IN_FLIGHT.count(cable.address)
