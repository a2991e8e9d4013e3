"""What the system says of a worker's memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from anabranch.worker.resident import resident_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_large_value_is_resident() -> None:
    before, _ = resident_bytes()
    value = bytes([1]) * (200 << 20)
    now, most = resident_bytes()
    assert before is not None
    assert now is not None
    assert most is not None
    assert now - before > 150 << 20
    assert most >= now - (1 << 20)
    assert value


@pytest.mark.parametrize("content", [None, "", "VmRSS: 5 kB\n", "VmRSS:\nVmHWM:\n", "VmRSS: x kB"])
def test_elsewhere_nobody_tells(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "status"
    if content is not None:
        file.write_text(content)
    assert resident_bytes(file) == (None, None)


def test_it_is_in_bytes(tmp_path: Path) -> None:
    file = tmp_path / "status"
    file.write_text("Name:\tanabranch\nVmHWM:\t     300 kB\nVmRSS:\t     200 kB\n")
    assert resident_bytes(file) == (200 << 10, 300 << 10)
