"""Sites on hosts with agents: they go to their host as a whole, and come back after it."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.hosts.agents import WAIT, AgentCluster, until
from tests.integration.harness import KEYSPACE
from tests.integration.streaming import Stream

from anabranch.coordinator.service_sites import ServiceSites
from anabranch.coordinator.site_keeper import SiteKeeper
from anabranch.processor.sites import Sites

pytestmark = pytest.mark.timeout(180)


class SiteCluster(ServiceSites, AgentCluster):
    """Its operator knows nothing of sites: their key groups are all that counts for moves."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__(folder, **settings)
        sites = Sites.first(["berlin", "paris"], KEYSPACE.groups)
        self.keeper = SiteKeeper(self.coordinator, sites, self.store)

    def site(self, name: str = "berlin") -> dict[str, Any]:
        return self.keeper.describe()[name]

    def stop(self) -> None:
        self.keeper.stop()
        super().stop()


def test_a_site_goes_to_its_host_and_comes_back_after_it(tmp_path: Path) -> None:
    cluster = SiteCluster(tmp_path / "state", agents=3, workers=3)
    with cluster, Stream(cluster) as stream:
        stream.batches(2)
        # 1. Placed, live, while a worker of the target is killed.
        assert len(cluster.site()["hosts"]) == 3
        move = cluster.place("berlin", "h2")
        (target,) = cluster.hosts()["h2"]["workers"]
        os.kill(cluster.coordinator.pids()[target], signal.SIGKILL)
        assert move.wait(WAIT)
        stream.until(lambda: cluster.site()["hosts"] == ["h2"])
        assert cluster.site()["is_there"]
        # 2. A rescale leaves it there, and spreads it over the workers of its host.
        assert cluster.rescale(6).wait(WAIT)
        assert cluster.site()["hosts"] == ["h2"]
        assert len(cluster.site()["workers"]) == 2
        # 3. Its host is lost: it is elsewhere. The host returns, and so does it.
        cluster.agents["h2"].send(signal.SIGKILL)
        stream.until(lambda: not cluster.site()["is_there"])
        stream.batches(3)
        cluster.add(2)
        stream.until(lambda: cluster.site()["hosts"] == ["h2"], WAIT)
        stream.batches(2)
        assert len(cluster.workers()) == 6


def test_a_label_attracts_its_site(tmp_path: Path) -> None:
    cluster = SiteCluster(tmp_path / "state", agents=2, workers=2)
    with cluster, Stream(cluster) as stream:
        stream.batches(2)
        assert cluster.site("paris")["hosts"] == ["h1", "h2"]
        cluster.add(3, "--label", "site=paris")
        stream.until(lambda: cluster.site("paris")["hosts"] == ["h3"])
        assert cluster.site("paris")["belongs_to"] == "site=paris"
        assert cluster.site("berlin")["belongs_to"] is None
        # A drained host lets it go, and a request that names the host brings it back.
        assert cluster.drain(host="h3").wait(WAIT)
        assert "h3" not in cluster.site("paris")["hosts"]
        assert cluster.rescale(3, hosts=["h1", "h2", "h3"]).wait(WAIT)
        until(lambda: cluster.site("paris")["hosts"] == ["h3"], "it has not come back")
        stream.batches(2)
