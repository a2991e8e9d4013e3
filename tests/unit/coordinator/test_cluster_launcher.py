"""Workers on hosts: orders are repeated, reports count once, nobody waits for a lost host."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.coordinator import cluster_launcher
from anabranch.coordinator.cluster_launcher import ClusterLauncher, RemoteWorker
from anabranch.coordinator.host_registry import HostRegistry
from anabranch.durability.blobs import BlobStore
from anabranch.errors import ServiceUnavailable
from anabranch.model.host import HostFacts
from anabranch.model.ids import AgentId, HostId
from anabranch.processes.agent_config import JOINED
from anabranch.processes.agent_proof import Echo, proof, versions
from anabranch.processes.worker_config import WorkerConfig
from anabranch.protocol.leases import LeaseTimes
from anabranch.transport.auth import Credentials
from anabranch.transport.messages.hosts import (
    EndHead,
    EndKind,
    Join,
    Orders,
    Report,
    ReportKind,
    ReturnHead,
    StartHead,
)

H1, A = HostId("h1"), AgentId("a")
CONFIG = WorkerConfig("w1", "run-0", Credentials("secret"), "", "", 4, 4)
WAIT = 20


class Agent:
    """An agent whose reports a test decides."""

    def __init__(self, registry: HostRegistry) -> None:
        self.registry = registry
        reply: Any = registry.call(Join(A, HostFacts(H1), "127.0.0.1", JOINED, None, versions()))
        with Echo(A, "127.0.0.1") as echo:
            registry.call(proof(A, reply, echo.listens_at, "."))
        self.orders = self.listen()

    def listen(self) -> Iterator[Any]:
        """Open an order stream."""
        orders = self.registry.stream(Orders(A))
        return itertools.chain([next(orders)], orders)  # it is open with the first one

    def next_order(self) -> Any:
        """Of those that are not signs of life."""
        for head, _ in self.orders:
            if isinstance(head, StartHead | EndHead | ReturnHead):
                return head
        raise AssertionError("the stream has ended")

    def report(self, process: int, kind: ReportKind, reason: str = "") -> None:
        """What has happened to a process."""
        self.registry.call(Report(A, process, kind, "127.0.0.1:1234", 77, reason))


class Start:
    """A start that is under way."""

    def __init__(self, launcher: ClusterLauncher) -> None:
        self.worker: RemoteWorker | None = None
        self.error: Exception | None = None
        self.exits: list[str] = []
        self._launcher = launcher
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.worker = self._launcher.start(CONFIG, H1, self.exits.append)
        except Exception as error:
            self.error = error

    def wait(self) -> None:
        """Until it has come to something."""
        self._thread.join(WAIT)
        assert not self._thread.is_alive()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[HostRegistry]:
    times = LeaseTimes(lease=60.0, beat=0.05, absence=0.3)
    registry = HostRegistry(
        BlobStore(str(tmp_path)), "run", lambda event: None, lambda event: None, times
    )
    registry.start()
    yield registry
    registry.stop()


@pytest.fixture
def launcher(registry: HostRegistry) -> ClusterLauncher:
    return ClusterLauncher(registry)


@pytest.fixture
def agent(launcher: ClusterLauncher, registry: HostRegistry) -> Agent:
    return Agent(registry)


def until(condition: Callable[[], object]) -> None:
    limit = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < limit, "nothing has happened"
        time.sleep(0.01)


def started(launcher: ClusterLauncher, agent: Agent) -> tuple[Start, RemoteWorker, int]:
    start = Start(launcher)
    number = agent.next_order().process
    agent.report(number, ReportKind.STARTED)
    start.wait()
    assert start.worker is not None
    return start, start.worker, number


def test_a_worker_starts_and_ends_with_its_reports(launcher: ClusterLauncher, agent: Agent) -> None:
    start, worker, number = started(launcher, agent)
    assert (worker.address, worker.pid, worker.host) == ("127.0.0.1:1234", 77, H1)
    agent.report(number, ReportKind.STARTED)
    for _ in range(2):  # a reply that was lost
        agent.report(number, ReportKind.ENDED, "exit code 1.")
    assert start.exits == ["exit code 1."]


def test_orders_that_were_not_heard_are_given_again(
    launcher: ClusterLauncher, agent: Agent
) -> None:
    start = Start(launcher)
    first = agent.next_order()
    agent.orders = agent.listen()
    assert agent.next_order() == first
    agent.report(first.process, ReportKind.STARTED)
    start.wait()
    assert start.worker is not None
    agent.orders = agent.listen()  # what was reported is not asked for again
    threading.Thread(target=start.worker.kill, daemon=True).start()
    kill = EndHead(first.process, EndKind.KILL)
    assert agent.next_order() == kill
    agent.orders = agent.listen()
    assert agent.next_order() == kill
    agent.report(first.process, ReportKind.ENDED, "killed by signal 9.")
    until(lambda: start.exits)


def test_a_failed_start_says_why(launcher: ClusterLauncher, agent: Agent) -> None:
    start = Start(launcher)
    agent.report(agent.next_order().process, ReportKind.FAILED, "no memory.")
    start.wait()
    assert str(start.error).endswith("Worker w1 on host h1: no memory.")
    assert start.exits == []


def test_nothing_waits_for_a_host_that_is_lost(launcher: ClusterLauncher, agent: Agent) -> None:
    start, worker, _ = started(launcher, agent)
    late = Start(launcher)
    agent.next_order()
    stopping = threading.Thread(target=worker.stop, daemon=True)
    stopping.start()
    agent.registry.give_up(A, "It is gone.")
    for waiting in (stopping, late._thread):
        waiting.join(2.0)
        assert not waiting.is_alive()
    assert start.exits == ["Host h1 is lost: It is gone."]
    assert isinstance(late.error, ServiceUnavailable)
    with pytest.raises(ServiceUnavailable, match="no agent any more"):
        launcher.start(CONFIG, H1, start.exits.append)


def test_an_agent_that_does_not_start_workers_is_given_up(
    launcher: ClusterLauncher, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It beats, and does nothing: others get its workers, and it starts anew."""
    monkeypatch.setattr(cluster_launcher, "SILENT_SECONDS_MAX", 0.2)
    start = Start(launcher)
    agent.next_order()
    start.wait()
    assert "Host h1 is given up" in str(start.error)
    assert "not started a worker in 0.2 s" in agent.registry.lost()[H1]
    assert agent.next_order() == ReturnHead("Its agent has not started a worker in 0.2 s.", False)


def test_a_worker_that_cannot_be_ended_counts_as_gone(
    launcher: ClusterLauncher, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_launcher, "KILL_SECONDS_MAX", 0.2)
    start, worker, _ = started(launcher, agent)
    worker.kill()
    assert start.exits == ["process 77 on host h1 could not be ended."]
