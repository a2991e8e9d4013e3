"""Points at which a process can be told to die, so that tests hit the awkward moments exactly.

`ANABRANCH_CRASH_AT="w1:applied:3,coordinator:after-manifest:1"` kills worker w1 with SIGKILL the
third time it gets there, and the driver the first time.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

WORKER_POINTS = (
    "opened",
    "rows-received",
    "loaded",
    "applied",
    "changelog-written",
    "answered",
)
MOVE_POINTS = (
    "copy-slice",
    "copied",
    "caught-up",
    "granted",
    "released",
    "fetch-served",
    "fetched",
    "imported",
    "forwarding",
)
RECOVERY_POINTS = ("restored",)
COORDINATOR_POINTS = ("before-manifest", "after-manifest")

_planned = {entry for entry in os.environ.get("ANABRANCH_CRASH_AT", "").split(",") if entry}
_passed: Counter[str] = Counter()


def crash_point(process: str, point: str) -> None:
    """Die here if told to."""
    if not _planned:
        return
    name = f"{process}:{point}"
    _passed[name] += 1
    if f"{name}:{_passed[name]}" in _planned:
        os.kill(os.getpid(), signal.SIGKILL)
