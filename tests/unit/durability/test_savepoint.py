"""Which checkpoint of a savepoint is meant: the error names the option and the choices."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli.main import main
from anabranch.durability import names
from anabranch.durability.blobs import BlobStore
from anabranch.durability.documents import seal


def savepoint(folder: Path, *checkpoints: str) -> str:
    queries = {
        query: {"operators": [f"op-{query}"], "epoch": 3, "offsets": None, "has_checkpoint": True}
        for query in checkpoints
    }
    body = {
        **{"format": 1, "name": "one", "id": "x", "created_at": 0, "bytes": 0},
        **{"key_groups": 8, "bins": 4, "epochs": {}, "queries": queries},
    }
    blobs = BlobStore(str(folder))
    blobs.write(names.SAVEPOINT_FILE, seal(body))
    for query in checkpoints:
        blobs.write(f"{names.saved_checkpoint_folder(query)}/metadata", query.encode())
    return str(folder)


def test_several_checkpoints_ask_for_the_query(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["savepoint", "checkpoint", savepoint(tmp_path / "saved", "q1", "q2")]
    assert main([*words, str(tmp_path / "made")]) == 2
    said = capsys.readouterr().err
    assert "one for each of several queries. Choose one with --query ID" in said
    assert "Queries with their operators: q1 (op-q1); q2 (op-q2)." in said
    assert main([*words, str(tmp_path / "made"), "--query", "q9"]) == 2
    assert "none of query q9. Choose one with --query ID" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()
    assert main([*words, str(tmp_path / "made"), "--query", "q2"]) == 0
    assert (tmp_path / "made" / "metadata").read_text() == "q2"


def test_without_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["savepoint", "checkpoint", savepoint(tmp_path / "saved"), str(tmp_path / "made")]
    assert main(words) == 2
    assert "has no checkpoint" in capsys.readouterr().err
