"""Memory that state is about to fill, fetched from the system while nobody needs the processor.

Fresh pages are cleared when they are first touched, and on a virtual machine found first: up to
milliseconds for each huge page. Touched ahead by a thread that only runs when no other wants to,
they do not cost batches anything. Arrow's allocator keeps what is freed here for what comes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading

import pyarrow as pa

CHUNK_BYTES = 8 << 20
BYTES_MAX = 256 << 20
"""At a time: more would be given back before it is needed."""
SHARE_MAX = 0.25
"""Of the memory that is free."""
SECONDS_MAX = 2.0
"""A machine without an idle moment: go on as it is."""
LOWEST_PRIORITY = 19


def prefault(size: int) -> None:
    """Make so many bytes ready, as far as that is reasonable; returns when done."""
    wanted = min(size, BYTES_MAX, int(SHARE_MAX * _free_bytes()))
    if wanted < CHUNK_BYTES:
        return
    enough = threading.Event()
    thread = threading.Thread(target=_touch, args=(wanted, enough), name="anabranch-prefault")
    thread.daemon = True
    thread.start()
    thread.join(SECONDS_MAX)
    enough.set()


def _touch(size: int, enough: threading.Event) -> None:
    with contextlib.suppress(OSError, AttributeError):  # not all systems have it for threads
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST_PRIORITY)
    held = []
    while size > 0 and not enough.is_set():
        chunk = pa.allocate_buffer(CHUNK_BYTES)
        ctypes.memset(chunk.address, 0, CHUNK_BYTES)  # without the interpreter's lock
        held.append(chunk)
        size -= CHUNK_BYTES


def _free_bytes() -> int:
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":") for line in file)
        return int(lines["MemAvailable"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return 0
