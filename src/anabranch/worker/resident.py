"""What the system says of this process's memory (Linux), beside what state is counted to hold."""

from __future__ import annotations

from pathlib import Path

_FIELDS = ("VmRSS", "VmHWM")


def resident_bytes(file: Path = Path("/proc/self/status")) -> tuple[int | None, int | None]:
    """Resident now, and the most since the process started; None where nobody tells."""
    try:
        lines = dict(line.split(":", 1) for line in file.read_text().splitlines() if ":" in line)
        now, most = (int(lines[name].split()[0]) << 10 for name in _FIELDS)
    except (OSError, KeyError, ValueError, IndexError):
        return None, None
    return now, most
