"""Memory and writes of worker processes, as Linux tells them."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from anabranch.errors import AnabranchError
from anabranch.service import StateService

START_SECONDS_MAX = 60.0


def pids(service: StateService) -> list[int]:
    """The worker processes of now."""
    return [w["pid"] for w in service.status()["workers"].values() if w["pid"]]


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    kilobytes = next(line for line in fields if line.startswith("VmRSS:")).split()[1]
    return int(kilobytes) * 1024


def workers_bytes(service: StateService) -> int:
    """Memory of all workers of a service; of one that has just begun, when they have started."""
    limit = time.monotonic() + START_SECONDS_MAX
    while len(found := pids(service)) < len(service.status()["workers"]):
        if time.monotonic() > limit:
            raise AnabranchError(f"Workers have not started after {START_SECONDS_MAX:.0f} s.")
        time.sleep(0.05)
    return sum(map(resident_bytes, found))


def written_bytes(service: StateService) -> int:
    """What the workers have written so far; 0 where the system does not tell."""
    total = 0
    for pid in pids(service):
        with suppress(OSError, ValueError):
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            total += int(dict(line.split(": ") for line in lines)["wchar"])
    return total
