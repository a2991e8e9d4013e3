"""Folders that are gone when their process is."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

OWNER = """
import subprocess, sys, time
from anabranch.state.scratch import Scratch
scratch = Scratch(sys.argv[1])
print(scratch.path, flush=True)
late = 'sleep 1; mkdir -p "$0/late" && touch "$0/late/file"'
subprocess.Popen(["sh", "-c", late, str(scratch.path)])
time.sleep(60)
"""


def test_a_killed_process_leaves_nothing(tmp_path: Path) -> None:
    """Not even what a process that it had started writes after its end, as Spark does."""
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert folder.is_dir()
        owner.kill()
    time.sleep(1.5)  # the late file is there by now
    limit = time.monotonic() + 20
    while folder.exists() and time.monotonic() < limit:
        time.sleep(0.1)
    assert not list(tmp_path.iterdir())
