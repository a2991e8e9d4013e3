"""Connections come in at a bounded pace, whatever they do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.http.scripted import Client, ScriptedService, tokens_of

from anabranch.http import app, door
from anabranch.http.server import HttpServer

PATIENCE_SECONDS = 60.0


def port_of(server: HttpServer) -> int:
    return int(server.endpoint.url.rpartition(":")[2])


@contextmanager
def connected(server: HttpServer, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    """Clients that say something and wait."""
    found = []
    try:
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port_of(server)), PATIENCE_SECONDS)
            connection.sendall(said)
            found.append(connection)
        yield found
    finally:
        for connection in found:
            connection.close()


def test_who_connects_as_fast_as_he_can_is_let_in_slowly(
    server: HttpServer, service: ScriptedService
) -> None:
    request = f"GET /api/v1/status HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\n\r\n".encode()
    came: list[int] = []
    let_in: list[int] = []
    noted = server._door.begun

    def begun(address: tuple[str, int] | None) -> None:
        let_in.append(1)
        noted(address)

    server._door.begun = begun  # type: ignore[method-assign]
    started = time.monotonic()

    def flood() -> None:
        while time.monotonic() < started + 3.0:
            try:
                with socket.create_connection(("127.0.0.1", port_of(server)), 0.2) as connection:
                    connection.sendall(request)
                came.append(1)
            except OSError:
                time.sleep(0.001)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - started
    assert 0 < len(let_in) <= door.BURST + door.A_SECOND * (seconds + 1)
    assert len(came) > len(let_in)
    assert service.looks == 0


def test_who_says_nothing_is_let_out(
    server: HttpServer, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "SILENT_SECONDS_MAX", 0.3)
    with connected(server, 20, b"GET /api/v1/status HTTP/1.1\r\nHost: ") as slow:
        for connection in slow:
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        assert operator.api("GET", "/status").status_code == 200


def test_a_full_house_opens_again(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "SILENT_SECONDS_MAX", 0.5)
    monkeypatch.setattr(door, "OPEN_MAX", 5)
    with connected(server, 12, b"GET"), Client(server, tokens_of(server)["reader"]) as client:
        assert client.api("GET", "/status").status_code == 200


def test_who_waits_for_an_answer_is_not_let_out(
    server: HttpServer,
    service: ScriptedService,
    operator: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(door, "SILENT_SECONDS_MAX", 0.2)
    service.seconds = 2.0
    assert operator.api("GET", "/status").status_code == 200


def test_a_body_that_does_not_come(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, service: ScriptedService
) -> None:
    monkeypatch.setattr(app, "BODY_SECONDS_MAX", 0.3)
    head = (
        f"POST /api/v1/moves HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\n"
        f"Authorization: Bearer {tokens_of(server)['operator']}\r\n"
        'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"kind"'
    )
    with connected(server, 1, head.encode()) as (slow,):
        assert slow.recv(64).startswith(b"HTTP/1.1 408")
    assert not service.asked
