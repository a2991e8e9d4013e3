"""Limits of memory: read from control groups and the process, refused with a sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.model.host import HostFacts
from anabranch.model.ids import HostId
from anabranch.processes import host_limits
from anabranch.processes.host_limits import (
    ADDRESS_SPACE_BYTES_MIN,
    MIB,
    WORKER_BYTES_MIN,
    HostLimits,
    flaw_of,
    within,
)

GIB = 1 << 30


def group_limits(groups: str, files: dict[str, str]) -> list[int]:
    def read(path: Path) -> str | None:
        return files.get(str(path))

    return [n for n in host_limits._group_limits(groups, read) if n is not None]


def test_version_2_of_control_groups() -> None:
    files = {
        "/sys/fs/cgroup/a/b/memory.max": "max\n",
        "/sys/fs/cgroup/a/memory.max": f"{GIB}\n",
        "/sys/fs/cgroup/memory.max": f"{2 * GIB}\n",
    }
    assert group_limits("0::/a/b\n", files) == [GIB, 2 * GIB]


def test_version_1_of_control_groups() -> None:
    files = {
        "/sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{GIB}",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }
    groups = "5:cpu,cpuacct:/job\n4:memory:/job\n1:name=systemd:/job\n0::/system.slice\n"
    assert group_limits(groups, files) == [GIB]


def test_in_a_container_the_path_of_the_group_may_be_that_outside() -> None:
    files = {"/sys/fs/cgroup/memory.max": f"{GIB}"}
    assert group_limits("0::/kubepods/pod1/c\n", files) == [GIB]
    assert group_limits("\nnonsense\n", files) == []


def test_too_little_is_refused_with_the_setting() -> None:
    assert flaw_of(HostLimits()) is None
    assert flaw_of(HostLimits(WORKER_BYTES_MIN, ADDRESS_SPACE_BYTES_MIN)) is None
    small = flaw_of(HostLimits(8 * GIB, 6 * MIB))
    assert small is not None
    assert "6 MiB" in small
    assert "spark.executor.pyspark.memory" in small
    little = flaw_of(HostLimits(100 * MIB))
    assert little is not None
    assert "100 MiB" in little
    assert "spark.executor.memoryOverhead" in little


@pytest.mark.parametrize(
    ("given", "limit", "expected"),
    [
        (None, None, None),
        (None, 8 * GIB, 8 * GIB),
        (4 * GIB, None, 4 * GIB),
        (4 * GIB, 8 * GIB, 4 * GIB),
        (16 * GIB, GIB, GIB),
    ],
)
def test_nobody_has_more_than_the_limit(
    given: int | None, limit: int | None, expected: int | None
) -> None:
    facts = within(HostFacts(HostId("h"), 2, {}, given), HostLimits(limit))
    assert facts == HostFacts(HostId("h"), 2, {}, expected)


def test_limits_of_a_real_process() -> None:
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))\n"
        "from anabranch.processes.host_limits import host_limits, flaw_of\n"
        "print(host_limits().address_space_bytes); print(flaw_of(host_limits()))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert said.startswith(f"{1 << 29}\nA process may have an address space of 512 MiB here")
    memory = host_limits.host_limits().memory_bytes
    assert memory is None or memory > 100 * MIB
