"""The processes that tests have started and that are still alive."""

from __future__ import annotations

import os
from pathlib import Path

SESSION_MARK = "ANABRANCH_TEST_SESSION"
"""Environment variable that every process of a test session inherits."""


def workers_alive() -> dict[int, str]:
    """Command lines, by process id, of this session's workers; none where there is no /proc."""
    found = {}
    mark = f"{SESSION_MARK}={os.environ[SESSION_MARK]}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        words = _read(process / "cmdline").decode(errors="replace").split("\0")
        # Forked by the zygote, or started by itself.
        is_worker = words[:2] == ["anabranch", "worker"] or (
            Path(words[0]).name.startswith("python") and "anabranch.worker.main" in words
        )
        if is_worker and mark in _read(process / "environ").split(b"\0"):
            found[int(process.name)] = " ".join(filter(None, words))
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        # The process has ended, or belongs to someone else.
        return b""
