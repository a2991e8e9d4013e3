"""What Spark's Python worker reports of our errors: the message, no frames of this package."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anabranch.errors import AnabranchError, InvalidArgument
from anabranch.spark.plain_errors import HIDE_TRACEBACK, plain_errors

WORKER = """
import io, runpy, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name="pyspark.daemon")
from pyspark.util import handle_worker_exception
from anabranch.errors import InvalidArgument
from anabranch.spark.plain_errors import plain_errors

def deep(error):
    with plain_errors():
        try:
            raise KeyError("inner")
        except KeyError:
            raise error

for error in (InvalidArgument("Bad wish. Wish again."), ZeroDivisionError("a bug")):
    if isinstance(error, ZeroDivisionError):
        import os
        assert os.environ.pop("SPARK_HIDE_TRACEBACK") == "1"
    try:
        deep(error)
    except Exception as raised:
        told = io.BytesIO()
        handle_worker_exception(raised, told)
        sys.stdout.write(told.getvalue()[8:].decode() + "=====")
"""


def test_what_spark_reports() -> None:
    command = [sys.executable, "-c", WORKER]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert not done.stderr
    ours, bug, _ = done.stdout.split("=====")
    condition = InvalidArgument.condition
    assert ours.strip() == f"anabranch.errors.InvalidArgument: [{condition}] Bad wish. Wish again."
    assert "in deep" in bug
    assert "ZeroDivisionError: a bug" in bug


def test_elsewhere_nothing_is_hidden() -> None:
    told: list[AnabranchError] = []
    with pytest.raises(InvalidArgument, match="Wish again") as caught, plain_errors(told.append):
        raise InvalidArgument("Bad wish. Wish again.") from KeyError("inner")
    assert told == [caught.value]
    assert HIDE_TRACEBACK not in os.environ
    assert caught.value.__cause__ is None
