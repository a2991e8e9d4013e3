"""What a benchmark ran on, for its report."""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

_IDLE, _WAITING, _STOLEN = 3, 4, 7
"""Columns of /proc/stat."""


def machine() -> dict[str, Any]:
    """What it ran on, when, and how busy it was with other things just before."""
    return {
        "made": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load_average": round(os.getloadavg()[0], 2),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "anabranch": version("anabranch"),
    }


@dataclass(frozen=True, slots=True)
class CoreShares:
    """What became of the cores' time."""

    busy: float = math.nan
    stolen: float = math.nan
    """Given to others by a hypervisor."""

    def __str__(self) -> str:
        if math.isnan(self.busy):
            return ""
        return f"cores {self.busy:.0%} busy, {self.stolen:.1%} stolen"


class CoreTimes:
    """Counts from its making on, as Linux tells it."""

    def __init__(self, file: Path = Path("/proc/stat")) -> None:
        self._file = file
        self._before = _ticks(file)

    def since(self) -> CoreShares:
        """Shares until now; NaN where the system does not tell."""
        now, before = _ticks(self._file), self._before
        spent = [a - b for a, b in zip(now or (), before or (), strict=False)]
        total = sum(spent)
        if not now or not before or total <= 0:
            return CoreShares()
        idle, stolen = spent[_IDLE] + spent[_WAITING], spent[_STOLEN]
        return CoreShares((total - idle - stolen) / total, stolen / total)


def _ticks(file: Path) -> list[int] | None:
    """Of all cores, by what they did."""
    try:
        first = file.read_text(encoding="ascii").split("\n", 1)[0]
        ticks = [int(field) for field in first.split()[1:9]]
    except (OSError, ValueError):
        return None
    return ticks if len(ticks) > _STOLEN else None
