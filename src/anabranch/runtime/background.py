"""Work that gives way to batches: on a busy machine it takes the time that they leave."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

NICE = 10
"""Under full load such a thread still gets about a tenth of a core."""

T = TypeVar("T")


def in_background(work: Callable[[], T]) -> T:
    """Run in a thread of low priority (Linux; elsewhere in a usual one) and wait for it."""
    outcome: Future[T] = Future()
    usual = _nice()

    def run() -> None:
        before = _threads()
        _set_nice(threading.get_native_id(), max(NICE, usual))
        try:
            result = work()
        except BaseException as error:
            outcome.set_exception(error)
            return
        # Threads of libraries that were loaded have inherited it. Only root may give it back.
        for thread in _threads() - before:
            _set_nice(thread, usual)
        outcome.set_result(result)

    threading.Thread(target=run, name="anabranch-background", daemon=True).start()
    return outcome.result()


def _threads() -> set[int]:
    if sys.platform != "linux":
        return set()
    return {int(name) for name in os.listdir("/proc/self/task")}


def _nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0) if sys.platform == "linux" else 0


def _set_nice(thread: int, nice: int) -> None:
    if sys.platform == "linux":  # where a priority belongs to a thread, not to the process
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, nice)
