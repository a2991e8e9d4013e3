"""Many calls by few threads: all are made, and slow ones do not hold up the others."""

from __future__ import annotations

import threading
from functools import partial

from anabranch.coordinator.few_threads import THREADS, in_few_threads

WAIT = 20


def void(_: object) -> None:
    """A call that returns nothing."""


def test_quick_calls_need_few_threads() -> None:
    made: list[int] = []
    by: set[int] = set()

    def call(number: int) -> None:
        by.add(threading.get_ident())
        made.append(number)

    in_few_threads("test", [partial(call, number) for number in range(1_000)])
    assert sorted(made) == list(range(1_000))
    assert len(by) <= THREADS


def test_no_call_waits_behind_slow_ones() -> None:
    """Each slow call ends only when all others have begun."""
    count = 2 * THREADS + 5
    together = threading.Barrier(count)
    in_few_threads("test", [lambda: void(together.wait(WAIT)) for _ in range(count)])
    assert not together.broken


def test_nothing_to_do() -> None:
    in_few_threads("test", [])
