"""Calls whose reply comes in pieces."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError, CorruptState, ServiceUnavailable
from anabranch.transport.access import Access
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Peer
from anabranch.transport.messages.kinds import Nothing
from anabranch.transport.messages.lanes import TransactionHeader
from anabranch.transport.messages.names import Request, StreamRequest
from anabranch.transport.messages.state import CopyGroups, GoneHead, GroupHead, RestartHead
from anabranch.transport.server import Server


class Streams:
    def __init__(self) -> None:
        self.made = 0
        self.ended = threading.Event()

    def call(self, request: Request) -> object:
        return Nothing()

    def exchange(self, header: TransactionHeader, rows: Iterator[pa.RecordBatch]) -> None:
        raise AssertionError

    def stream(self, request: StreamRequest) -> Iterator[tuple[GroupHead, Mapping[str, pa.Table]]]:
        assert isinstance(request, CopyGroups)
        try:
            for n in request.groups or range(10**6):
                self.made += 1
                yield (
                    GoneHead(n),
                    {
                        "numbers": pa.table({"v": pa.array(range(n), pa.int64())}),
                        "names": pa.table({"s": [f"name {n}"], "w": [None]}),
                    },
                )
            if request.operator == "fail":
                raise CorruptState("file x is damaged")
            if request.operator == "bug":
                raise KeyError("oops")
            yield RestartHead(0), {}
        finally:
            self.ended.set()


def parcels(pieces: int, operator: str = "x") -> CopyGroups:
    """Asks for so many parcels; 0: for a million."""
    return CopyGroups(operator, 1, tuple(range(pieces)), False)


@pytest.fixture
def handler() -> Streams:
    return Streams()


@pytest.fixture
def server(handler: Streams) -> Iterator[Server]:
    server = Server("127.0.0.1", Access("secret"), handler)  # type: ignore[arg-type]
    yield server
    server.stop()


def test_pieces_keep_their_tables_and_order(server: Server) -> None:
    peer = Peer(server.address, Credentials("secret"), "The peer")
    pieces = list(peer.stream(parcels(5)))
    assert [piece.head for piece in pieces] == [*map(GoneHead, range(5)), RestartHead(0)]
    assert pieces[3].tables["numbers"].column("v").to_pylist() == [0, 1, 2]
    assert pieces[4].tables["names"].to_pylist() == [{"s": "name 4", "w": None}]
    assert pieces[4].bytes > pieces[5].bytes == 0
    assert pieces[5].tables == {}


@pytest.mark.parametrize(("name", "kind"), [("fail", CorruptState), ("bug", AnabranchError)])
def test_errors_after_some_pieces_keep_their_kind(
    server: Server, name: str, kind: type[AnabranchError]
) -> None:
    pieces = Peer(server.address, Credentials("secret"), "The peer").stream(parcels(2, name))
    assert [next(pieces).head, next(pieces).head] == [GoneHead(0), GoneHead(1)]
    with pytest.raises(kind):
        next(pieces)


def test_a_caller_that_leaves_ends_the_call(server: Server, handler: Streams) -> None:
    pieces = Peer(server.address, Credentials("secret"), "The peer").stream(parcels(0))
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert handler.ended.wait(20)
    assert handler.made < 10**6


def test_without_the_token_or_the_peer(server: Server, handler: Streams) -> None:
    with pytest.raises(ServiceUnavailable, match="token"):
        list(Peer(server.address, Credentials("wrong"), "The peer").stream(parcels(1)))
    with pytest.raises(ServiceUnavailable, match="cannot be reached"):
        list(Peer("127.0.0.1:9", Credentials("secret"), "The peer").stream(parcels(1)))
    assert handler.made == 0
