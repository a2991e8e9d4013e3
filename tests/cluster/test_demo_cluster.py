"""`anabranch demo-cluster` proves its result, and leaves nothing behind."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.cluster.namespaces import need_namespaces
from tests.interrupted import interrupt

from anabranch.cli.main import added_commands

pytestmark = [pytest.mark.netns, pytest.mark.soak, pytest.mark.timeout(900)]

SECONDS = 600
OURS = ("anabranch", "org.apache.spark.deploy")
"""Parts of the command lines of all that the demo starts."""


@pytest.fixture(autouse=True)
def _can_run() -> None:
    need_namespaces()
    assert "demo-cluster" in added_commands(), "Run `pip install -e ./benchmarks` again."


def inside(folder: Path) -> list[str]:
    """Command lines of processes that have to do with a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"TMPDIR={folder}".encode() in environment and any(part in line for part in OURS):
            found.append(line)
    return found


def test_the_demo_proves_that_nothing_was_lost(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"
    words = ["demo-cluster", "--seconds", "3", "--rate", "2000", "--plot", str(picture)]
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.cli.main", *words],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing lost or doubled" in done.stdout
    for change in ("2 -> 4 workers", "h1 drained", "h3 cut off"):
        assert change in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_ctrl_c_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line; no process, no folder."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    under_load = re.compile(r" +\d+\.\d s +[\d,]+ ")
    words = ["demo-cluster", "--rate", "2000", "--plot", str(tmp_path / "demo.png")]
    rest = interrupt(words, lambda line: under_load.match(line) is not None)
    said = [line for line in rest.splitlines() if not under_load.match(line)]
    assert said == ["anabranch: ended by Ctrl-C."]
    limit = time.monotonic() + 30
    while left := [*inside(scratch), *map(str, scratch.glob("anabranch-*"))]:
        assert time.monotonic() < limit, left
        time.sleep(0.1)
