"""Memory of state and of what is sent, apart from Arrow's memory of batches.

State that arrives needs new memory. From an allocator for everything it takes pages that batches
have used before, and the next batch touches new ones in their place: thousands of page faults, a
hundred milliseconds on a virtual machine, while users wait. So values of variable width, which are
most of what is large, have an allocator of their own, and whoever brings state pays for its memory.

What columnar state packs to be sent is needed for milliseconds, by threads that come and go, and in
that of batches it would take pages from them all the time. It shares the C library's with NumPy.
"""

from __future__ import annotations

import pyarrow as pa

BATCHES = pa.default_memory_pool()

STATE = pa.jemalloc_memory_pool() if "jemalloc" in pa.supported_memory_backends() else BATCHES

PARCELS = pa.system_memory_pool()
