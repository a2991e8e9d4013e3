"""What an agent does with orders that come twice, late, or while it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import AgentId, HostId
from anabranch.processes.agent_workers import AgentWorkers
from anabranch.processes.worker_config import WorkerConfig
from anabranch.transport.auth import Credentials
from anabranch.transport.messages.hosts import EndHead, EndKind, Report, ReportKind, StartHead

H1 = HostId("h1")
WAIT = 20
CONFIG = WorkerConfig(
    "w1", "run-0", Credentials("secret"), "0.0.0.0", "", 4, 4, local_dir="/driver"
)


class Process:
    """A worker's process."""

    def __init__(self, config: WorkerConfig, on_exit: Callable[[str], None]) -> None:
        self.config, self._on_exit = config, on_exit
        self.address, self.pid, self.host = "127.0.0.2:1", 1, H1
        self.ends: list[str] = []

    def kill(self) -> None:
        self.ends.append("kill")
        self._on_exit("killed.")

    def stop(self) -> None:
        self.ends.append("stop")
        self._on_exit("stopped.")

    def dump(self) -> None:
        self.ends.append("dump")


class Launcher:
    """Starts them; a start can be held back."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.error: Exception | None = None
        self.go = threading.Event()
        self.go.set()

    def start(self, config: WorkerConfig, host: HostId, on_exit: Callable[[str], None]) -> Process:
        assert self.go.wait(WAIT)
        if self.error is not None:
            raise self.error
        self.processes.append(Process(config, on_exit))
        return self.processes[-1]

    def close(self) -> None:
        pass


class Reports:
    """The coordinator's end; it can be out of reach."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, ReportKind]] = []
        self.is_reached = True

    def send(self, report: Report) -> None:
        if not self.is_reached:
            raise ServiceUnavailable("nobody is there")
        self.heard.append((report.process, report.kind))

    def wait(self, *expected: tuple[int, ReportKind]) -> None:
        limit = time.monotonic() + WAIT
        while self.heard != list(expected):
            assert time.monotonic() < limit, f"{self.heard}, not {expected}"
            time.sleep(0.01)


@pytest.fixture
def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def workers(launcher: Launcher, reports: Reports) -> Iterator[AgentWorkers]:
    workers = AgentWorkers(AgentId("a"), H1, "127.0.0.2", "/mine", launcher, reports.send)
    yield workers
    workers.end_all(EndKind.KILL)


def order(process: int) -> StartHead:
    return StartHead(process, CONFIG.to_json())


def test_a_worker_gets_what_is_this_hosts_own(
    workers: AgentWorkers, launcher: Launcher, reports: Reports
) -> None:
    workers.start(order(1))
    workers.start(order(1))
    reports.wait((1, ReportKind.STARTED))
    (process,) = launcher.processes
    config = process.config
    assert (config.host, config.local_dir, config.is_remote) == ("127.0.0.2", "/mine", True)
    assert workers.running() == ("w1",)
    workers.end(EndHead(1, EndKind.DUMP))
    workers.end(EndHead(1, EndKind.STOP))
    reports.wait((1, ReportKind.STARTED), (1, ReportKind.ENDED))
    assert workers.running() == ()
    workers.start(order(1))
    assert len(launcher.processes) == 1


def test_a_start_that_comes_after_its_end_is_void(
    workers: AgentWorkers, launcher: Launcher, reports: Reports
) -> None:
    workers.end(EndHead(1, EndKind.KILL))
    reports.wait((1, ReportKind.ENDED))
    workers.start(order(1))
    workers.start(order(2))
    reports.wait((1, ReportKind.ENDED), (2, ReportKind.STARTED))
    assert len(launcher.processes) == 1


def test_a_worker_that_is_unwanted_before_it_is_there_ends_at_once(
    workers: AgentWorkers, launcher: Launcher, reports: Reports
) -> None:
    launcher.go.clear()
    workers.start(order(1))
    workers.end(EndHead(1, EndKind.STOP))
    time.sleep(0.05)
    launcher.go.set()
    reports.wait((1, ReportKind.STARTED), (1, ReportKind.ENDED))
    assert launcher.processes[0].ends == ["kill"]


def test_what_cannot_be_started_is_reported(
    workers: AgentWorkers, launcher: Launcher, reports: Reports
) -> None:
    launcher.error = KeyError("nobody thought of it")
    workers.start(order(1))
    reports.wait((1, ReportKind.FAILED))
    assert workers.running() == ()


def test_reports_wait_for_the_coordinator_in_their_order(
    workers: AgentWorkers, launcher: Launcher, reports: Reports
) -> None:
    reports.is_reached = False
    workers.start(order(1))
    while not launcher.processes:
        time.sleep(0.01)
    workers.end(EndHead(1, EndKind.KILL))
    time.sleep(0.3)
    assert reports.heard == []
    reports.is_reached = True
    reports.wait((1, ReportKind.STARTED), (1, ReportKind.ENDED))


def test_a_fenced_agent_kills_also_what_is_being_started(
    workers: AgentWorkers, launcher: Launcher, reports: Reports
) -> None:
    workers.start(order(1))
    reports.wait((1, ReportKind.STARTED))
    launcher.go.clear()
    workers.start(order(2))
    reports.is_reached = False
    workers.end_all(EndKind.KILL)
    assert launcher.processes[0].ends == ["kill"]
    launcher.go.set()
    while len(launcher.processes) < 2 or not launcher.processes[1].ends:
        time.sleep(0.01)
    workers.start(order(3))
    assert len(launcher.processes) == 2
