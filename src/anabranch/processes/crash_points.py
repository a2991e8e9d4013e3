"""Points at which a process can be told to die, so that tests hit the awkward moments exactly.

`ANABRANCH_CRASH_AT="w1:applied:3,coordinator:after-manifest:1"` kills worker w1 with SIGKILL the
third time it gets there, and the driver the first time. A plan is for a worker's first process, so
that its replacement survives; `w1.2` is the second replacement.
"""

from __future__ import annotations

import os
import signal
from collections import Counter

from anabranch.protocol.move_orders import OrderKind

WORKER_POINTS = (
    "opened",
    "rows-received",
    "loaded",
    "applied",
    "pack-written",
    "changelog-written",
    "answered",
)
ORDER_POINTS = tuple(f"{when}-{kind.value}" for kind in OrderKind for when in ("before", "after"))
"""After: it is done, but the coordinator does not learn of it."""
MOVE_POINTS = (
    *ORDER_POINTS,
    "connected",
    "copy-slice",
    "deltas-served",
    "lag-served",
    "fetch-asked",
    "fetch-served",
    "fetched",
    "imported",
    "forwarding",
)
COORDINATOR_POINTS = ("before-lists", "before-manifest", "after-manifest")

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
