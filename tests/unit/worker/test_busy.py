"""Busy seconds: every activity by itself, from many threads."""

from __future__ import annotations

import threading
import time

from anabranch.worker.busy import APPLYING, FETCHING, SENDING, WRITING, BusyClock


def test_activities_are_counted_apart() -> None:
    clock = BusyClock()
    clock.add(APPLYING, 1.5)
    clock.add(APPLYING, 0.5)
    clock.add(WRITING, 0.25)
    assert clock.read() == {APPLYING: 2.0, FETCHING: 0.0, WRITING: 0.25, SENDING: 0.0}


def test_what_fails_counts_too() -> None:
    clock = BusyClock()
    try:
        with clock.counted(FETCHING):
            time.sleep(0.02)
            raise OSError
    except OSError:
        pass
    assert clock.read()[FETCHING] >= 0.02


def test_threads_lose_nothing() -> None:
    clock = BusyClock()

    def work() -> None:
        for _ in range(2000):
            clock.add(SENDING, 1.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.read()[SENDING] == 8000.0
