"""How much memory the processes of this host may use: limits of control groups and of the process.

An agent reads them when it joins. Too little is refused there: workers would fail later, one after
the other, with errors that name no setting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from anabranch.model.host import HostFacts

MIB = 1 << 20

ADDRESS_SPACE_BYTES_MIN = 2048 * MIB
"""For one process: a worker without state has mapped 1.5 GB, mostly libraries and stacks."""

WORKER_BYTES_MIN = 256 * MIB
"""As in `coordinator/join_check.py`, which counts how many workers a host has memory for."""

UNLIMITED_BYTES = 1 << 60
"""Version 1 of control groups says "no limit" with a number above this."""

CGROUPS = Path("/sys/fs/cgroup")

Read = Callable[[Path], str | None]


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What this process and its children may use; None: as much as there is."""

    memory_bytes: int | None = None
    """Of the control group (container), or else of the machine."""
    address_space_bytes: int | None = None
    """RLIMIT_AS, which children inherit."""


def host_limits() -> HostLimits:
    """Those of this process."""
    found = [*_group_limits(_read(Path("/proc/self/cgroup")) or "", _read), _machine_bytes()]
    return HostLimits(min((n for n in found if n is not None), default=None), _address_space())


def flaw_of(limits: HostLimits) -> str | None:
    """Why workers cannot run here, and which setting to change; None: they can."""
    space, memory = limits.address_space_bytes, limits.memory_bytes
    if space is not None and space < ADDRESS_SPACE_BYTES_MIN:
        return (
            f"A process may have an address space of {space // MIB} MiB here, and a worker needs "
            f"{ADDRESS_SPACE_BYTES_MIN // MIB}. In a Spark task that limit is "
            "spark.executor.pyspark.memory times the task's share of a core: leave it unset, and "
            "give spark.executor.memoryOverhead instead. Elsewhere: ulimit -v unlimited."
        )
    if memory is not None and memory < WORKER_BYTES_MIN:
        return (
            f"All processes together may have {memory // MIB} MiB of memory here, and a worker "
            f"needs {WORKER_BYTES_MIN // MIB}. Give the container more memory: on YARN and "
            "Kubernetes spark.executor.memoryOverhead, elsewhere its own limit."
        )
    return None


def within(facts: HostFacts, limits: HostLimits) -> HostFacts:
    """What a host can do: no more memory than there is.

    The coordinator counts how many workers that suffices for.
    """
    known = [n for n in (facts.memory_bytes, limits.memory_bytes) if n is not None]
    return replace(facts, memory_bytes=min(known, default=None))


def _group_limits(groups: str, read: Read) -> Iterator[int | None]:
    """Limits of the groups that this process is in, and of those around them.

    In a container, the path of a group may be that of the machine outside; then the limit is at the
    root.
    """
    for line in groups.splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number == "0" and not controllers:
            root, file = CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            root, file = CGROUPS / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            yield _amount(read(root / folder / file))


def _amount(text: str | None) -> int | None:
    """Bytes in a file of a control group."""
    if text is None or not text.strip().isdecimal():  # "max"
        return None
    amount = int(text)
    return None if amount >= UNLIMITED_BYTES else amount


def _machine_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not told by this system
        return None


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
