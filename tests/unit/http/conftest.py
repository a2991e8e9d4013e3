"""A server for each test; its token file goes into the test's own folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.http.scripted import Client, ScriptedService, serving, tokens_of

from anabranch.durability.store import StateStore
from anabranch.http.server import HttpServer


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder / "anabranch"


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


@pytest.fixture
def server(service: ScriptedService, tmp_path: Path) -> Iterator[HttpServer]:
    with StateStore(str(tmp_path / "state")):
        pass  # a location, in which nothing has happened
    with serving(service, tmp_path / "state") as started:
        yield started


@pytest.fixture
def operator(server: HttpServer) -> Iterator[Client]:
    with Client(server, tokens_of(server)["operator"]) as client:
        yield client


@pytest.fixture
def reader(server: HttpServer) -> Iterator[Client]:
    with Client(server, tokens_of(server)["reader"]) as client:
        yield client
