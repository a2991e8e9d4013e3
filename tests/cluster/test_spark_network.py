"""State on the hosts of a real Spark cluster, in a network that fails.

Here lanes run on the hosts that fail, and Spark runs their tasks again elsewhere.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest
from tests.cluster import faults
from tests.cluster.scene import (
    AFTER_TIMEOUT,
    FENCED_SECONDS,
    HOST_TIMEOUT,
    HOSTS,
    ZYGOTE,
    Scene,
    SparkScene,
    Stage,
)

from anabranch.migration.strategies import STRATEGIES
from anabranch_bench.testbed.standalone import EXECUTOR, MASTER
from anabranch_bench.testbed.standalone import WORKER as SPARK_WORKER

pytestmark = [pytest.mark.netns, pytest.mark.soak, pytest.mark.timeout(1200)]

LIMIT = HOST_TIMEOUT + AFTER_TIMEOUT


@pytest.fixture(scope="module")
def kind() -> type[Scene]:
    return SparkScene


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cut_off_for_ever_during_a_move(scene: Scene, strategy: str) -> None:
    """Its workers own key groups, lanes run on it, and a move is under way."""
    faults.cut_off_during_a_move(scene, strategy)


@pytest.mark.parametrize("fault", faults.ALL, ids=lambda fault: fault.__name__)
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
    for number in range(5):
        start = time.time()
        scene.network.hosts[HOSTS[number % 3]].kill(EXECUTOR)
        scene.batches_go_on(start, 3 * LIMIT)  # new executors start cold
        everyone = set(HOSTS)
        scene.wait_until("all are back", lambda: scene.hosts_there() == everyone, 60)  # noqa: B023
    agents = {host: len(scene.network.hosts[host].find(ZYGOTE)) for host in HOSTS}
    assert set(agents.values()) == {1}, agents


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rescaled_across_hosts_under_load(scene: Scene, strategy: str) -> None:
    """2 -> 6 -> 3, then a host is drained, another is lost meanwhile, and both come back."""
    for workers in (2, 6, 3):
        report = scene.rescale(workers, strategy=strategy)
        assert report["outcome"] == "done"
        scene.say(f"{scene.hosts_of_workers()}, pause {report['pause_seconds']:.2f} s")
    drain = scene.driver.call("move", "drain", host="h2", strategy=strategy)
    start = time.time()
    scene.network.hosts["h3"].kill(EXECUTOR)
    scene.batches_go_on(start, LIMIT)
    scene.report(drain)
    assert "h2" not in scene.hosts_of_workers().values()


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
