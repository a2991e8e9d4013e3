"""Commands that change a running service, against the real HTTP server of a scripted one."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.unit.http.scripted import ScriptedService, serving

from anabranch.cli.asking import EXIT_FAILED, EXIT_NOT_RUNNING, EXIT_TIMED_OUT
from anabranch.cli.main import main
from anabranch.coordinator.move_handle import Progress
from anabranch.errors import NotRunning
from anabranch.http.client import ServiceClient


def test_what_it_would_do(
    service: ScriptedService, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescale", location, "3", "--dry-run"]) == 0
    assert "1 -> 2 workers" in capsys.readouterr().out
    assert main(["rescale", location, "3", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 100
    assert not service.moves


def test_nothing_is_done_unasked(
    service: ScriptedService,
    location: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))  # no terminal
    assert main(["drain", location, "w1"]) == 2
    assert "Say --yes" in capsys.readouterr().err
    assert not service.moves


def test_every_command_asks_for_what_it_says(service: ScriptedService, location: str) -> None:
    how = ["--strategy", "meces", "--bytes-per-second", "1000", "--yes"]
    assert main(["rescale", location, "3", *how]) == 0
    assert main(["move", location, "1", "2", "--to", "w2", *how]) == 0
    assert main(["drain", location, "w1", *how]) == 0
    assert main(["rebalance", location, *how]) == 0
    assert main(["drain", location, "--host", "h1", *how]) == 0
    assert main(["place", location, "berlin", "--on", "rack=3", *how]) == 0
    assert main(["rescale", location, "4", "--hosts", "h1", "h2", *how]) == 0
    common = {"strategy": "meces", "bytes_per_second": 1000, "cause": "command line"}
    assert service.asked == [
        ("rescale", {"workers": 3, **common}),
        ("move", {"key_groups": [1, 2], "to": "w2", **common}),
        ("drain", {"worker": "w1", **common}),
        ("rebalance", common),
        ("drain", {"host": "h1", **common}),
        ("place", {"site": "berlin", "on": "rack=3", **common}),
        ("rescale", {"workers": 4, "hosts": ["h1", "h2"], **common}),
    ]


def test_a_standby(service: ScriptedService, location: str) -> None:
    assert main(["standby", location, "4", "--dry-run"]) == 0
    assert not service.moves
    assert main(["standby", location, "4", "--yes"]) == 0
    assert service.asked[-1] == ("standby", {"workers": 4, "cause": "command line"})


@pytest.mark.parametrize(
    ("reason", "code"), [("", 0), ("failed: no room", EXIT_FAILED), ("It was cancelled.", 4)]
)
def test_the_end_is_the_exit_code(
    service: ScriptedService,
    location: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    code: int,
) -> None:
    def ended_at_once(seconds: float) -> None:
        service.moves[-1].ended(reason, {}, Progress(1, 1, 1, 1))

    monkeypatch.setattr("anabranch.cli.asking.time.sleep", ended_at_once)
    assert main(["rescale", location, "3", "--yes", "--wait"]) == code
    assert "asked by command line" in capsys.readouterr().out


def test_too_late_is_taken_back(service: ScriptedService, location: str) -> None:
    words = ["rescale", location, "3", "--yes", "--wait", "--timeout", "100ms"]
    assert main(words) == EXIT_TIMED_OUT
    assert service.asked[-1] == ("cancel", {"number": 1, "cause": "timeout"})


def test_too_late_may_go_on(service: ScriptedService, location: str) -> None:
    words = ["rescale", location, "3", "--yes", "--wait", "--timeout", "100ms"]
    assert main([*words, "--on-timeout", "continue"]) == EXIT_TIMED_OUT
    assert not service.moves[-1].is_done


def test_an_answer_that_is_lost_moves_once(
    service: ScriptedService, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ServiceClient._call
    lost: list[Any] = []

    def lossy(self: ServiceClient, *how: Any) -> Any:
        answer = call(self, *how)
        if not lost:
            lost.append(answer)
            raise NotRunning("The connection was cut.")
        return answer

    monkeypatch.setattr(ServiceClient, "_call", lossy)
    monkeypatch.setattr("anabranch.http.client.AGAIN_SECONDS", 0.01)
    assert main(["rescale", location, "3", "--yes"]) == 0
    assert len(lost) == len(service.moves) == 1


def test_what_would_be_taken_back(
    service: ScriptedService, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescale", location, "3", "--yes"]) == 0
    capsys.readouterr()
    assert main(["cancel", location, "--dry-run"]) == 0
    assert "would take back" in capsys.readouterr().out
    assert main(["cancel", location]) == 2  # nobody says yes
    assert not service.moves[-1].is_done
    assert main(["cancel", location, "1", "--yes", "--wait"]) == 4


def test_a_list_and_the_way_back(
    service: ScriptedService, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cancel", location, "--yes"]) == 2
    assert main(["moves", location]) == 0
    assert "none since" in capsys.readouterr().out
    assert main(["rescale", location, "3", "--yes"]) == 0
    assert main(["cancel", location, "--json", "--yes"]) == 0
    assert service.asked[-1] == ("cancel", {"number": 1, "cause": "command line"})
    capsys.readouterr()
    assert main(["moves", location, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["outcome"] == "It was cancelled."


def test_what_the_service_refuses_is_said(
    service: ScriptedService, location: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rescale", location, "65", "--yes"]) == 2
    assert "room for 64" in capsys.readouterr().err
    assert main(["rescale", location, "3", "--yes", "--if-routing-version", "1"]) == 2
    assert "Look again." in capsys.readouterr().err


@pytest.mark.parametrize("words", [["rescale", "3", "--yes"], ["moves"], ["cancel"], ["rebalance"]])
def test_no_service(location: str, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main([words[0], location, *words[1:]]) == EXIT_NOT_RUNNING
    assert "anabranch status" in capsys.readouterr().err


def test_a_service_that_has_died(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(ScriptedService(), Path(location)):
        told = (Path(location) / "endpoint.json").read_bytes()
        tokens = {
            path: path.read_bytes() for path in Path(os.environ["XDG_RUNTIME_DIR"]).glob("*/*")
        }
    (Path(location) / "endpoint.json").write_bytes(told)
    for path, content in tokens.items():
        path.write_bytes(content)
    assert main(["moves", location]) == EXIT_NOT_RUNNING
    assert "does not answer" in capsys.readouterr().err


def test_no_token(
    service: ScriptedService,
    location: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(other))
    assert main(["moves", location]) == 2
    assert "ANABRANCH_TOKEN" in capsys.readouterr().err
