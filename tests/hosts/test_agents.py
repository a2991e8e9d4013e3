"""Workers on several hosts: agents as processes on 127.0.0.x, no Spark."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cable import Cable
from tests.hosts.agents import ROOT, Agent, AgentCluster, at_most, is_alive, until
from tests.integration.streaming import Stream

from anabranch.errors import ServiceUnavailable
from anabranch.model.host import HostFacts
from anabranch.model.ids import HostId
from anabranch.processes.agent_config import AgentConfig
from anabranch.processes.host_agent import EndingKind, be_agent
from anabranch.transport.auth import Credentials

pytestmark = pytest.mark.timeout(120)


def other_agent(cluster: AgentCluster, host: str, seconds: float) -> AgentConfig:
    """One more agent of a host, in this process."""
    token = cluster.token_file.read_text().strip()
    return AgentConfig(
        cluster.coordinator.address,
        Credentials(token),
        HostFacts(HostId(host)),
        address="127.0.0.3",
        patience_seconds=seconds,
    )


def test_workers_serve_batches_from_several_hosts(tmp_path: Path) -> None:
    """Only one agent of each counts, also if Spark runs the task of an agent again, or twice."""
    with AgentCluster(tmp_path / "state", agents=3, workers=3) as cluster:
        with Stream(cluster) as stream:
            stream.batches(3)
            shown = cluster.hosts()
            assert sorted(shown) == ["h1", "h2", "h3"]
            assert all(len(host["workers"]) == 1 for host in shown.values()), "not spread"
            before = {host: cluster.workers_of(host) for host in shown}
            ending = be_agent(other_agent(cluster, "h2", 1.0), lambda text: None)
            assert ending.kind is EndingKind.TAKEN
            assert ending.reason == "Host h2 has an agent already: this one is not needed."
            assert {host: cluster.workers_of(host) for host in shown} == before
            move = cluster.rescale(5)
            assert move.wait(60)
            stream.batches(2)
            assert sum(len(host["workers"]) for host in cluster.hosts().values()) == 5
        agents = list(cluster.agents.values())
        cluster.coordinator.stop()
        for agent in agents:
            assert agent.process.wait(20) == 0
            assert "The service has stopped." in agent.said()
        assert not any(is_alive(pid) for pids in before.values() for pid in pids.values())


def test_a_killed_agent_costs_its_workers_and_no_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also a worker that is stopped, and cannot end by itself; one that dies is said with why."""
    cluster = AgentCluster(tmp_path / "state", agents=3, workers=3)
    with cluster, Stream(cluster) as stream:
        stream.batches(3)
        (pid,) = cluster.workers_of("h1").values()
        os.kill(pid, signal.SIGABRT)
        until(lambda: "killed by signal 6" in caplog.text, "nobody has noticed", 10)
        (pid,) = cluster.workers_of("h2").values()
        os.kill(pid, signal.SIGSTOP)
        cluster.agents["h2"].send(signal.SIGKILL)
        until(lambda: cluster.is_lost("h2"), "nobody has noticed", 10)
        stream.batches(5)
        assert len(cluster.workers_of("h1")) + len(cluster.workers_of("h3")) == 3
        until(lambda: not is_alive(pid), "its worker lives on", 15)
        cluster.add(2)
        until(lambda: not cluster.is_lost("h2"), "the host has not come back")
        stream.batches(2)


@pytest.mark.soak
def test_a_cut_that_is_healed_in_time_costs_nothing(tmp_path: Path) -> None:
    """Again and again: the agent keeps its workers, since it was heard before its lease was over"""
    cluster = AgentCluster(tmp_path / "state", agents=1, workers=2, expect=2, host_timeout=6.0)
    with cluster, Stream(cluster) as stream:
        cable = Cable(cluster.coordinator.address)
        agent = cluster.add(2, join=cable.address)
        stream.batches(2)
        before = cluster.workers_of("h2")
        assert before
        for _ in range(3):
            cable.cut()
            stream.batches(1)
            with pytest.raises(AssertionError):
                until(lambda: cluster.is_lost("h2"), "", 2.5)
            cable.heal()
            until(lambda: "h2" in cluster.hosts(), "")
            stream.batches(1)
            with pytest.raises(AssertionError):
                until(lambda: cluster.is_lost("h2"), "", 1.5)
        assert cluster.workers_of("h2") == before
        assert agent.said().count("joined") == 1
        cable.close()


def test_a_host_that_is_cut_off_fences_itself_and_joins_again(tmp_path: Path) -> None:
    """Its workers end although nobody can tell it, and batches go on without it."""
    cluster = AgentCluster(tmp_path / "state", agents=1, workers=2, expect=2, host_timeout=3.0)
    with cluster, Stream(cluster) as stream:
        cable = Cable(cluster.coordinator.address)
        agent = cluster.add(2, join=cable.address)
        stream.batches(2)
        (pid,) = cluster.workers_of("h2").values()
        cable.cut()
        with at_most(3.0 + 3.0):
            until(lambda: not is_alive(pid), "a worker lives on", 10)
        until(lambda: cluster.is_lost("h2"), "nobody has noticed", 5)
        with at_most(15.0):
            stream.batches(3)
        until(lambda: "has had no answer" in agent.said(), "it has not said why", 5)
        cable.heal()
        until(lambda: not cluster.is_lost("h2"), "the host has not come back")
        assert agent.said().count("has joined") == 2
        stream.batches(2)
        cable.close()


def test_a_host_that_hangs_is_left_and_ends_its_workers_when_it_wakes_up(tmp_path: Path) -> None:
    """Its kernel answers, and its sockets stay open: only beats tell. Lanes hear of it by push."""
    cluster = AgentCluster(tmp_path / "state", agents=2, workers=2, host_timeout=3.0)
    with cluster, Stream(cluster, open_seconds=0.2) as stream:
        stream.batches(2)
        agent = cluster.agents["h2"]
        (pid,) = cluster.workers_of("h2").values()
        agent.send(signal.SIGSTOP)
        os.kill(pid, signal.SIGSTOP)
        with at_most(3.0 + 3.0):
            until(lambda: cluster.is_lost("h2"), "nobody has noticed", 10)
        with at_most(10.0):
            stream.batches(2)
        assert sorted(cluster.workers_of("h1")) == ["w1", "w2"]
        assert is_alive(pid)  # nobody could end it; it does no harm
        agent.send(signal.SIGCONT)
        until(lambda: not is_alive(pid), "its worker lives on", 5)
        until(lambda: not cluster.is_lost("h2"), "the host has not come back")
        stream.batches(2)


@pytest.mark.soak
def test_a_newer_agent_takes_the_place_of_a_silent_one(tmp_path: Path) -> None:
    """The old one wakes up, hears that it does not count, and ends its workers."""
    cluster = AgentCluster(tmp_path / "state", agents=2, workers=2, host_timeout=30.0)
    with cluster, Stream(cluster) as stream:
        stream.batches(2)
        old = cluster.agents["h2"]
        (pid,) = cluster.workers_of("h2").values()
        old.send(signal.SIGSTOP)
        new = cluster.add(2)
        until(lambda: "has joined" in new.said(), "it was not let in", 20)
        stream.batches(2)
        old.send(signal.SIGCONT)
        until(lambda: not is_alive(pid), "a worker of the old agent lives on", 5)
        assert old.process.wait(30) == 3
        assert "this one is not needed" in old.said()
        assert not cluster.is_lost("h2")
        stream.batches(2)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.soak)],
)
def test_an_agent_that_is_told_to_end_leaves_nothing(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    cluster = AgentCluster(tmp_path / "state", agents=2, workers=2)
    with cluster, Stream(cluster) as stream:
        stream.batches(2)
        pids = cluster.workers_of("h2").values()
        cluster.agents["h2"].send(number)
        assert cluster.agents["h2"].process.wait(10) == code
        assert not any(is_alive(pid) for pid in pids)
        assert cluster.is_lost("h2"), "it did not say that it leaves"
        stream.batches(2)
        assert sorted(cluster.workers_of("h1")) == ["w1", "w2"]


def test_a_query_waits_for_a_host_and_hears_of_it_after_a_while(tmp_path: Path) -> None:
    """A host without room is no failed start: nothing is given up."""
    none, full = "room for w1, w2.*none has joined", r"room for w\d.*h1 runs 1 workers of 1"
    with AgentCluster(
        tmp_path / "state", agents=0, workers=2, expect=1, no_host_timeout=2.0
    ) as cluster:
        with pytest.raises(ServiceUnavailable, match=none):
            cluster.run_batch(0, [1, 2, 3])
        cluster.add(1, "--capacity", "1")
        until(lambda: "h1" in cluster.hosts(), "it was not let in")
        with pytest.raises(ServiceUnavailable, match=full):
            cluster.run_batch(0, range(100))
        cluster.add(2)
        until(lambda: "h2" in cluster.hosts(), "it was not let in")
        with Stream(cluster) as stream:
            stream.batches(2)


DRIVER = """
import sys
from pathlib import Path
from tests.hosts.agents import AgentCluster

cluster = AgentCluster(Path(sys.argv[1]), agents=2, workers=2, host_timeout=2.0)
cluster.run_batch(0, range(100))
pids = [pid for host in cluster.hosts() for pid in cluster.workers_of(host).values()]
print(*pids, *(agent.process.pid for agent in cluster.agents.values()), flush=True)
sys.stdin.read()
"""


def test_workers_on_all_hosts_end_when_the_driver_is_killed(tmp_path: Path) -> None:
    """Agents have nobody to tell them; they fence themselves, and look for the service."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "state")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert driver.stdout is not None
    assert driver.stdin is not None
    agents: list[int] = []
    with driver.stdout, driver.stdin:
        try:
            *workers, first, second = map(int, driver.stdout.readline().split())
            agents = [first, second]
            driver.kill()
            driver.wait(20)
            with at_most(2.0 + 4.0):
                until(lambda: not any(map(is_alive, workers)), "workers live on", 20)
            assert all(map(is_alive, agents))
        finally:
            driver.kill()
            for pid in agents:
                os.kill(pid, signal.SIGTERM)
    until(lambda: not any(map(is_alive, agents)), "agents live on", 20)


@pytest.mark.soak
def test_an_agent_that_keeps_trying_joins_the_next_service(tmp_path: Path) -> None:
    """At the same address, with the same token: as one that systemd has started."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with AgentCluster(tmp_path / "state", agents=1, port=port) as first:
        agent = Agent(first, 2, "--keep-trying")
        until(lambda: "h2" in first.hosts(), "it was not let in")
        first.run_batch(0, [1, 1])
    until(lambda: "The service has stopped." in agent.said(), "it was not told", 10)
    with AgentCluster(tmp_path / "state", agents=1, port=port) as second:
        until(lambda: "h2" in second.hosts(), "it has not come back", 30)
        assert second.run_batch(1, [1]) == {1: 3}
        agent.end()
        assert agent.process.returncode == 143
