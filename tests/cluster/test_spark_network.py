"""State on the hosts of a real Spark cluster, in a network that fails.

Here lanes run on the hosts that fail, and Spark runs their tasks again elsewhere.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import faults, kinds, sites
from tests.cluster.namespaces import need_namespaces
from tests.cluster.scene import (
    AFTER_TIMEOUT,
    FENCED_SECONDS,
    HOST_TIMEOUT,
    HOSTS,
    LOOKS,
    MOVE_BYTES_PER_SECOND,
    QUERIES,
    ZYGOTE,
    Scene,
)
from tests.cluster.scenes import SparkScene, Stage

from anabranch.migration.strategies import STRATEGIES
from anabranch_bench.testbed.standalone import EXECUTOR, MASTER
from anabranch_bench.testbed.standalone import WORKER as SPARK_WORKER
from anabranch_bench.testbed.workload import SITES

pytestmark = [pytest.mark.netns, pytest.mark.soak, pytest.mark.timeout(1200)]

LIMIT = HOST_TIMEOUT + AFTER_TIMEOUT
PAUSE_SECONDS_MAX = dict.fromkeys(STRATEGIES, 1.0) | {"pause": 3.0, "stop-restart": 15.0}
"""The longest time that a batch may wait for a move, beyond the usual time between two batches;
these two hold batches back on purpose."""


@pytest.fixture(scope="module")
def kind() -> type[Scene]:
    return SparkScene


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cut_off_for_ever_during_a_move(scene: Scene, strategy: str) -> None:
    """Its workers own key groups, lanes run on it, and a move is under way."""
    faults.cut_off_during_a_move(scene, strategy)


@pytest.mark.parametrize(
    "fault", [*faults.ALL, *faults.BETWEEN_HOSTS], ids=lambda fault: fault.__name__
)
def test_faults(scene: Scene, fault: Callable[[Scene], None]) -> None:
    fault(scene)


@pytest.mark.parametrize("who", ["executor", "agent", "Spark worker"])
def test_killed_on_a_host(scene: Scene, who: str) -> None:
    """kill -9."""
    h1, start = scene.network.hosts["h1"], time.time()
    if who == "agent":
        for pid in h1.parents(ZYGOTE):
            os.kill(pid, signal.SIGKILL)
    else:
        assert h1.kill(EXECUTOR if who == "executor" else SPARK_WORKER)
    scene.batches_go_on(start, LIMIT)
    assert set(scene.worker_processes("h1")) or "h1" not in scene.hosts_of_workers().values()


def test_master_killed(stage: Stage) -> None:
    """The application does not need it. A new master without recovery would end its executors."""
    scene = stage.scene()
    try:
        start = time.time()
        assert scene.driver_host.kill(MASTER)
        scene.batches_go_on(start, LIMIT)
        scene.check()
    finally:
        stage.clear()


def test_four_lost_hosts_do_not_end_the_application(scene: Scene) -> None:
    """Spark counts lost executors as failures of their tasks; four end a job."""
    for name in (*HOSTS, HOSTS[0]):
        scene.check_is_used(name)
        start = time.time()
        scene.network.cut(name)
        scene.batches_go_on(start, LIMIT)
        scene.wait_until_lost(name)
        scene.wait_fenced(name)
        scene.network.heal(name)
        scene.start_again(scene.network.hosts[name])
        scene.wait_until(f"{name} is back", lambda: is_everybody_there(scene), 120)
        scene.report(scene.driver.call("move", "rebalance"))


def is_everybody_there(scene: Scene) -> bool:
    """And meanwhile no host has two agents."""
    agents = {host: len(scene.network.hosts[host].find(ZYGOTE)) for host in HOSTS}
    assert max(agents.values()) <= 1, f"Agents: {agents}"
    return scene.hosts_there() == set(HOSTS) and set(agents.values()) == {1}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rescaled_across_hosts_under_load(scene: Scene, strategy: str) -> None:
    """2 -> 6 -> 3, without a pause that a user would see."""
    for workers in (2, 6, 3):
        usual = max(scene.driver.longest_gap(time.time() - 10.0, query) for query in QUERIES)
        report = scene.rescale(workers, strategy=strategy)
        assert report["outcome"] == "done"
        pause, most = report["pause_seconds"], PAUSE_SECONDS_MAX[strategy] + usual
        scene.say(f"{scene.hosts_of_workers()}, pause {pause:.2f} s, batches every {usual:.2f} s")
        assert pause < most, f"A batch waited for {pause:.2f} s instead of at most {most:.2f}."


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_drained_while_another_host_is_lost(scene: Scene, strategy: str) -> None:
    """The lost one returns and gets its share by a rebalance; the drained one when it is named."""
    scene.check_is_used("h2")
    drain = scene.driver.call(
        "move", "drain", host="h2", strategy=strategy, bytes_per_second=MOVE_BYTES_PER_SECOND
    )
    start = time.time()
    assert scene.network.hosts["h3"].kill(EXECUTOR)
    assert not scene.driver.call(f"{LOOKS}:move_state", drain)["is_over"], "It was over before."
    scene.batches_go_on(start, LIMIT)
    scene.report(drain)
    assert "h2" not in scene.hosts_of_workers().values()
    scene.wait_until("h3 is back", lambda: "h3" in scene.hosts_there(), 60)
    balanced = scene.report(scene.driver.call("move", "rebalance"))
    assert balanced["outcome"] == "done"
    assert set(scene.hosts_of_workers().values()) == {"h1", "h3"}
    assert scene.key_groups_of("h1") > 0 < scene.key_groups_of("h3")
    scene.rescale(3, hosts=list(HOSTS))
    assert set(scene.hosts_of_workers().values()) == set(HOSTS)
    assert scene.key_groups_of("h2") > 0


@pytest.mark.parametrize("options", kinds.OF_STATE[:3], ids=kinds.name_of)
def test_kinds_of_state(tmp_path: Path, options: dict[str, Any]) -> None:
    """Lanes and the tasks of the reader are on the hosts, too."""
    need_namespaces()
    with SparkScene(tmp_path, **options) as scene:
        kinds.check(scene, options, EXECUTOR)


def test_a_site_goes_to_its_host_which_is_cut_off_and_returns(tmp_path: Path) -> None:
    need_namespaces()
    with SparkScene(tmp_path, sites=list(SITES)) as scene:
        share = sites.go_and_come_back(scene)
        assert 0 < share < 1, "Some lanes are on the host of a site, and some elsewhere."


@pytest.mark.parametrize("end", ["stop", "cancelAllJobs", "SIGINT", "SIGKILL"])
def test_nothing_is_left_on_any_host(stage: Stage, end: str) -> None:
    scene = stage.scene()
    scene.check_something_is_there()
    before = {host: set(scene.worker_processes(host)) for host in HOSTS}
    try:
        if end == "stop":
            scene.driver.call("stop_service")
        elif end == "cancelAllJobs":
            scene.driver.call("cancel_all_jobs")
            for host in HOSTS:
                scene.wait_until(
                    f"workers of before are gone from {host}",
                    lambda host=host: before[host].isdisjoint(scene.worker_processes(host)),  # type: ignore[misc]
                    FENCED_SECONDS,
                )
            scene.driver.call("stop_service")
        else:
            scene.driver_host.signal(signal.Signals[end], "driver_program")
        scene.wait_for_nothing()
    finally:
        stage.clear()
