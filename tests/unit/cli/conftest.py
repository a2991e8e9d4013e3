"""A location on which a scripted service listens; tokens go into the test's own folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.http.scripted import ScriptedService, serving

from anabranch.durability.store import StateStore


@pytest.fixture(autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.mktemp("run")
    folder.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))


@pytest.fixture
def location(tmp_path: Path) -> str:
    where = str(tmp_path / "state")
    with StateStore(where):
        return where


@pytest.fixture
def service(location: str) -> Iterator[ScriptedService]:
    scripted = ScriptedService()
    with serving(scripted, Path(location)):
        yield scripted
