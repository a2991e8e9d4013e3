"""Memory of state, apart from that of batches.

State that arrives needs new memory. From an allocator for everything it takes pages that batches
have used before, and the next batch touches new ones in their place: thousands of page faults, a
hundred milliseconds on a virtual machine, while users wait. So state has an allocator of its own,
and whoever brings state pays for its memory.
"""

from __future__ import annotations

import pyarrow as pa

KEPT_MS = 60_000
"""How long memory that was freed is kept for what comes next; large pieces go back at once."""

HAS_JEMALLOC = "jemalloc" in pa.supported_memory_backends()

STATE = pa.jemalloc_memory_pool() if HAS_JEMALLOC else pa.default_memory_pool()


def keep_freed() -> None:
    """For a process that lives on its state: by default it would be given back after a second."""
    if HAS_JEMALLOC:
        pa.jemalloc_set_decay_ms(KEPT_MS)
