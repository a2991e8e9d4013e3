"""A process with all that it has started: to be frozen, let go, or killed at one moment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from anabranch.errors import AnabranchError

PROC = Path("/proc")
END_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02

Process = tuple[int, int]
"""Its id, and when it started: ids are used again."""


def check_family() -> None:
    """Refuse systems where nobody tells who has started whom."""
    if not (PROC / "self" / "stat").exists():
        raise AnabranchError("Processes are looked for in /proc, which only Linux has.")


def family(root: int) -> set[Process]:
    """A process and its descendants, as far as they live."""
    children: dict[int, list[Process]] = {}
    found: set[Process] = set()
    for entry in _alive():
        children.setdefault(entry.parent, []).append(entry.process)
        if entry.pid == root:
            found.add(entry.process)
    todo = [root] if found else []
    while todo:
        new = set(children.get(todo.pop(), ())) - found
        found |= new
        todo += [pid for pid, _ in new]
    return found


def freeze(root: int) -> set[Process]:
    """Stop all of them in their tracks; who was stopped, when they have."""
    frozen: set[Process] = set()
    while new := family(root) - frozen:  # some may have been started meanwhile
        send(new, signal.SIGSTOP)
        frozen |= new
        _until(frozen, lambda left: all(e.is_stopped for e in left), "stop after SIGSTOP")
    return frozen


def send(processes: set[Process], number: int) -> None:
    """A signal to those that still live."""
    for entry in _entries(processes):
        with suppress(ProcessLookupError):
            os.kill(entry.pid, number)


def kill(root: int) -> None:
    """End all of them at once with SIGKILL; returns when they are gone."""
    processes = freeze(root)
    send(processes, signal.SIGKILL)
    _until(processes, lambda left: not left, "end after SIGKILL")


def _until(processes: set[Process], condition: Callable[[list[_Entry]], bool], what: str) -> None:
    """Wait for what is to be true of those that still live."""
    limit = time.monotonic() + END_SECONDS_MAX
    while not condition(_entries(processes)):
        if time.monotonic() > limit:
            raise AnabranchError(f"Processes do not {what}.")
        time.sleep(POLL_SECONDS)


class _Entry(NamedTuple):
    pid: int
    parent: int
    started: int
    is_stopped: bool

    @property
    def process(self) -> Process:
        return self.pid, self.started


def _entries(processes: set[Process]) -> list[_Entry]:
    """Those that still live."""
    return [entry for entry in _alive() if entry.process in processes]


def _alive() -> list[_Entry]:
    """Every process that is more than an entry for its parent."""
    found = []
    for path in PROC.glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may have anything in it.
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        pid, state = int(path.parent.name), fields[0]
        if state not in ("Z", "X"):
            found.append(_Entry(pid, int(fields[1]), int(fields[19]), state in ("T", "t")))
    return found
