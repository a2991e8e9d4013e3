"""Requests that name hosts, on real agents: batches stay equal to the oracle's all the time."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.hosts.agents import AgentCluster, until
from tests.integration.streaming import Stream

from anabranch.errors import InvalidArgument, ReconfigurationFailed
from anabranch.migration.strategies import STRATEGIES

pytestmark = pytest.mark.timeout(180)

WAIT = 60


def spread(cluster: AgentCluster) -> dict[str, int]:
    """Workers of each host that is there."""
    shown = cluster.hosts().items()
    return {host: len(facts["workers"]) for host, facts in shown if "lost" not in facts}


def test_rescale_over_hosts_drain_and_back(tmp_path: Path) -> None:
    cluster = AgentCluster(tmp_path / "state", 3, 2, capacities={1: 3, 2: 3, 3: 3})
    with cluster, Stream(cluster) as stream:
        stream.batches(2)
        until(lambda: len(spread(cluster)) == 3, "hosts are missing")
        with pytest.raises(InvalidArgument, match=r"10 workers do not fit: the hosts can hold 9 "):
            cluster.rescale(10)
        assert "ask for 9 or fewer" in str(cluster.rescale(10, dry_run=True))
        with pytest.raises(InvalidArgument, match="There is no host 'h9'; there are h1, h2, h3"):
            cluster.rescale(3, hosts=["h1", "h9"])

        assert cluster.rescale(6, hosts=["h1", "h2", "h3"]).wait(WAIT)
        assert spread(cluster) == {"h1": 2, "h2": 2, "h3": 2}
        stream.batches(2)

        more = cluster.rescale(9)
        assert more.wait(WAIT)
        counters = more.report().counters
        assert counters["bytes_on_host"] > 0
        # 64 key groups cannot be shared out evenly, neither to six nor to nine.
        assert counters["bytes_on_host"] > 3 * counters.get("bytes_across_hosts", 0)
        assert cluster.coordinator.status()["moved_bytes"]["on_host"] >= counters["bytes_on_host"]

        assert cluster.rescale(3, hosts=["h1", "h2"]).wait(WAIT)
        assert Counter(spread(cluster).values()) == Counter([0, 1, 2])
        assert spread(cluster)["h3"] == 0
        stream.batches(2)

        drain = cluster.drain(host="h1")
        assert drain.wait(WAIT)
        assert spread(cluster) == {"h1": 0, "h2": 3, "h3": 0}
        assert drain.report().counters["bytes_across_hosts"] > 0
        with pytest.raises(InvalidArgument, match="h2 is the only host that takes workers"):
            cluster.drain(host="h2")
        stream.batches(2)
        assert cluster.rescale(3, hosts=["h1", "h2", "h3"]).wait(WAIT)
        assert spread(cluster) == {"h1": 1, "h2": 1, "h3": 1}
        stream.batches(2)


@pytest.mark.parametrize(
    ("strategy", "capacity"),
    [
        pytest.param(name, room, marks=() if (name, room) == ("live", 2) else pytest.mark.soak)
        for name in STRATEGIES
        for room in (2, 4)
    ],
)
def test_a_host_that_is_lost_during_its_drain_and_returns(
    tmp_path: Path, strategy: str, capacity: int
) -> None:
    """With room for its workers elsewhere, and without."""
    capacities = dict.fromkeys((1, 2, 3), capacity)
    cluster = AgentCluster(tmp_path / "state", 3, 4, capacities)
    with cluster, Stream(cluster) as stream:
        stream.batches(3)
        leaving = max(spread(cluster), key=lambda host: spread(cluster)[host])
        move = cluster.drain(host=leaving, strategy=strategy, bytes_per_second=20_000)
        cluster.agents[leaving].send(signal.SIGKILL)
        until(lambda: "lost" in cluster.hosts().get(leaving, {}), "nobody has noticed", 15)
        stream.batches(5)
        with suppress(ReconfigurationFailed):  # of stop-restart, if a process did not come back
            assert move.wait(WAIT)
        assert leaving not in spread(cluster)

        cluster.add(int(leaving[1:]), "--capacity", str(capacity))
        until(lambda: leaving in spread(cluster), "the host has not come back")
        assert spread(cluster)[leaving] == 0, "it was drained"
        assert cluster.rescale(4, hosts=["h1", "h2", "h3"]).wait(WAIT)
        assert sorted(spread(cluster).values()) == [1, 1, 2]
        stream.batches(3)


def test_a_host_that_returns_gets_its_share_by_a_rebalance(tmp_path: Path) -> None:
    cluster = AgentCluster(tmp_path / "state", agents=3, workers=3)
    with cluster, Stream(cluster) as stream:
        stream.batches(2)
        cluster.agents["h2"].send(signal.SIGKILL)
        until(lambda: "lost" in cluster.hosts().get("h2", {}), "nobody has noticed", 15)
        stream.batches(2)
        cluster.add(2)
        until(lambda: "h2" in spread(cluster), "the host has not come back")
        assert cluster.rebalance().wait(WAIT)
        assert spread(cluster) == {"h1": 1, "h2": 1, "h3": 1}
        stream.batches(2)
