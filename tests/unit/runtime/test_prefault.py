"""Memory that is made ready ahead."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from anabranch.runtime.environment import worker_environment

SCRIPT = """
import ctypes, resource
import pyarrow as pa
from anabranch.runtime import prefault

def faults(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [pa.allocate_buffer(2 << 20) for _ in range(size >> 21)]
    for buffer in buffers:
        ctypes.memset(buffer.address, 1, buffer.size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

prefault.SECONDS_MAX = 120  # a busy machine may have no idle moment for long
prefault.prefault(0)
prefault.prefault(64 << 20)
print(faults(48 << 20), faults(200 << 20))
"""


@pytest.mark.skipif(not os.path.exists("/proc/meminfo"), reason="needs Linux")
def test_what_was_made_ready_does_not_fault_again() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=worker_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    ready, fresh = map(int, result.stdout.split())
    assert ready * 4 < fresh
