"""`anabranch report` of a location, whether a service runs or not."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from anabranch.cli.main import main
from anabranch.coordinator.journal import Journal
from anabranch.durability.store import StateStore
from anabranch.model.journal_entry import EntryKind


@pytest.fixture
def story(location: str) -> str:
    """A service that lived and died."""
    with StateStore(location) as store:
        journal = Journal(store.blobs, store.owner.to_json())
        journal.note(EntryKind.SERVICE_STARTED, text="2 workers")
        for epoch in range(5):
            journal.note(EntryKind.BATCH, operator="totals", epoch=epoch, seconds=0.2, rows=10)
        journal.note(EntryKind.WORKER_ENDED, worker="w2", text="killed by signal 9")
        journal.stop()
    return location


def test_a_page_of_the_last_hour(
    story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "incident.html"
    assert main(["report", story, "-o", str(target)]) == 0
    assert "5 batches, 0 moves, 2 events" in capsys.readouterr().out
    text = target.read_text()
    assert "killed by signal 9" in text
    assert "died at" in text
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".incident*"))


def test_its_numbers(story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "x.html")
    assert main(["report", story, "-o", target, "--since", "1m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == "50"
    words = ["report", story, "-o", target, "--json", "--until", "2020-01-01T00:00"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["batches"] == "0"


def test_what_is_refused(story: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "x.html")
    words = ["report", story, "-o", target, "--since", "1m", "--until", "2m"]
    assert main(words) == 2
    assert "earlier --since" in capsys.readouterr().err
    assert main(["report", story, "-o", str(tmp_path / "no" / "x.html")]) == 2
    assert "Create it first" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "-o", target]) == 2
