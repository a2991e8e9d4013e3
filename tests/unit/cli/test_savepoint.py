"""Savepoints by command, beside a service or without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.http.scripted import ScriptedService

from anabranch.cli.main import main
from anabranch.durability.blobs import BlobStore
from anabranch.durability.savepoint import Savepoint, list_savepoints


def test_the_running_service_makes_it(
    service: ScriptedService,
    location: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def opened(path: Any) -> Any:
        asked.append(path)
        return service.savepoint("before")

    monkeypatch.setattr(Savepoint, "open", opened)
    assert main(["savepoint", "create", location, "before", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "before"
    assert asked == ["/before"]
    assert main(["savepoint", "create", location, "x", "--checkpoint", "y"]) == 2
    assert "checkpoints=[...]" in capsys.readouterr().err


def test_without_a_service(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    blobs = BlobStore(location)
    assert main(["savepoint", "create", location, "first", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["operators"] == {}
    assert not list_savepoints(blobs)


def test_nothing_is_deleted_unasked(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["savepoint", "delete", location, "none", "--yes"]) == 2
    assert "none" in capsys.readouterr().err
    assert Path(location).is_dir()
