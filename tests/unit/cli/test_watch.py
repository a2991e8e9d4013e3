"""A running service in the terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.unit.http.scripted import ScriptedService

from anabranch.cli import watch
from anabranch.cli.asking import EXIT_NOT_RUNNING
from anabranch.cli.main import main
from anabranch.cli.watch_view import WatchSample, busy_shares, sparkline, view
from anabranch.http.client import ServiceClient


def drawn(*samples: WatchSample, trouble: str = "") -> str:
    """A frame as text."""
    console = Console(file=io.StringIO(), width=140, force_terminal=False)
    before = samples[-2] if len(samples) > 1 else None
    console.print(view("state/orders", samples[-1], before, trouble))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def look(location: str) -> WatchSample:
    return watch.sample(ServiceClient.of(location))


def test_one_picture(
    service: ScriptedService,
    location: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["rescale", location, "3", "--yes"]) == 0
    capsys.readouterr()
    assert main(["watch", location, "--once"]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2 workers up" in shown
    assert "totals" in shown
    assert "move 1: live, 1 -> 2 workers" in shown
    assert main(["watch", location, "--once", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"]["routing_version"] == 4


def test_busy_is_told_from_two_looks(service: ScriptedService, location: str) -> None:
    first = look(location)
    assert busy_shares(first, None) == {}
    busy: dict[str, Any] = json.loads(json.dumps(first.status))
    busy["workers"]["w1"]["busy_seconds"]["totals"]["applying"] += 1.9
    second = replace(first, at=first.at + 2, status=busy)
    assert busy_shares(second, first) == {"w1": pytest.approx(0.95), "w2": 0.0}
    assert "95%" in drawn(first, second)
    busy["workers"]["w1"]["pid"] = 4711  # a new process counts from zero
    assert "w1" not in busy_shares(second, first)


def test_trouble_is_shown_beside_the_last_picture(service: ScriptedService, location: str) -> None:
    assert "does not answer" in drawn(look(location), trouble="It does not answer.")


def test_heights() -> None:
    assert sparkline([0.0, 1.0, 2.0]) == "▁▅█"
    assert sparkline([0.0]) == "▁"
    assert sparkline([]) == ""


def test_no_service(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", location]) == EXIT_NOT_RUNNING
    assert "No service listens" in capsys.readouterr().err


def test_a_service_that_dies_ends_it(
    service: ScriptedService,
    location: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def console() -> Console:
        return Console(file=io.StringIO(), force_terminal=True, width=100)

    asked: list[str] = []
    get = ServiceClient.get

    def dies(self: ServiceClient, path: str, **query: Any) -> Any:
        asked.append(path)
        if len(asked) > 6:
            self.endpoint = replace(self.endpoint, url="http://127.0.0.1:1")
        return get(self, path, **query)

    monkeypatch.setattr(ServiceClient, "get", dies)
    monkeypatch.setattr("rich.console.Console", console)
    monkeypatch.setattr(watch, "SILENT_SECONDS_MAX", 0.1)
    assert main(["watch", location, "--interval", "50ms"]) == EXIT_NOT_RUNNING
    assert "anabranch status" in capsys.readouterr().err
