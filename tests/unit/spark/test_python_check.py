"""When the first operator waits for what is said of Spark's Python, and for how long."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.errors import InvalidArgument
from anabranch.spark import python_check
from anabranch.spark.python_check import PythonCheck


def context(python: str) -> Any:
    """A local Spark whose tasks run this interpreter."""
    return SimpleNamespace(master="local[2]", pythonExec=python)


def test_the_same_interpreter_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_check, "flaw_of", lambda python: pytest.fail("asked"))
    monkeypatch.setattr(python_check, "ANSWER_SECONDS_MAX", 1e6)
    PythonCheck(context(sys.executable)).require()


def test_an_answer_that_takes_a_moment_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answer = threading.Event(), threading.Event()

    def flaw_of(python: str) -> str:
        asked.set()
        assert answer.wait(60)
        return "has no pyspark"

    monkeypatch.setattr(python_check, "flaw_of", flaw_of)
    monkeypatch.setattr(python_check, "ANSWER_SECONDS_MAX", 60.0)
    check = PythonCheck(context("/other/python"))
    assert asked.wait(60)
    threading.Timer(0.2, answer.set).start()
    with pytest.raises(InvalidArgument, match="Spark's tasks run /other/python, which has no pysp"):
        check.require()


def test_one_that_does_not_come_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    monkeypatch.setattr(python_check, "flaw_of", lambda python: answer.wait(60) and None)
    monkeypatch.setattr(python_check, "ANSWER_SECONDS_MAX", 0.3)
    check = PythonCheck(context("/other/python"))
    began = time.monotonic()
    check.require()
    assert time.monotonic() - began >= 0.3
    monkeypatch.setattr(python_check, "ANSWER_SECONDS_MAX", 1e6)
    check.require()
    answer.set()


def test_a_spark_that_ends_meanwhile_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_check, "ANSWER_SECONDS_MAX", 1e6)
    ended: Any = SimpleNamespace(master="spark://somewhere", pythonExec="python3")
    PythonCheck(ended).require()
