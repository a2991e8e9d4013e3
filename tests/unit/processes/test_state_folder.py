"""Which folder of a host workers keep state in."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from anabranch.processes.state_folder import folder_flaw, folder_here
from anabranch.transport.messages.hosts import StateFolder

SPARK = {"SPARK_LOCAL_DIRS": "/spark/1,/spark/2", "LOCAL_DIRS": "/yarn/1,/yarn/2"}


@pytest.mark.parametrize(
    ("own", "wanted", "environment", "expected"),
    [
        ("/own", "/wanted", SPARK, "/own"),
        (None, "/wanted", SPARK, "/wanted"),
        (None, None, SPARK, "/spark/1"),
        (None, None, {"LOCAL_DIRS": "/yarn/1,/yarn/2"}, "/yarn/1"),
        (None, None, {"SPARK_LOCAL_DIRS": ""}, tempfile.gettempdir()),
    ],
)
def test_who_decides(
    own: str | None, wanted: str | None, environment: dict[str, str], expected: str
) -> None:
    assert folder_here(own, wanted, environment) == expected


def test_a_folder_is_made_only_where_it_is_needed(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "state"
    assert folder_flaw(str(folder), StateFolder()) is None
    assert not folder.exists()
    assert folder_flaw(str(folder), StateFolder(True)) is None
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    flaw = folder_flaw(str(tmp_path / "file" / "state"), StateFolder(True))
    assert flaw is not None
    assert "Files cannot be kept in" in flaw
    assert "local_dir=" in flaw
