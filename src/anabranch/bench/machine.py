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

    def __init__(self, file: Path = Path("/proc/stat")) -> None:
        self._file = file
        self._before = _ticks(file)

    def since(self) -> float:
        """Share since this object was made; NaN where the system does not tell."""
        now = _ticks(self._file)
        if now is None or self._before is None or now[1] <= self._before[1]:
            return math.nan
        return (now[0] - self._before[0]) / (now[1] - self._before[1])


def _ticks(file: Path) -> tuple[int, int] | None:
    """Stolen, and all."""
    try:
        first = file.read_text(encoding="ascii").split("\n", 1)[0]
        ticks = [int(field) for field in first.split()[1:9]]
        return ticks[7], sum(ticks)
    except (OSError, ValueError, IndexError):
        return None
