"""Processes come and go in threads of their own: none is lost, none comes back after its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.errors import ServiceUnavailable
from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId, WorkerId
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processes.worker_pool import WorkerPool
from anabranch.transport.auth import Credentials

WAIT = 20
W1 = WorkerId("w1")


class Process:
    """A worker's process; the end of one is heard of in the thread that ends it."""

    def __init__(self, number: int, on_exit: Callable[[str], None]) -> None:
        self.address = f"127.0.0.1:{number}"
        self.pid = number
        self.host = DRIVER
        self.ended = threading.Event()
        self._on_exit = on_exit

    def stop(self) -> None:
        if not self.ended.is_set():
            self.ended.set()
            self._on_exit("ended.")

    kill = stop

    def dump(self) -> None:
        pass


class Launcher:
    """Starts them; a start can be held back after the process is there."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.started = threading.Semaphore(0)
        self.holds: list[threading.Event] = []
        self.errors: list[Exception] = []

    def start(self, config: WorkerConfig, host: HostId, on_exit: Callable[[str], None]) -> Process:
        if self.errors:
            raise self.errors.pop(0)
        process = Process(len(self.processes) + 1, on_exit)
        hold = self.holds.pop(0) if self.holds else None
        self.processes.append(process)
        self.started.release()
        if hold is not None:
            assert hold.wait(WAIT)
        return process

    def close(self) -> None:
        pass


class Heard:
    """What the pool tells, in its order."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.down: list[tuple[int, str]] = []
        self.news = threading.Semaphore(0)
        self.on_started: Callable[[int], None] = lambda incarnation: None

    def note_started(self, worker: WorkerId, incarnation: int) -> None:
        self.on_started(incarnation)
        self.started.append(incarnation)
        self.news.release()

    def note_down(self, worker: WorkerId, incarnation: int, reason: str) -> None:
        self.down.append((incarnation, reason))
        self.news.release()

    def wait(self) -> None:
        assert self.news.acquire(timeout=WAIT)


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
def heard() -> Heard:
    return Heard()


def config(worker: WorkerId, incarnation: int) -> Any:
    where = Credentials("token"), "127.0.0.1", ""
    return WorkerConfig(worker, f"run-{incarnation}", *where, 4, 4)


@pytest.fixture
def pool(launcher: Launcher, heard: Heard) -> WorkerPool:
    return WorkerPool(launcher, config, heard.note_started, heard.note_down)


def test_a_dead_process_never_replaces_the_one_after_it(
    launcher: Launcher, heard: Heard, pool: WorkerPool
) -> None:
    """It dies when it listens, while the thread that started it is held up."""
    hold = threading.Event()
    launcher.holds = [hold]
    pool.start(W1, 0, DRIVER)
    assert launcher.started.acquire(timeout=WAIT)
    launcher.processes[0].stop()
    heard.wait()
    pool.start(W1, 1, DRIVER)
    heard.wait()
    late = [thread for thread in pool._threads if thread.is_alive()]
    hold.set()
    for thread in late:
        if thread.name == "anabranch-start-w1":
            thread.join(WAIT)
    assert pool.address(W1, 1) == "127.0.0.1:2"
    assert pool.address(W1, 0) is None
    assert heard.started == [1]
    assert [incarnation for incarnation, _ in heard.down] == [0]
    pool.stop()
    assert launcher.processes[1].ended.is_set()


def test_an_end_heard_late_does_not_call_the_next_process_at_its_port_gone(
    launcher: Launcher, heard: Heard
) -> None:
    gone: list[str] = []
    pool = WorkerPool(launcher, config, heard.note_started, heard.note_down, on_gone=gone.append)
    pool.start(W1, 0, DRIVER)
    heard.wait()
    pool.start(WorkerId("w2"), 0, DRIVER)
    heard.wait()
    first, second = launcher.processes
    pool._members[WorkerId("w2")].peer.address = first.address  # as if it had taken the port
    first.stop()
    heard.wait()
    assert gone == []
    second.stop()
    heard.wait()
    assert gone == [first.address]
    pool.stop()


def test_a_process_that_died_before_it_was_known_is_not_taken_for_one_that_runs(
    launcher: Launcher, heard: Heard, pool: WorkerPool
) -> None:
    hold = threading.Event()
    launcher.holds = [hold]
    pool.start(W1, 0, DRIVER)
    assert launcher.started.acquire(timeout=WAIT)
    launcher.processes[0].stop()
    heard.wait()
    starting = [thread for thread in pool._threads if thread.name == "anabranch-start-w1"]
    hold.set()
    for thread in starting:
        thread.join(WAIT)
    assert pool.pids() == {}
    assert heard.started == []
    pool.stop()


@pytest.mark.parametrize("error", [ServiceUnavailable("no room"), OSError(24, "files"), KeyError()])
def test_whatever_keeps_a_process_from_starting_is_heard_of(
    launcher: Launcher, heard: Heard, pool: WorkerPool, error: Exception
) -> None:
    """Else the worker would be starting for as long as the service lives."""
    launcher.errors = [error]
    pool.start(W1, 0, DRIVER)
    heard.wait()
    ((incarnation, reason),) = heard.down
    assert incarnation == 0
    assert reason
    pool.stop()


def test_a_process_that_cannot_be_prepared_is_replaced(
    launcher: Launcher, heard: Heard, pool: WorkerPool
) -> None:
    def refuse(incarnation: int) -> None:
        raise KeyError("nobody thought of it")

    heard.on_started = refuse
    pool.start(W1, 0, DRIVER)
    heard.wait()
    assert heard.down == [(0, "ended.")]
    assert pool.pids() == {}
    pool.stop()


def test_stop_does_not_wait_for_a_process_that_does_not_answer(
    launcher: Launcher, heard: Heard, pool: WorkerPool
) -> None:
    """A call to it ends with it."""
    asked = threading.Event()

    def ask(incarnation: int) -> None:
        asked.set()
        assert launcher.processes[incarnation].ended.wait(WAIT)

    heard.on_started = ask
    pool.start(W1, 0, DRIVER)
    assert asked.wait(WAIT)
    stopping = threading.Thread(target=pool.stop, daemon=True)
    stopping.start()
    stopping.join(WAIT / 2)
    assert not stopping.is_alive()
    assert heard.down == []


def test_only_the_process_that_is_meant_is_killed(
    launcher: Launcher, heard: Heard, pool: WorkerPool
) -> None:
    pool.start(W1, 3, DRIVER)
    heard.wait()
    assert not pool.replace(W1, 2, "it is long gone")
    assert not pool.replace(WorkerId("w2"), 3, "nobody")
    assert pool.incarnations() == {W1: 3}
    assert pool.replace(W1, 3, "it hangs")
    heard.wait()
    assert heard.down == [(3, "ended.")]
    pool.stop()
