"""Waiting for a query to catch up: how many rows are left, what comes of the wait."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from anabranch.loadtest.loaded_query import WaitingThread, delivered_rows


def test_the_call_ends_or_fails() -> None:
    go = threading.Event()
    waiting = WaitingThread(go.wait)
    assert not waiting.ended(0.01)
    go.set()
    assert waiting.ended(30)

    def fails() -> None:
        raise ValueError("no")

    failing = WaitingThread(fails)
    with pytest.raises(ValueError, match="no"):
        failing.ended(30)


def test_rows_that_were_delivered(tmp_path: Path) -> None:
    assert delivered_rows(tmp_path) == 0
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "9").write_text('v1\n{"batchWatermarkMs":0}\n{"row": 500}')
    (offsets / "10").write_text('v1\n{"batchWatermarkMs":0}\n{"row": 700}')
    (offsets / ".11.crc").write_text("checksum")
    assert delivered_rows(tmp_path) == 700
    (offsets / "11").write_text("v1")
    assert delivered_rows(tmp_path) == 0
