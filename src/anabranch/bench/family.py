"""A process with all that it has started: to be frozen, let go, or killed at one moment."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

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
    for pid, (parent, started) in _alive().items():
        children.setdefault(parent, []).append((pid, started))
        if pid == root:
            found.add((pid, started))
    todo = [root] if found else []
    while todo:
        new = set(children.get(todo.pop(), ())) - found
        found |= new
        todo += [pid for pid, _ in new]
    return found


def freeze(root: int) -> set[Process]:
    """Stop all of them in their tracks; who was stopped."""
    frozen: set[Process] = set()
    while new := family(root) - frozen:  # some may have been started meanwhile
        send(new, signal.SIGSTOP)
        frozen |= new
    return frozen


def send(processes: set[Process], number: int) -> None:
    """A signal to those that still live."""
    alive = _alive()
    for pid, started in processes:
        if alive.get(pid, (0, -1))[1] == started:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def kill(root: int) -> None:
    """End all of them at once with SIGKILL; returns when they are gone."""
    processes = freeze(root)
    send(processes, signal.SIGKILL)
    limit = time.monotonic() + END_SECONDS_MAX
    while any(_alive().get(pid, (0, -1))[1] == started for pid, started in processes):
        if time.monotonic() > limit:
            raise AnabranchError("Processes do not end after SIGKILL.")
        time.sleep(POLL_SECONDS)


def _alive() -> dict[int, tuple[int, int]]:
    """Parent and start time of each process that is more than an entry for its parent."""
    found = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            # The name, in parentheses, may have anything in it.
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        state, parent, started = fields[0], int(fields[1]), int(fields[19])
        if state not in ("Z", "X"):
            found[int(path.parent.name)] = parent, started
    return found
