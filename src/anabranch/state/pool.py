"""Memory of state, apart from that of batches.

State that arrives needs new memory. From an allocator for everything it takes pages that batches
have used before, and the next batch touches new ones in their place: thousands of page faults, a
hundred milliseconds on a virtual machine, while users wait. So values of variable width, which are
most of what is large, have an allocator of their own, and whoever brings state pays for its memory.
"""

from __future__ import annotations

import pyarrow as pa

BATCHES = pa.default_memory_pool()

STATE = pa.jemalloc_memory_pool() if "jemalloc" in pa.supported_memory_backends() else BATCHES

IS_APART = STATE.backend_name != BATCHES.backend_name
"""Not if Arrow was built without it, or the user has chosen it for everything."""


def give_back() -> None:
    """Return what is free to the system: a forked process has no thread of jemalloc that would.

    Not where state and batches share an allocator: batches need what is free.
    """
    if IS_APART:
        STATE.release_unused()
