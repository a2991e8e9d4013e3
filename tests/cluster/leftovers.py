"""What a service has left on a host: nothing, once it has ended, in whatever way."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

from anabranch_bench.testbed.hosts import Host

OURS = re.compile(r"anabranch(\.cli\.main agent|\.processes\.| worker|-scratch-)")
"""Of command lines: agents that were started by hand, zygotes, workers, janitors of folders."""
AGENT = "anabranch.cli.main agent"
FOLDERS = "anabranch-*"
JAVA = re.compile(r"^\S*\bjava ")
LISTENS, LOOPBACK = "0A", "0100007F"
"""As /proc/net/tcp writes a state and an address."""


def left_on(host: Host, agents_stay: bool = False) -> list[str]:
    """Processes, ports and folders, in words; agents that look for the next service may stay."""
    lines = {pid: line for pid, line in host.processes().items() if OURS.search(line)}
    found = [
        f"process {pid}: {line}"
        for pid, line in lines.items()
        if not (agents_stay and AGENT in line)
    ]
    found += [f"port {port}" for port in sorted(listening(host))]
    return found + [f"folder {path}" for path in folders(host)]


def wait_for_nothing(hosts: Iterable[Host], seconds: float, agents_stay: bool = False) -> float:
    """Until nothing is left on any of them; how long that took."""
    started = time.monotonic()
    for host in hosts:
        while left := left_on(host, agents_stay):
            taken = time.monotonic() - started
            assert taken < seconds, f"{host.name}, after {taken:.0f} s: " + "; ".join(left)
            time.sleep(0.2)
    return time.monotonic() - started


def folders(host: Host) -> list[Path]:
    """On its own disk, wherever."""
    try:
        return list(host.seen_disk().rglob(FOLDERS))
    except OSError:  # somebody removes them right now
        return [host.seen_disk()]


def listening(host: Host) -> set[int]:
    """Ports on which Python listens for other hosts; Spark's JVMs have ports of their own."""
    found: set[int] = set()
    for pid, line in host.processes().items():
        if not JAVA.search(line):
            found |= _listening(pid)
    return found


def _listening(pid: int) -> set[int]:
    process = Path(f"/proc/{pid}")
    try:
        sockets = {entry.readlink().name for entry in (process / "fd").iterdir()}
        tables = [(process / "net" / name).read_text() for name in ("tcp", "tcp6")]
    except OSError:  # it has ended
        return set()
    found = set()
    for line in "\n".join(tables).splitlines():
        words = line.split()
        address, _, port = words[1].partition(":") if len(words) > 9 else ("", "", "")
        is_own = port and f"socket:[{words[9]}]" in sockets
        if is_own and words[3] == LISTENS and not address.endswith(LOOPBACK):
            found.add(int(port, 16))
    return found
