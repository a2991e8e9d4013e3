"""Clusters for the tests of this folder, each made once and ended with the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.namespaces import need_namespaces
from tests.cluster.record import RECORD
from tests.cluster.scene import Scene
from tests.cluster.scenes import Stage

from anabranch.cli.java import check_java
from anabranch_bench.testbed.loopback import LoopbackHost
from anabranch_bench.testbed.namespaces import Network
from anabranch_bench.testbed.standalone import StandaloneCluster

OUTCOME = pytest.StashKey[str]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """A test ends with its fixtures: scenes are checked there."""
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.when == "setup" or report.failed:
        item.stash[OUTCOME] = report.outcome
    if report.when == "teardown" and item.stash[OUTCOME] != "skipped":
        RECORD.end(item.path.stem, item.name, item.stash[OUTCOME])
    return report  # type: ignore[return-value]


@pytest.fixture(autouse=True)
def _record() -> None:
    RECORD.begin()


@pytest.fixture(scope="session")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two Spark workers on addresses of the loopback interface."""
    check_java()
    folder = tmp_path_factory.mktemp("loopback")
    names = ("driver", "h1", "h2")
    hosts = [LoopbackHost(n, f"127.0.0.{i}", folder) for i, n in enumerate(names, start=1)]
    try:
        with StandaloneCluster(hosts[0], hosts[1:], folder) as cluster:
            yield cluster
    finally:
        for host in hosts:
            host.close()


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """Three hosts in namespaces, and one for the driver."""
    need_namespaces()
    with Network(["driver", "h1", "h2", "h3"], tmp_path, disk_bytes={"h3": 16 << 20}) as network:
        yield network


@pytest.fixture(scope="module")
def stage(kind: type[Scene], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Where the scenes of a module are; it says of which kind they are."""
    need_namespaces()
    check_java()
    stage = Stage(kind, tmp_path_factory)
    yield stage
    stage.clear()


@pytest.fixture
def scene(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A sound one. After the test all is checked, and the scene is made as it was."""
    scene = stage.scene()
    scene.say(f"--- {request.node.name}")
    yield scene
    try:
        scene.check()
        scene.restore()
    except BaseException:
        stage.clear()
        raise
