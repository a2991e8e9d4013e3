"""Which workers talk to each other: open TCP connections between processes (Linux)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ESTABLISHED = "01"
SAMPLE_SECONDS = 0.5


class PeerSamples:
    """Looks every half second while a run lasts: one look would miss what comes and goes."""

    def __init__(self, pids: Iterable[int]) -> None:
        self.most: int | None = None
        """Connections at the worst moment; None where the system does not tell."""
        self.count = 0
        self._pids = tuple(pids)
        self._next = 0.0

    def look(self) -> None:
        """Call it often."""
        if time.monotonic() < self._next:
            return
        found = peer_connections(self._pids)
        if found is not None and all(Path(f"/proc/{pid}").exists() for pid in self._pids):
            self.most = max(found, self.most or 0)
            self.count += 1
        self._next = time.monotonic() + SAMPLE_SECONDS


def connections(table: Iterable[str]) -> list[tuple[str, str, str]]:
    """Local and remote address and inode of each established connection in /proc/net/tcp."""
    found = []
    for line in table:
        fields = line.split()
        if len(fields) > 9 and fields[3] == ESTABLISHED:
            found.append((fields[1], fields[2], fields[9]))
    return found


def between(table: Iterable[str], owners: dict[str, int]) -> int:
    """Connections whose two ends belong to different processes of those that own these inodes."""
    ends: dict[tuple[str, str], int] = {
        (local, remote): owners[inode]
        for local, remote, inode in connections(table)
        if inode in owners
    }
    both = sum(
        1
        for (local, remote), pid in ends.items()
        if (remote, local) in ends and ends[remote, local] != pid
    )
    return both // 2


def peer_connections(pids: Iterable[int]) -> int | None:
    """Connections among these processes; None where the system does not tell."""
    if not Path("/proc/net/tcp").exists():
        return None
    owners: dict[str, int] = {}
    for pid in pids:
        owners.update(dict.fromkeys(_socket_inodes(pid), pid))
    return sum(between(_lines(name), owners) for name in ("tcp", "tcp6"))


def _lines(name: str) -> list[str]:
    path = Path("/proc/net") / name
    return path.read_text().splitlines() if path.exists() else []


def _socket_inodes(pid: int) -> list[str]:
    found = []
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:  # the process may be gone
        for file in files:
            match = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(file.path))
            if match:
                found.append(match[1])
    return found
