"""A site's state goes to the site's host, is elsewhere while the host is lost, and comes back."""

from __future__ import annotations

import time
from typing import Any

from tests.cluster.scene import AFTER_TIMEOUT, HOST_TIMEOUT, Scene

BACK_SECONDS = 60.0


def go_and_come_back(scene: Scene) -> float:
    """The share of the traffic that has crossed hosts."""
    scene.driver.call("start_query", "sites")
    scene.driver.wait_for("batch", 120, query="sites", number=3)
    place = scene.driver.call("move", "place", "berlin", on="h2")
    assert scene.report(place)["outcome"] == "done"
    assert _site(scene)["hosts"] == ["h2"]
    start = time.time()
    scene.network.cut("h2")
    scene.batches_go_on(start, HOST_TIMEOUT + AFTER_TIMEOUT)
    scene.driver.wait_for("batch", 60, since=start + HOST_TIMEOUT + AFTER_TIMEOUT, query="sites")
    scene.wait_until("berlin is elsewhere", lambda: not _site(scene)["is_there"], 30)
    scene.check()
    scene.network.heal("h2")
    scene.start_again(scene.network.hosts["h2"])
    scene.wait_until("berlin is back", lambda: _site(scene)["hosts"] == ["h2"], BACK_SECONDS)
    scene.driver.wait_for("batch", 60, since=time.time(), query="sites")
    scene.check()
    traffic = scene.status()["operators"]["sites"]["traffic"]
    scene.say(f"traffic: {traffic}")
    share: float = traffic["share_across_hosts"]
    return share


def _site(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any] = scene.status()["sites"]["berlin"]
    return found
