"""CPU seconds of processes, as Linux counts them: what a busy machine does not change much."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
USER, SYSTEM = 11, 12
"""Fields of /proc/PID/stat after the process's name."""


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of all threads of some processes since they started, their children apart."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        ticks += int(fields[USER]) + int(fields[SYSTEM])
    return ticks / TICKS_A_SECOND
