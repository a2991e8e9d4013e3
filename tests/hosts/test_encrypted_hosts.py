"""Hosts that have joined a service with TLS; their tokens, and what is done with revoked ones."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from tests.hosts.agents import Agent, AgentCluster
from tests.integration.streaming import MovingCluster, Stream
from tests.processes import SESSION_MARK

from anabranch.coordinator.service_hosts import ServiceHosts
from anabranch.coordinator.service_workers import ServiceWorkers
from anabranch.errors import InvalidArgument

pytestmark = pytest.mark.timeout(120)

GONE = 2
"""Exit code of an agent that is refused."""


class RevokingCluster(AgentCluster, ServiceWorkers):
    """With the part of a service's interface that revokes tokens."""

    def _hosts(self) -> ServiceHosts:
        return self.coordinator.hosts


def test_state_moves_between_hosts_and_a_host_is_lost(tmp_path: Path) -> None:
    with AgentCluster(tmp_path / "state", tls=True) as cluster, Stream(cluster) as stream:
        stream.batches(3)
        assert all(len(host["workers"]) == 1 for host in cluster.hosts().values())
        assert cluster.rescale(3).wait(60)
        stream.batches(2)
        cluster.agents["h2"].send(signal.SIGKILL)
        stream.batches(3)
        assert cluster.rescale(2).wait(60)
        stream.batches(2)
        found = secrets_of(cluster)
        assert not [
            where for where, text in places(cluster).items() if any(s in text for s in found)
        ]


def secrets_of(cluster: AgentCluster) -> list[bytes]:
    """Keys and tokens; the join token is in its file, and nowhere else."""
    access = cluster.coordinator.access
    assert access.certificate is not None
    return [
        access.certificate.key.splitlines()[1],
        access.credentials.token.encode(),
        access.credentials.for_lanes().token.encode(),
        cluster.token_file.read_bytes().strip(),
    ]


def places(cluster: AgentCluster) -> dict[str, bytes]:
    """Command lines and environments of this session, logs of agents, the state location."""
    found = {str(path): path.read_bytes() for path in cluster.folder.rglob("*") if path.is_file()}
    for agent in cluster.agents.values():
        found[str(agent.log)] = agent.log.read_bytes()
    mark, agents = f"{SESSION_MARK}={os.environ[SESSION_MARK]}".encode(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if mark in environment:
            agents += b"--token-file" in command
            found[f"process {process.name}"] = environment + command
    assert agents
    return found


def test_agents_of_a_revoked_token_leave_and_a_new_token_lets_them_join(tmp_path: Path) -> None:
    with RevokingCluster(tmp_path / "state", tls=True) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        before = cluster.token_file.read_text()
        copied = tmp_path / "copied.token"
        copied.write_text(before)
        cluster.revoke_join_token()
        assert cluster.token_file.read_text() != before
        assert cluster.token_file.stat().st_mode & 0o077 == 0
        for agent in cluster.agents.values():
            assert agent.process.wait(20) == GONE
            assert "revoked" in agent.said()
        stale = Agent(cluster, 3, "--token-file", str(copied))
        assert stale.process.wait(30) == GONE
        assert "revoked" in stale.said()
        assert "h3" not in cluster.hosts()
        cluster.add(4)
        stream.batches(3)
        assert sorted(cluster.hosts()["h4"]["workers"]) == ["w1", "w2"]


def test_a_token_file_serves_the_next_run_too(tmp_path: Path) -> None:
    """Its certificates are others, and agents find out whom to trust by the token."""
    folder = tmp_path / "state"
    with AgentCluster(folder, agents=1, tls=True) as first:
        first.run_batch(0, [1, 1])
        token, trusted = first.token_file.read_text(), first.coordinator.access.credentials
    with AgentCluster(folder, agents=1, tls=True) as second:
        assert second.token_file.read_text() == token
        assert second.coordinator.access.credentials != trusted
        assert second.run_batch(1, [1]) == {1: 3}


def test_a_service_without_joined_hosts_has_no_token_to_revoke(tmp_path: Path) -> None:
    with (
        MovingCluster(tmp_path, workers=1) as cluster,
        pytest.raises(InvalidArgument, match="driver's machine"),
    ):
        cluster.coordinator.hosts.revoke_join_token()
