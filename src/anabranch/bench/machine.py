"""What a benchmark ran on, for its report."""

from __future__ import annotations

import math
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """What it ran on."""
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "anabranch": version("anabranch"),
    }


class StolenShare:
    """How much of the cores' time a hypervisor has given to others, as Linux tells it."""

    def __init__(self) -> None:
        self._before = _ticks()

    def since(self) -> float:
        """Share since this object was made; NaN where the system does not tell."""
        now = _ticks()
        if now is None or self._before is None or now[1] <= self._before[1]:
            return math.nan
        return (now[0] - self._before[0]) / (now[1] - self._before[1])


def _ticks() -> tuple[int, int] | None:
    """Stolen, and all."""
    try:
        with Path("/proc/stat").open(encoding="ascii") as file:
            ticks = [int(field) for field in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    return ticks[7], sum(ticks)
