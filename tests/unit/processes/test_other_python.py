"""Interpreters that Spark's tasks may run: a real virtual environment without anything in it."""

from __future__ import annotations

import sys
import venv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.errors import InvalidArgument
from anabranch.processes.other_python import ask, flaw_of, is_this, this_python
from anabranch.spark.python_check import PythonCheck


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same Python, but none of the packages."""
    monkeypatch.delenv("PYTHONPATH")
    venv.create(tmp_path / "empty", symlinks=True)
    return str(tmp_path / "empty" / "bin" / "python")


def test_this_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_this(sys.executable)
    assert flaw_of(sys.executable) is None
    mine = this_python()
    assert not mine.flaws(mine)
    assert set(mine.packages) == {"pyspark", "pyarrow", "anabranch"}
    told = ask(sys.executable)
    assert told == mine
    assert not is_this("/nowhere/python")
    assert flaw_of("/nowhere/python") == "cannot be run"
    assert flaw_of("true") == "cannot be run"


def test_what_is_wrong_with_another() -> None:
    mine = replace(this_python(), version="3.11.4")
    assert replace(mine, version="3.12.1").flaws(mine) == ["is Python 3.12, not 3.11"]
    assert not replace(mine, version="3.11.9").flaws(mine)
    packages = {**mine.packages, "anabranch": "0.0.1"}
    ours = replace(mine, packages={**mine.packages, "anabranch": "0.1.0"})
    assert replace(mine, packages=packages).flaws(ours) == ["has anabranch 0.0.1, not 0.1.0"]
    packages["anabranch"] = ""  # a source folder
    assert not replace(mine, packages=packages).flaws(ours)


def test_a_session_whose_tasks_run_another(empty: str, caplog: pytest.LogCaptureFixture) -> None:
    assert flaw_of(empty) == "has no pyspark, has no pyarrow, has no anabranch"
    context: Any = SimpleNamespace(master="local[2]", pythonExec=empty)
    check = PythonCheck(context)
    with pytest.raises(InvalidArgument) as caught:
        check.require()
    said = str(caught.value)
    assert f"Spark's tasks run {empty}, which has no pyspark" in said
    assert f"Set PYSPARK_PYTHON={sys.executable} in the environment" in said
    assert caplog.messages == [check.problem]
