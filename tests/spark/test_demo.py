"""The demonstration runs, proves its result and leaves a picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
def test_the_demo_proves_that_nothing_was_lost(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"
    words = ["demo", "--seconds", "2", "--rate", "2000", "--plot", str(picture)]
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost or doubled" in done.stdout
    assert "2 -> 3 workers, done" in done.stdout
    assert "3 -> 2 workers, done" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
