"""Environment variables of worker processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

PREFIX = "ANABRANCH_"
"""Of variables that are for workers on any host."""

_FIXED = {
    # A thread of OpenBLAS would not survive the fork, and nothing here multiplies matrices.
    "OPENBLAS_NUM_THREADS": "1",
}

_DEFAULTS = {
    # Arrow's allocator gives memory back after 10 ms by default, so that every batch faults its
    # pages in again: a thousand times, for up to 200 microseconds each on a virtual machine. Here
    # memory goes back when it has not been needed for a minute.
    "MIMALLOC_PURGE_DELAY": "60000",
    # The same for the allocator of state, which gives back pieces of 8 MiB and more at once, as key
    # groups leave. (No `release_unused` after a move: PyArrow would release the memory of batches.)
    "JE_ARROW_MALLOC_CONF": "dirty_decay_ms:60000,muzzy_decay_ms:0",
    # The same for NumPy's arrays, which the C library would map and unmap one by one.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "MALLOC_ARENA_MAX": "2",
    # No huge pages: on virtual machines the host may have to find memory for each at its first
    # touch, which takes 7 ms for 2 MB where small pages take 2, and all of it at once. State that
    # arrives is touched for the first time, while batches run.
    "MIMALLOC_ALLOW_THP": "0",
    "NUMPY_MADVISE_HUGEPAGE": "0",
}


def worker_environment(of_driver: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment; what the user has set wins, on the driver first.

    On another host than the driver's (`of_driver` is given), workers find the modules that this
    process finds.
    """
    if of_driver is None:
        return {**_DEFAULTS, **os.environ, **_FIXED}
    path = {"PYTHONPATH": os.pathsep.join(os.path.abspath(folder) for folder in sys.path)}
    return {**_DEFAULTS, **os.environ, **path, **of_driver, **_FIXED}


def driver_environment() -> dict[str, str]:
    """What workers on other hosts need of this process's environment."""
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
