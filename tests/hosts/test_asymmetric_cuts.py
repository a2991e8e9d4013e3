"""Lanes of a host do not reach a worker that the coordinator reaches: a relay, or votes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.harness import Cluster, Oracle
from tests.integration.streaming import keys_of

from anabranch.coordinator import coordinator as coordinator_module
from anabranch.coordinator.service_hosts import ServiceHosts
from anabranch.errors import NotReachable
from anabranch.model.ids import HostId
from anabranch.protocol.coordinator_messages import HostJoined
from anabranch.spark import lane as lane_module
from anabranch.transport.client import Exchange, Peer
from anabranch.transport.messages.lanes import TransactionHeader

HOSTS = ("h1", "h2", "h3")
LANES = (*HOSTS, "h1")
"""Their number is not that of the workers: each lane turns to all of them."""
HERE = threading.local()
"""The host of the lane that runs in a thread."""


class ThreeHosts(ServiceHosts):
    """Three hosts of two workers each; in truth all is here."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.present = [HostJoined(HostId(host), 2, {}) for host in HOSTS]

    def host_of(self, names: Sequence[str]) -> HostId | None:
        return HostId(names[0])


class HostedLanes(Cluster):
    """Each lane is on a host; ways between hosts can be cut."""

    def __init__(self, folder: Path) -> None:
        self.cuts: set[tuple[str, str]] = set()
        self.tried: list[tuple[str, str]] = []
        """Host of a lane, and worker that it turned to."""
        super().__init__(folder, 3)

    def run_lane(self, epoch: int, lane: int, *more: Any, **named: Any) -> list[dict[str, Any]]:
        HERE.host = LANES[lane]
        return super().run_lane(epoch, lane, *more, **named)

    def host_of(self, worker: str) -> str:
        found = self.coordinator._machine.fleet.workers[worker].host  # type: ignore[index]
        assert found is not None
        return found

    def cut(self, lane_host: str, worker: str) -> None:
        self.cuts.add((lane_host, self.host_of(worker)))

    def incarnation(self, worker: str) -> int:
        return self.coordinator._machine.fleet.workers[worker].incarnation  # type: ignore[index]


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> list[HostedLanes]:
    made: list[HostedLanes] = []

    class CutPeer(Peer):
        def exchange(self, header: TransactionHeader) -> Exchange:
            cluster, worker = made[0], self.name.removeprefix("Worker ")
            cluster.tried.append((HERE.host, worker))
            if (HERE.host, cluster.host_of(worker)) in cluster.cuts:
                error = NotReachable(f"{self.name} is cut off")
                error.address, error.is_cut = self.address, True
                raise error
            return super().exchange(header)

    monkeypatch.setattr(coordinator_module, "ServiceHosts", ThreeHosts)
    monkeypatch.setattr(lane_module, "Peer", CutPeer)
    monkeypatch.setattr(lane_module, "host_names", lambda _: (HERE.host,))
    return made


def test_a_relay_passes_rows_on(tmp_path: Path, hosted: list[HostedLanes]) -> None:
    """One host of three does not reach a worker, in both batches: the second asks the relay."""
    with HostedLanes(tmp_path) as cluster:
        hosted.append(cluster)
        oracle = Oracle()
        assert cluster.run_batch(0, keys_of(0), 4) == oracle.run_batch(keys_of(0))
        far = next(w for w in ("w1", "w2", "w3") if cluster.host_of(w) != "h1")
        before = cluster.incarnation(far)
        cluster.cut("h1", far)
        for epoch in range(1, 4):
            cluster.tried.clear()
            found = cluster.run_batch(epoch, keys_of(epoch), 4)
            assert found == oracle.run_batch(keys_of(epoch))
        assert ("h1", far) not in cluster.tried, "the relay is known by now"
        assert cluster.incarnation(far) == before, "the others reach it"


def test_what_most_hosts_do_not_reach_is_replaced(
    tmp_path: Path, hosted: list[HostedLanes]
) -> None:
    with HostedLanes(tmp_path) as cluster:
        hosted.append(cluster)
        oracle = Oracle()
        assert cluster.run_batch(0, keys_of(0), 4) == oracle.run_batch(keys_of(0))
        far = next(w for w in ("w1", "w2", "w3") if cluster.host_of(w) == "h3")
        before = cluster.incarnation(far)
        cluster.cut("h1", far)
        cluster.cut("h2", far)
        for epoch in range(1, 4):
            found = cluster.run_batch(epoch, keys_of(epoch), 4)
            assert found == oracle.run_batch(keys_of(epoch))
        assert cluster.incarnation(far) > before
        assert cluster.host_of(far) != "h3"


def test_lanes_and_a_worker_that_only_the_driver_misses(
    tmp_path: Path, hosted: list[HostedLanes]
) -> None:
    """A lane does not reach a worker, and the coordinator neither: it is gone, and replaced."""
    with HostedLanes(tmp_path) as cluster:
        hosted.append(cluster)
        oracle = Oracle()
        assert cluster.run_batch(0, keys_of(0), 4) == oracle.run_batch(keys_of(0))
        cluster.coordinator._pool.replace("w1", None, "a test")  # type: ignore[arg-type]
        assert cluster.run_batch(1, keys_of(1), 4) == oracle.run_batch(keys_of(1))
