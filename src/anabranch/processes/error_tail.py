"""What a process writes to standard error, passed on as it comes; its last lines are kept."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import deque

LINES_KEPT = 20
CHARACTERS_MAX = 4000
DRAIN_SECONDS_MAX = 1.0
"""For what a process that has ended wrote last; a child of its own may keep the pipe open."""


class ErrorTail:
    """Reads one end of a pipe until nobody has the other end any more."""

    def __init__(self, read_fd: int, name: str) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._reader = threading.Thread(
            target=self._read, args=(read_fd,), name=f"anabranch-errors-{name}", daemon=True
        )
        self._reader.start()

    def _read(self, read_fd: int) -> None:
        with os.fdopen(read_fd, errors="replace") as lines:
            for line in lines:
                self._lines.append(line)
                with contextlib.suppress(OSError, ValueError):  # it may be closed
                    sys.stderr.write(line)

    def last(self) -> str:
        """The last lines, of a process that has ended."""
        self._reader.join(DRAIN_SECONDS_MAX)
        return "".join(list(self._lines))[-CHARACTERS_MAX:].strip()
