"""Calls whose reply comes in pieces."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pytest

from anabranch.errors import AnabranchError, CorruptState, ServiceUnavailable
from anabranch.transport.client import Peer
from anabranch.transport.server import Server
from anabranch.transport.wire import Message


class Streams:
    def __init__(self) -> None:
        self.made = 0
        self.ended = threading.Event()

    def action(self, name: str, body: bytes) -> Message:
        return {}

    def exchange(self, header: Message, rows: Iterator[pa.RecordBatch]) -> None:
        raise AssertionError

    def stream(
        self, name: str, message: Message
    ) -> Iterator[tuple[Message, Mapping[str, pa.Table]]]:
        try:
            for n in range(message["pieces"]):
                self.made += 1
                yield (
                    {"n": n},
                    {
                        "numbers": pa.table({"v": pa.array(range(n), pa.int64())}),
                        "names": pa.table({"s": [f"name {n}"], "w": [None]}),
                    },
                )
            if name == "fail":
                raise CorruptState("file x is damaged")
            if name == "bug":
                raise KeyError("oops")
            yield {"last": True}, {}
        finally:
            self.ended.set()


@pytest.fixture
def handler() -> Streams:
    return Streams()


@pytest.fixture
def server(handler: Streams) -> Iterator[Server]:
    server = Server("127.0.0.1", "secret", handler)  # type: ignore[arg-type]
    yield server
    server.stop()


def test_pieces_keep_their_tables_and_order(server: Server) -> None:
    peer = Peer(server.address, "secret", "The peer")
    pieces = list(peer.stream("x", {"pieces": 5}))
    assert [head.get("n") for head, _ in pieces] == [0, 1, 2, 3, 4, None]
    assert pieces[3][1]["numbers"].column("v").to_pylist() == [0, 1, 2]
    assert pieces[4][1]["names"].to_pylist() == [{"s": "name 4", "w": None}]
    assert pieces[5] == ({"last": True, "tables": []}, {})


@pytest.mark.parametrize(("name", "kind"), [("fail", CorruptState), ("bug", AnabranchError)])
def test_errors_after_some_pieces_keep_their_kind(
    server: Server, name: str, kind: type[AnabranchError]
) -> None:
    pieces = Peer(server.address, "secret", "The peer").stream(name, {"pieces": 2})
    assert [next(pieces)[0]["n"], next(pieces)[0]["n"]] == [0, 1]
    with pytest.raises(kind):
        next(pieces)


def test_a_caller_that_leaves_ends_the_call(server: Server, handler: Streams) -> None:
    pieces = Peer(server.address, "secret", "The peer").stream("x", {"pieces": 10**6})
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert handler.ended.wait(20)
    assert handler.made < 10**6


def test_without_the_token_or_the_peer(server: Server, handler: Streams) -> None:
    with pytest.raises(ServiceUnavailable, match="token"):
        list(Peer(server.address, "wrong", "The peer").stream("x", {"pieces": 1}))
    with pytest.raises(ServiceUnavailable, match="cannot be reached"):
        list(Peer("127.0.0.1:9", "secret", "The peer").stream("x", {"pieces": 1}))
    assert handler.made == 0
