"""Hosts whose agents were started by hand, in a network that fails: Spark runs on the driver only.

The tests share a scene for as long as it is sound: to start one takes longer than a test.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cluster import faults, kinds, sites
from tests.cluster.leftovers import AGENT
from tests.cluster.namespaces import need_namespaces
from tests.cluster.scene import AFTER_TIMEOUT, HOST_TIMEOUT, SMALL_DISK, Scene
from tests.cluster.scenes import JoinedScene, Stage

from anabranch.migration.strategies import STRATEGIES
from anabranch_bench.testbed.workload import SITES

pytestmark = [pytest.mark.netns, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def kind() -> type[Scene]:
    return JoinedScene


@pytest.mark.parametrize(
    "strategy", [s if s == "live" else pytest.param(s, marks=pytest.mark.soak) for s in STRATEGIES]
)
def test_cut_off_for_ever_during_a_move(scene: Scene, strategy: str) -> None:
    """Batches go on without the host; its workers end by themselves, behind the cut."""
    faults.cut_off_during_a_move(scene, strategy)


@pytest.mark.soak
@pytest.mark.parametrize("fault", faults.ALL, ids=lambda fault: fault.__name__)
def test_faults(scene: Scene, fault: Callable[[Scene], None]) -> None:
    fault(scene)


@pytest.mark.soak
def test_an_agent_that_ends_without_a_word(scene: Scene) -> None:
    h1, start = scene.network.hosts["h1"], time.time()
    assert h1.kill(AGENT)
    scene.batches_go_on(start, HOST_TIMEOUT + AFTER_TIMEOUT)
    scene.wait_until("its workers are gone", lambda: not scene.worker_processes("h1"), 10)


@pytest.mark.soak
@pytest.mark.parametrize("options", kinds.OF_STATE, ids=kinds.name_of)
def test_kinds_of_state(tmp_path: Path, options: dict[str, Any]) -> None:
    need_namespaces()
    with JoinedScene(tmp_path, **options) as scene:
        kinds.check(scene, options, AGENT)


@pytest.mark.soak
def test_a_full_disk_under_rocksdb(tmp_path: Path) -> None:
    """Key groups come to a host that cannot keep them: queries end with a clear error, and go on
    once there is room, with nothing lost or doubled."""
    need_namespaces()
    with JoinedScene(tmp_path, backend="rocksdb", state_memory_bytes=64 << 20) as scene:
        host = scene.network.hosts[SMALL_DISK]
        host.fill_disk()
        assert host.free_bytes() < faults.NEARLY_NOTHING
        move = scene.driver.call("move", "rescale", 6)
        error = scene.driver.wait_for("ended", 120)["error"]
        assert "No space left" in error
        assert str(host.disk) in error
        time.sleep(faults.FULL_SECONDS)
        assert host.free_bytes() < faults.NEARLY_NOTHING
        host.free_disk()
        scene.restart_what_ended()
        scene.batches_go_on(time.time(), HOST_TIMEOUT + AFTER_TIMEOUT)
        scene.report(move)
        assert scene.rescale(6)["outcome"] == "done"
        scene.check()


@pytest.mark.soak
def test_a_site_goes_to_its_host_which_is_cut_off_and_returns(tmp_path: Path) -> None:
    need_namespaces()
    with JoinedScene(tmp_path, sites=list(SITES)) as scene:
        assert sites.go_and_come_back(scene) == 1.0, "All lanes are on the driver's host."


@pytest.mark.soak
@pytest.mark.parametrize("end", ["stop", "SIGINT", "SIGKILL"])
def test_nothing_is_left_on_any_host(stage: Stage, end: str) -> None:
    scene = stage.scene()
    scene.check_something_is_there()
    try:
        if end == "stop":
            scene.driver.call("stop_service")
        else:
            scene.driver_host.signal(signal.Signals[end], "driver_program")
        scene.wait_for_nothing(agents_stay=True)
    finally:
        stage.clear()
