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
from tests.cluster import faults
from tests.cluster.leftovers import AGENT
from tests.cluster.scene import (
    AFTER_TIMEOUT,
    HOST_TIMEOUT,
    JoinedScene,
    Scene,
    Stage,
)

from anabranch.migration.strategies import STRATEGIES
from anabranch_bench.testbed.namespaces import why_not
from anabranch_bench.testbed.workload import CUSTOMERS

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
@pytest.mark.parametrize(
    "options",
    [
        {"backend": "rocksdb", "state_memory_bytes": 64 << 20},
        {"state": "hybrid", "state_memory_bytes": 1 << 20},
        {"state": "remote"},
        {"checkpoint": "full"},
        {"checkpoint": "unaligned"},
        {"checkpoint": "independent", "snapshot_seconds": 5},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_kinds_of_state(tmp_path: Path, options: dict[str, Any]) -> None:
    """Out and in over hosts, a savepoint, the reader, and the loss of a host."""
    if reason := why_not():
        pytest.skip(reason)
    with JoinedScene(tmp_path, **options) as scene:
        assert scene.rescale(5)["outcome"] == "done"
        scene.check()
        scene.driver.call("service", "savepoint", "across")
        start = time.time()
        assert scene.network.hosts["h1"].kill(AGENT)
        scene.batches_go_on(start, HOST_TIMEOUT + AFTER_TIMEOUT)
        assert scene.rescale(2)["outcome"] == "done"
        scene.check()
        if options.get("checkpoint") not in ("unaligned", "independent"):
            assert scene.driver.call("read_state", "totals") == CUSTOMERS


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
