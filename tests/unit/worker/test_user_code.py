"""A worker knows where its user code is, although user code does not tell."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anabranch.processor.contract import CodePlace
from anabranch.transport.messages.control import UserCall
from anabranch.worker import user_code
from anabranch.worker.user_code import UserCodeWatch, Visit

WAIT = 20


class Work:
    """A thread that is in user code until it may go on."""

    def __init__(self, watch: UserCodeWatch, pool: ThreadPoolExecutor, **visit: Any) -> None:
        self.place: CodePlace | None = CodePlace("Slow.handleInputRows", "key", lambda: "('a',)")
        self._inside, self._go = threading.Event(), threading.Event()
        visit = {"epoch": 3, "attempt": 41, **visit}
        self._visit = Visit("totals", 7, lambda: self.place, **visit)
        self._done = pool.submit(self._run, watch)
        assert self._inside.wait(WAIT)

    def end(self) -> None:
        self._go.set()
        self._done.result(WAIT)

    def _run(self, watch: UserCodeWatch) -> None:
        with watch.watched(self._visit):
            self.the_users_own_function()

    def the_users_own_function(self) -> None:
        self._inside.set()
        assert self._go.wait(WAIT)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[UserCodeWatch]:
    monkeypatch.setattr(user_code, "LOOK_SECONDS", 0.01)
    watch = UserCodeWatch()
    yield watch
    watch.close()
    assert "anabranch-watch" not in [thread.name for thread in threading.enumerate()]


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def wait_for_call(watch: UserCodeWatch, seconds: float) -> UserCall:
    """One that takes so long."""
    for _ in range(WAIT * 100):
        calls = watch.report(seconds).calls
        if calls:
            assert len(calls) == 1
            return calls[0]
        threading.Event().wait(0.01)
    raise AssertionError("no call is reported")


def test_a_long_call_is_reported_with_all_that_is_known(
    watch: UserCodeWatch, pool: ThreadPoolExecutor
) -> None:
    work = Work(watch, pool)
    assert watch.report(1000).calls == ()
    call = wait_for_call(watch, 0.1)
    assert (call.operator, call.definition, call.epoch, call.attempt) == ("totals", 7, 3, 41)
    assert (call.method, call.key, call.is_abandoned) == ("Slow.handleInputRows", "('a',)", False)
    assert call.seconds >= 0.1
    assert "in the_users_own_function" in call.stack
    assert wait_for_call(watch, call.seconds + 0.05).number == call.number
    work.end()
    assert watch.report(0).calls == ()


def test_the_next_key_is_another_call(watch: UserCodeWatch, pool: ThreadPoolExecutor) -> None:
    work = Work(watch, pool)
    first = wait_for_call(watch, 0.2)
    work.place = CodePlace("Slow.handleInputRows", "other", lambda: "('b',)")
    second = wait_for_call(watch, 0)
    assert second.key == "('b',)"
    assert second.number != first.number
    assert second.seconds < first.seconds
    work.place = None  # the engine's own work
    assert watch.report(0).calls == ()
    work.end()


def test_whether_anybody_waits_is_asked_anew(
    watch: UserCodeWatch, pool: ThreadPoolExecutor
) -> None:
    gone = threading.Event()
    work = Work(watch, pool, is_abandoned=gone.is_set)
    assert not wait_for_call(watch, 0).is_abandoned
    gone.set()
    assert wait_for_call(watch, 0).is_abandoned
    work.end()


def test_long_keys_are_cut(watch: UserCodeWatch, pool: ThreadPoolExecutor) -> None:
    work = Work(watch, pool)
    work.place = CodePlace("Slow.handleInputRows", "long", lambda: "x" * 10_000)
    key = wait_for_call(watch, 0).key
    assert key is not None
    assert len(key) <= user_code.KEY_CHARACTERS_MAX + 3
    work.end()
