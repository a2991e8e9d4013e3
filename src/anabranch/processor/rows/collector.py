"""Pauses Python's cyclic garbage collector: scans of growing state would cost most of a batch."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_FULL_LOOK_EVERY = 200

_lock = threading.Lock()
_paused = 0
_finished = 0
_was_enabled = False


@contextmanager
def paused_collector() -> Iterator[None]:
    """No automatic collection inside; may be nested and used by several threads.

    What is alive at the end is frozen: without that, the first collection afterwards would scan
    every record made inside. Now and then all is thawed, so that garbage cycles go too.
    """
    global _finished, _paused, _was_enabled
    with _lock:
        if _paused == 0:
            _was_enabled = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if _paused == 0 and _was_enabled:
                _finished += 1
                if _finished % _FULL_LOOK_EVERY == 0:
                    gc.unfreeze()
                else:
                    gc.freeze()
                gc.enable()
