"""Work beside batches: its outcome, and its priority."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import pytest

from anabranch.worker.low_priority import NICE, giving_way, in_background


def nice_of(thread: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, thread)


def test_it_gives_the_result_or_the_error() -> None:
    assert in_background(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0)
    with pytest.raises(SystemExit):
        in_background(lambda: sys.exit(1))


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root may raise it")
def test_only_its_own_thread_gives_way() -> None:
    mine = nice_of(threading.get_native_id())
    assert in_background(lambda: nice_of(threading.get_native_id())) == max(NICE, mine)
    assert nice_of(threading.get_native_id()) == mine


def test_what_could_not_be_undone_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    mine = nice_of(threading.get_native_id())
    assert in_background(lambda: nice_of(threading.get_native_id())) == mine


@pytest.mark.skipif(sys.platform != "linux" or os.getuid() != 0, reason="only root may raise it")
def test_threads_of_libraries_get_their_priority_back() -> None:
    end = threading.Event()

    def load() -> threading.Thread:
        thread = threading.Thread(target=end.wait)
        thread.start()
        return thread

    thread = in_background(load)
    try:
        assert thread.native_id is not None
        assert nice_of(thread.native_id) == nice_of(threading.get_native_id())
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_items_are_made_as_they_are_taken(count: int) -> None:
    made: list[bool] = []

    def items() -> Iterator[int]:
        for number in range(count):
            made.append(threading.current_thread() is threading.main_thread())
            yield number

    taken = giving_way(items())
    assert made == []
    for number in range(count):
        assert next(taken) == number
        assert len(made) == min(count, max(2, number + 1))
    assert list(taken) == []
    assert made == [number < 2 for number in range(count)]  # few are not worth a thread
