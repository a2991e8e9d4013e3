"""Runs the command and presses Ctrl-C, as a terminal does, or sends SIGTERM, as others do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

WAIT_SECONDS = 240


def interrupt(
    words: Sequence[str],
    is_time: Callable[[str], bool],
    *,
    folder: Path | None = None,
    seconds_later: float = 0.0,
    by: signal.Signals = signal.SIGINT,
) -> str:
    """What `anabranch WORDS` says after Ctrl-C, at a line of its output; it must end with 130.

    With SIGTERM, 143.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "anabranch.cli.main", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said = []
    try:
        assert process.stdout is not None
        limit = time.monotonic() + WAIT_SECONDS
        for line in process.stdout:
            said.append(line)
            assert time.monotonic() < limit, "".join(said)
            if is_time(line):
                time.sleep(seconds_later)
                if by == signal.SIGINT:
                    os.killpg(process.pid, by)  # to the whole group
                else:
                    process.send_signal(by)
                break
        rest, _ = process.communicate(timeout=WAIT_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 128 + by, "".join(said) + rest
    return rest
