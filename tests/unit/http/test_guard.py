"""Closed by default: every route, every way to be refused."""

from __future__ import annotations

import os
import re
import socket
import stat
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.http.scripted import Client, ScriptedService, serving, tokens_of

from anabranch.durability.blobs import BlobStore
from anabranch.errors import InvalidArgument, ServiceUnavailable
from anabranch.http import guard
from anabranch.http.endpoint import ServiceEndpoint, TokenFile, runtime_folder
from anabranch.http.guard import CSRF_HEADER, PUBLIC, RateLimit
from anabranch.http.server import HttpServer
from anabranch.http.tokens import LOGIN_SECONDS, ApiRole, Tokens

RESCALE = {"kind": "rescale", "workers": 3}


def routes(client: Client) -> list[tuple[str, str]]:
    """Method and path of all that the server has."""
    described = client.get("/openapi.json").json()["paths"]
    found = [
        (method.upper(), re.sub(r"{\w+}", "1", path))
        for path, methods in described.items()
        for method in methods
    ]
    others = (
        "/openapi.json",
        "/metrics",
        "/",
        "/api/v1/events",
        "/api/v1/session",
        "/nothing",
        "/assets/index.js",
    )
    found.append(("POST", "/api/v1/logins"))
    return found + [("GET", path) for path in others]


@pytest.mark.parametrize("token", [None, "wrong", "\u00e9"])
def test_no_route_without_the_token(
    server: HttpServer, operator: Client, service: ScriptedService, token: str | None
) -> None:
    for method, path in routes(operator):
        given = f"Bearer {token}".encode()
        headers = [] if token is None else [(b"Authorization", given)]
        answer = httpx.request(
            method, server.endpoint.url + path, headers=headers, json=RESCALE, trust_env=False
        )
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert not service.asked


def test_who_may_read_changes_nothing(
    operator: Client, reader: Client, service: ScriptedService
) -> None:
    changes = [(method, path) for method, path in routes(operator) if method != "GET"]
    assert len(changes) >= 4
    for method, path in changes:
        assert reader.request(method, path, json=RESCALE).status_code == 403, path
    assert not service.asked


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost:1", "", "127.0.0.1.evil"])
def test_no_route_for_another_host(operator: Client, host: str) -> None:
    for method, path in [*routes(operator), *(("GET", path) for path in PUBLIC)]:
        answer = operator.request(method, path, headers={"Host": host}, json=RESCALE)
        assert answer.status_code in (400, 421), (method, path, answer.status_code)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1"])
def test_no_route_for_pages_of_other_sites(operator: Client, origin: str) -> None:
    for method, path in routes(operator):
        answer = operator.request(method, path, headers={"Origin": origin}, json=RESCALE)
        assert answer.status_code == 403, (method, path)


def test_its_own_pages_may(server: HttpServer, operator: Client) -> None:
    answer = operator.api("GET", "/status", headers={"Origin": server.endpoint.url})
    assert answer.status_code == 200


def test_a_link_works_once(server: HttpServer) -> None:
    with Client(server, None) as browser:
        link = server.login_url
        first = browser.get(link)
        assert first.status_code == 200
        assert "url=/" in first.text
        cookie = first.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.api("GET", "/status").status_code == 200
    with Client(server, None) as other:
        assert other.get(link).status_code == 403
        assert other.api("GET", "/status").status_code == 401


def test_a_change_by_cookie_needs_what_only_our_pages_know(
    server: HttpServer, service: ScriptedService
) -> None:
    with Client(server, None) as browser:
        browser.get(server.login_url)
        assert browser.api("POST", "/moves", json=RESCALE).status_code == 403
        wrong = {CSRF_HEADER: "wrong"}
        assert browser.api("POST", "/moves", json=RESCALE, headers=wrong).status_code == 403
        assert not service.asked
        csrf = browser.api("GET", "/session").json()["csrf"]
        right = {CSRF_HEADER: csrf}
        assert browser.api("POST", "/moves", json=RESCALE, headers=right).status_code == 202


def test_headers_of_every_answer(server: HttpServer, operator: Client) -> None:
    with Client(server, None) as anyone:
        answers = (operator.api("GET", "/status"), operator.get("/nothing"), anyone.get("/"))
        for answer in answers:
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers
            assert "access-control-allow-origin" not in answer.headers


def test_links_and_sessions_end() -> None:
    clock = [0.0]
    tokens = Tokens(now=lambda: clock[0])
    code = tokens.new_login()
    clock[0] = LOGIN_SECONDS + 1
    assert tokens.log_in(code) is None
    opened = tokens.log_in(tokens.new_login())
    assert opened is not None
    cookie, session = opened
    assert session.role is ApiRole.OPERATE
    assert tokens.session_of(cookie) == session
    clock[0] = session.ends + 1
    assert tokens.session_of(cookie) is None


def test_tokens_are_not_shown() -> None:
    tokens = Tokens()
    assert tokens.operator not in repr(tokens)
    assert tokens.reader not in repr(tokens)


# -- files --


def test_secrets_are_in_a_private_file_only(
    server: HttpServer, tmp_path: Path, runtime: Path
) -> None:
    path = server.token_file.path
    assert path.parent == runtime
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    told = (tmp_path / "state" / "endpoint.json").read_bytes()
    for secret in (tokens_of(server)["operator"], tokens_of(server)["reader"]):
        assert secret.encode() not in told
        assert secret.encode() not in Path("/proc/self/cmdline").read_bytes()


def test_no_file_says_otherwise_after_the_end(
    service: ScriptedService, tmp_path: Path, runtime: Path
) -> None:
    with serving(service, tmp_path / "state") as server:
        blobs = BlobStore(str(tmp_path / "state"))
        assert ServiceEndpoint.read(blobs) == server.endpoint
        port = int(server.endpoint.url.rpartition(":")[2])
    assert ServiceEndpoint.read(blobs) is None
    assert list(runtime.iterdir()) == []
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_token_files_of_the_dead_go(
    service: ScriptedService, tmp_path: Path, runtime: Path
) -> None:
    runtime.mkdir(mode=0o700)
    dead, alive, foreign = (runtime / f"{name}.json" for name in ("dead", "alive", "foreign"))
    dead.write_text('{"pid": 4194304}')
    alive.write_text(f'{{"pid": {os.getpid()}}}')
    foreign.write_text("?")
    with serving(service, tmp_path / "state"):
        assert not dead.exists()
        assert alive.exists()
        assert foreign.exists()


def test_a_folder_that_others_can_open_is_refused(runtime: Path) -> None:
    runtime.mkdir(mode=0o755)
    runtime.chmod(0o755)
    with pytest.raises(InvalidArgument, match="chmod 700"):
        runtime_folder()


def test_a_folder_that_is_a_link_is_refused(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    runtime.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidArgument, match="must be a folder of yours"):
        runtime_folder()


def test_another_user_finds_no_token(server: HttpServer, tmp_path: Path) -> None:
    other = TokenFile(server.endpoint, tmp_path)
    with pytest.raises(ServiceUnavailable, match="ANABRANCH_TOKEN"):
        other.read()


def test_a_port_that_is_taken_is_said(service: ScriptedService, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidArgument, match=f"{port}"):
            HttpServer(service, BlobStore(str(tmp_path)), port)


# -- load --


def test_the_bucket() -> None:
    clock = [0.0]
    limit = RateLimit(lambda: clock[0])
    waits = [limit.take() for _ in range(int(guard.BURST) + 100)]
    assert waits[: int(guard.BURST)] == [0.0] * int(guard.BURST)
    assert waits[-1] == pytest.approx(1.0)
    clock[0] = 3600.0
    assert limit.take() == 0.0


def test_a_flood_costs_no_more_than_its_share(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch, operator: Client, service: ScriptedService
) -> None:
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.05)
    answered: list[int] = []
    until = time.monotonic() + 3.0

    def flood() -> None:
        with Client(server, tokens_of(server)["operator"]) as client:
            while time.monotonic() < until:
                answered.append(client.api("GET", "/status").status_code)

    threads = [threading.Thread(target=flood) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    passed = answered.count(200)
    assert set(answered) <= {200, 429}
    assert passed <= guard.BURST + guard.REQUESTS_A_SECOND * 4
    assert service.looks <= 6


def test_slow_clients_hold_up_nobody(server: HttpServer, operator: Client) -> None:
    port = int(server.endpoint.url.rpartition(":")[2])
    slow: list[Any] = []
    try:
        for _ in range(200):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(b"GET /api/v1/status HTTP/1.1\r\nHost: ")
            slow.append(connection)
        assert operator.api("GET", "/status").status_code == 200
    finally:
        for connection in slow:
            connection.close()
