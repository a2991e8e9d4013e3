"""Seconds since 1970 that never jump: durations and orders survive a clock that is set."""

from __future__ import annotations

import time

_START = time.time() - time.monotonic()


def now() -> float:
    """The wall clock as it was when the process started, and what has passed since."""
    return _START + time.monotonic()
