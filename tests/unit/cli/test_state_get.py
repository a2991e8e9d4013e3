"""One key of a running service. `tests/spark` looks into stored state too."""

from __future__ import annotations

import json

import pytest
from tests.unit.http.scripted import ScriptedService

from anabranch.cli.main import main
from anabranch.cli.state_get import EXIT_NONE


def test_a_key(service: ScriptedService, location: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["state", "get", location, "42", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["operator"], found["epoch"]) == ("totals", 7)
    assert main(["state", "get", location, "berlin"]) == EXIT_NONE
    assert "totals as of batch 7:\nnull" in capsys.readouterr().out


def test_what_is_refused(
    service: ScriptedService, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["state", "get", location]) == 2
    assert "Give the key" in capsys.readouterr().err
    assert main(["state", "get", location, "1", "--operator", "other"]) == 2
    assert "no operator" in capsys.readouterr().err
    assert main(["state", location, "1"]) == 2
    assert "too much" in capsys.readouterr().err
