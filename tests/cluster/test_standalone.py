"""A real standalone cluster, with the state service on the driver's host."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from anabranch_bench.testbed.driver import Driver
from anabranch_bench.testbed.standalone import EXECUTOR, StandaloneCluster


@pytest.fixture(scope="module")
def driver(
    loopback: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    folder = tmp_path_factory.mktemp("application")
    with Driver(loopback.master, loopback.url, folder) as driver:
        yield driver


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_state_in_the_drivers_machine_and_lanes_on_hosts(
    loopback: StandaloneCluster, driver: Driver
) -> None:
    """Rescaled under load; then a host loses its executor."""
    driver.call(
        "start_service", "driver", workers=2, lanes=4, host=loopback.master.address, tls=True
    )
    driver.call("start_query", "totals")
    driver.wait_for("batch", 120)
    number = driver.call("move", "rescale", 3)
    report = driver.call("report", number, 60)
    assert report["outcome"] == "done", report
    h1 = loopback.workers[0]
    assert h1.kill(EXECUTOR)
    killed = time.time()
    driver.wait_for("batch", 120, since=killed + 5)
    verdict = driver.call("check")
    print(f"{verdict}; gap {driver.longest_gap(killed):.1f} s after the end of an executor")
    assert verdict["wrong"] == []
