"""The processes that tests have started and that are still alive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

SESSION_MARK = "ANABRANCH_TEST_SESSION"
"""Environment variable that every process of a test session inherits."""


def workers_alive() -> dict[int, str]:
    """Command lines, by process id, of this session's workers; none where there is no /proc."""
    return {pid: " ".join(words) for pid, words in _alive() if _is_worker(words)}


def command_lines() -> list[str]:
    """Command lines of all processes of this session; none where there is no /proc."""
    return [" ".join(words) for _, words in _alive()]


def _alive() -> Iterator[tuple[int, list[str]]]:
    mark = f"{SESSION_MARK}={os.environ[SESSION_MARK]}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        words = _read(process / "cmdline").decode(errors="replace").split("\0")
        if mark in _read(process / "environ").split(b"\0"):
            yield int(process.name), [word for word in words if word]


def _is_worker(words: list[str]) -> bool:
    """Forked by the zygote, or started by itself."""
    if words[:2] == ["anabranch", "worker"]:
        return True
    is_python = bool(words) and Path(words[0]).name.startswith("python")
    return is_python and "anabranch.worker.main" in words


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        # The process has ended, or belongs to someone else.
        return b""
