"""Work that gives way to batches: on a busy machine it takes the time that they leave."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import TypeVar

NICE = 10
"""Under full load such a thread still gets about a tenth of a core."""

T = TypeVar("T")


def in_background(work: Callable[[], T]) -> T:
    """Run in a thread of low priority, where that is possible, and wait for it."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            with _low_priority():
                result = work()
        except BaseException as error:
            outcome.set_exception(error)
        else:
            outcome.set_result(result)

    threading.Thread(target=run, name="anabranch-background", daemon=True).start()
    return outcome.result()  # no limit: as long as the work takes; its callers have limits


def giving_way(items: Iterator[T]) -> Iterator[T]:
    """The items; where there are more than two, the others are made in the background as taken."""
    found = list(islice(items, 2))  # so few are not worth a thread
    is_more = len(found) == 2
    yield from found
    while is_more and (found := in_background(lambda: list(islice(items, 1)))):
        yield from found


@contextlib.contextmanager
def _low_priority() -> Iterator[None]:
    """For this thread. Those that libraries start meanwhile inherit it, and get it back."""
    if not _can_return():
        yield
        return
    usual, before = os.getpriority(os.PRIO_PROCESS, 0), _threads()
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(NICE, usual))
    try:
        yield
    finally:
        for thread in _threads() - before:
            with contextlib.suppress(OSError):  # it has ended
                os.setpriority(os.PRIO_PROCESS, thread, usual)


def _can_return() -> bool:
    """Whether a priority belongs to a thread (Linux) and may be raised again (root)."""
    return sys.platform == "linux" and os.geteuid() == 0


def _threads() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}
