"""The demonstration runs, proves its result and leaves a picture."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.interrupted import interrupt
from tests.processes import workers_alive


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)]
)
def test_an_end_in_the_middle_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: signal.Signals
) -> None:
    """No pages of Py4J, no process, no folder: also in the middle of a call to the JVM."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    before = set(workers_alive())
    words = ["demo", "--rate", "2000", "--plot", str(tmp_path / "demo.png")]
    under_load = re.compile(r" +\d+\.\d s +[\d,]+ ")
    rest = interrupt(words, lambda line: under_load.match(line) is not None, by=by)
    said = [line for line in rest.splitlines() if not under_load.match(line)]
    assert said == [f"anabranch: ended by {'SIGTERM' if by == signal.SIGTERM else 'Ctrl-C'}."]
    limit = time.monotonic() + 30
    while set(workers_alive()) - before or list((tmp_path / "tmp").glob("anabranch-*")):
        assert time.monotonic() < limit, "something is left"
        time.sleep(0.1)
