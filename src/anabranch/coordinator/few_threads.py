"""Many calls by few threads, as long as they are answered at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

THREADS = 32
SLOW_SECONDS = 0.2
"""If no call begins for so long, all threads wait for slow ones: the others get more threads."""


def in_few_threads(name: str, calls: Iterable[Callable[[], None]]) -> None:
    """Make all calls, and return when they have ended; none waits for long behind slow ones."""
    waiting = deque(calls)
    has_begun = threading.Event()
    """Whether all have."""
    threads: list[threading.Thread] = []

    def work() -> None:
        while True:
            try:
                call = waiting.popleft()
            except IndexError:
                has_begun.set()
                return
            call()

    left = -1
    while waiting:
        if len(waiting) == left or left < 0:
            for _ in range(min(THREADS, len(waiting))):
                threads.append(threading.Thread(target=work, name=name, daemon=True))
                threads[-1].start()
        left = len(waiting)
        has_begun.wait(SLOW_SECONDS)
    for thread in threads:
        thread.join()  # no limit: each call has one
