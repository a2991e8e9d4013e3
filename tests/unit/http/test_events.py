"""Events for very many listeners."""

from __future__ import annotations

import selectors
import socket
import time
from typing import Any

import pytest
from tests.unit.http.scripted import Client, ScriptedService, tokens_of
from tests.unit.http.test_door import connected, port_of

from anabranch.http import door, guard
from anabranch.http.events import LISTENERS_MAX
from anabranch.http.server import HttpServer
from anabranch.model.journal_entry import EntryKind

PATIENCE_SECONDS = 120.0
NOTES = 200
NOTE_SECONDS_MAX = 0.001


def read_until(connections: list[socket.socket], wanted: bytes) -> None:
    """Each of them reads this."""
    seen = dict.fromkeys(connections, b"")
    deadline = time.monotonic() + PATIENCE_SECONDS
    with selectors.DefaultSelector() as selector:
        for each in connections:
            each.setblocking(False)
            selector.register(each, selectors.EVENT_READ)
        while selector.get_map():
            assert time.monotonic() < deadline, f"{len(selector.get_map())} still wait"
            for key, _ in selector.select(1.0):
                connection: Any = key.fileobj
                read = connection.recv(1 << 16)
                assert read, seen[connection]
                seen[connection] += read
                if wanted in seen[connection]:
                    selector.unregister(connection)


@pytest.mark.slow
def test_a_thousand_streams(
    server: HttpServer, service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What happens is told to all of them; who notes it does not wait."""
    monkeypatch.setattr(door, "A_SECOND", 1e6)
    monkeypatch.setattr(guard, "REQUESTS_A_SECOND", 1e6)
    request = (
        f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\n"
        f"Authorization: Bearer {tokens_of(server)['reader']}\r\n\r\n"
    )
    with connected(server, LISTENERS_MAX, request.encode()) as streams:
        read_until(streams, b": listening")
        with Client(server, tokens_of(server)["reader"]) as one_more:
            assert one_more.api("GET", "/events").status_code == 503
            used = time.thread_time()
            for epoch in range(NOTES):
                service.happens(EntryKind.BATCH, operator="totals", epoch=epoch, seconds=0.1)
            used = time.thread_time() - used
            assert used / NOTES < NOTE_SECONDS_MAX
            assert one_more.api("GET", "/status").status_code == 200
        read_until(streams, f'"epoch": {NOTES - 1}'.encode())
        assert server._thread.is_alive()


def test_who_does_not_read_is_let_go(
    server: HttpServer, service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = (
        f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\n"
        f"Authorization: Bearer {tokens_of(server)['reader']}\r\n\r\n"
    )
    with connected(server, 1, request.encode()) as (deaf,):
        assert deaf.recv(4096).startswith(b"HTTP/1.1 200")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while server._events._queues:
            service.happens(EntryKind.BATCH_FAILED, text="x" * 200_000)
            assert time.monotonic() < deadline
            time.sleep(0.01)
