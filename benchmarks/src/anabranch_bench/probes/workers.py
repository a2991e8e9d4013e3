"""What the workers of a service are seen to do; where there is no service, nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from anabranch.errors import AnabranchError
from anabranch.loadtest.loaded_query import Say
from anabranch.service import StateService

START_SECONDS_MAX = 60.0
LOAD_SECONDS_MAX = 1800.0


def pids(service: StateService | None) -> list[int]:
    """The worker processes of now."""
    workers = service.status()["workers"].values() if service else ()
    return [worker["pid"] for worker in workers if worker["pid"]]


def key_groups(service: StateService | None) -> Mapping[str, int]:
    """Key groups of each worker."""
    workers = service.status()["workers"] if service else {}
    return {name: worker["key_groups"] for name, worker in workers.items()}


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


def written_bytes(service: StateService | None) -> int:
    """What the workers have written so far; 0 where the system does not tell."""
    total = 0
    for pid in pids(service):
        with suppress(OSError, ValueError):
            lines = Path(f"/proc/{pid}/io").read_text().splitlines()
            total += int(dict(line.split(": ") for line in lines)["wchar"])
    return total


def wait_until_in_memory(service: StateService | None, say: Say) -> None:
    """After a restart the state comes in the background; mostly that is not what is measured."""
    limit = time.time() + LOAD_SECONDS_MAX
    while service is not None:
        operators = service.status()["operators"].values()
        share = min((operator["in_memory"] for operator in operators), default=1.0)
        if share >= 1:
            return
        say(f"the state is coming into memory, {share:.0%}")
        time.sleep(0.1)
        if time.time() > limit:
            raise AnabranchError("The state was not in memory after half an hour.")
