"""Environment variables of worker processes."""

from __future__ import annotations

import os

_FIXED = {
    # A thread of OpenBLAS would not survive the fork, and nothing here multiplies matrices.
    "OPENBLAS_NUM_THREADS": "1",
}
_DEFAULTS = {
    # Arrow's allocator gives memory back after 10 ms by default, so that each batch and each slice
    # of a move faults its pages in again: tens of microseconds a page on a virtual machine.
    "MIMALLOC_PURGE_DELAY": "1000",
}


def worker_environment() -> dict[str, str]:
    """This process's environment; what the user has set wins."""
    return {**_DEFAULTS, **os.environ, **_FIXED}
