"""`anabranch autoscale`: what it asks for, and what people read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.http.scripted import ScriptedService, serving

from anabranch.cli.autoscale import decision_line, explained, settings_line
from anabranch.cli.main import main
from anabranch.durability.store import StateStore

DECISION: dict[str, Any] = {
    "time": 1000.0,
    "until": 1042.0,
    "mode": "recommend",
    "action": "rescale",
    "rule": "up",
    "workers": 2,
    "wanted": 5,
    "to": 5,
    "reason": "More come.",
    "query": "totals",
    "inputs": {"arrival_rows_per_second": 300.0},
}
SETTINGS: dict[str, Any] = {
    "mode": "act",
    "min": 2,
    "max": 8,
    "latency_target": None,
    "target_utilization": 0.7,
    "stabilization_interval": 10.0,
    "scale_down_interval": 300.0,
}


class Answering(ScriptedService):
    """With whole settings and a decision."""

    def autoscaler(self, limit: int = 50) -> dict[str, Any]:
        return {"settings": SETTINGS, "decisions": [DECISION]}


@pytest.fixture
def location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, str]]:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    service = Answering()
    with StateStore(str(tmp_path / "state")):
        pass
    with serving(service, tmp_path / "state"):
        yield service, str(tmp_path / "state")


def test_settings_are_changed_and_decisions_explained(
    location: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    service, where = location
    words = ["autoscale", where, "--min", "2", "--latency-target", "500ms", "--mode", "act"]
    assert main([*words, "--explain"]) == 0
    assert service.asked == [("autoscale", {"min": 2, "latency_target": 0.5, "mode": "act"})]
    said = capsys.readouterr().out
    assert "act: 2 to 8 workers for workers busy 70% of the time" in said
    assert "2 workers, would go to 5 [up] (for 42 s): More come." in said
    assert "arrival_rows_per_second  300.0" in said


def test_looking_changes_nothing(
    location: tuple[Any, str], capsys: pytest.CaptureFixture[str]
) -> None:
    service, where = location
    assert main(["autoscale", where, "--json"]) == 0
    assert service.asked == []
    assert '"rule": "up"' in capsys.readouterr().out


def test_nothing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "state").mkdir()
    assert main(["autoscale", str(tmp_path / "state")]) in (2, 3)
    assert "anabranch:" in capsys.readouterr().err


def test_lines() -> None:
    assert settings_line({**SETTINGS, "mode": "off"}).startswith("off:")
    assert "batches of at most 1.5 s" in settings_line({**SETTINGS, "latency_target": 1.5})
    done = {**DECISION, "mode": "act", "until": 1000.0}
    assert "goes to 5 [up]: More" in decision_line(done)
    balance = {**DECISION, "action": "rebalance", "to": None}
    assert "would rebalance [up]" in decision_line(balance)
    assert explained({**DECISION, "query": ""}) == ["    arrival_rows_per_second  300.0"]
