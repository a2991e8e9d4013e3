"""Memory of state, apart from that of batches.

State that arrives needs new memory. From an allocator for everything it takes pages that batches
have used before, and the next batch touches new ones in their place: thousands of page faults, a
hundred milliseconds on a virtual machine, while users wait. So values of variable width, which are
most of what is large, have an allocator of their own, and whoever brings state pays for its memory.
"""

from __future__ import annotations

import pyarrow as pa

HAS_JEMALLOC = "jemalloc" in pa.supported_memory_backends()

STATE = pa.jemalloc_memory_pool() if HAS_JEMALLOC else pa.default_memory_pool()


def give_back() -> None:
    """Return what is free to the system; by itself that happens only as memory is used again.

    Nothing where state and batches share an allocator: batches need what is free.
    """
    if HAS_JEMALLOC:
        STATE.release_unused()
