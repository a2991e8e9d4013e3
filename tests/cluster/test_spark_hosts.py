"""Spark carries agents: on every host one, without a slot, again after whatever ends them."""

from __future__ import annotations

import glob
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.leftovers import left_on, wait_for_nothing

from anabranch_bench.testbed.driver import Driver
from anabranch_bench.testbed.hosts import Host
from anabranch_bench.testbed.standalone import EXECUTOR, StandaloneCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ZYGOTE = "anabranch.processes.zygote"
WORKER = "anabranch worker"


@pytest.fixture(scope="module")
def driver(
    loopback: StandaloneCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """A service with the defaults of a cluster, state on disk, and TLS as beyond loopback."""
    folder = tmp_path_factory.mktemp("application")
    with Driver(loopback.master, loopback.url, folder, {"spark.task.cpus": "0.99"}) as driver:
        driver.call("start_service", workers=4, lanes=4, backend="rocksdb", tls=True)
        until(lambda: all_up(driver), driver)
        yield driver


def status(driver: Driver) -> dict[str, Any]:
    found: dict[str, Any] = driver.call("service", "status")
    return found


def all_up(driver: Driver) -> bool:
    return all(shown["status"] == "up" for shown in status(driver)["workers"].values())


def agents(driver: Driver) -> dict[str, str]:
    """Carriers of the hosts that are there."""
    hosts = status(driver)["hosts"]
    return {host: shown["carrier"] for host, shown in hosts.items() if "lost" not in shown}


def until(condition: Callable[[], object], driver: Driver, seconds: float = 120) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, driver.tail()
        time.sleep(0.2)


def others_after(seen: set[str], driver: Driver) -> set[str]:
    """Carriers of both hosts, when those that were seen have gone."""
    until(lambda: seen.isdisjoint(agents(driver).values()), driver)
    until(lambda: len(agents(driver)) == 2 and all_up(driver), driver)
    return set(agents(driver).values())


def state_on_disk(host: Host) -> list[str]:
    """Files of RocksDB in the folder that Spark has given the host's executor."""
    pattern = f"{host.disk}/**/blockmgr-*/anabranch-scratch-*/**/CURRENT"
    return glob.glob(pattern, recursive=True)  # not Path.glob: folders may go meanwhile


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kill_agent(host: Host) -> None:
    """The Python process of the task; its workers end with it."""
    (zygote,) = host.find(ZYGOTE)
    os.kill(parent(zygote), signal.SIGKILL)


def test_each_host_of_executors_has_an_agent(loopback: StandaloneCluster, driver: Driver) -> None:
    hosts = status(driver)["hosts"]
    assert sorted(hosts) == sorted(host.address for host in loopback.workers)
    for host in loopback.workers:
        shown = hosts[host.address]
        assert shown["carrier"].startswith("spark")
        assert shown["address"] == host.address
        assert len(shown["workers"]) == 2
        assert len(host.find(WORKER)) == 2


def test_agents_take_no_slots(driver: Driver) -> None:
    assert driver.call("tasks_at_a_time", 4, 60.0) == 4


def test_agents_come_again(loopback: StandaloneCluster, driver: Driver) -> None:
    """Four lost agents end no application; there is one agent on each host, never a second."""
    seen = set(agents(driver).values())
    driver.call("cancel_all_jobs")
    seen |= others_after(seen, driver)
    for _ in range(2):
        for host in loopback.workers:
            kill_agent(host)
        seen |= others_after(seen, driver)
    assert len(seen) == 2 + 2 + 4
    for host in loopback.workers:
        assert len(host.find(ZYGOTE)) == 1


def test_the_end_of_an_executor_and_a_host_that_hangs(
    loopback: StandaloneCluster, driver: Driver
) -> None:
    driver.call("start_query", "totals")
    driver.wait_for("batch", 120)
    h1, h2 = loopback.workers
    assert h1.kill(EXECUTOR)
    killed = time.time()
    driver.wait_for("batch", 120, since=killed + 5)
    until(lambda: len(agents(driver)) == 2, driver)
    report = driver.call("report", driver.call("move", "rebalance"), 120)
    assert report["outcome"] == "done", report
    assert report["counters"]["bytes_across_hosts"] > 0
    until(lambda: all_up(driver), driver)
    assert {len(shown["workers"]) for shown in status(driver)["hosts"].values()} == {2}
    until(lambda: [len(state_on_disk(host)) for host in (h1, h2)] == [2, 2], driver)

    h2.hang()
    hung = time.time()
    try:
        driver.wait_for("batch", 100, since=hung + 11)
        gap = driver.longest_gap(hung)
    finally:
        h2.go_on()
    print(f"gap {gap:.1f} s; Spark by itself waits 120 s")
    until(lambda: len(agents(driver)) == 2, driver)
    driver.wait_for("batch", 120, since=time.time())
    assert driver.call("check")["wrong"] == []


def test_nothing_is_left(loopback: StandaloneCluster, driver: Driver, tmp_path: Path) -> None:
    """Neither by a service that is stopped, nor by a driver that is killed."""

    assert all(left_on(host) for host in loopback.workers)
    driver.call("stop_service")
    wait_for_nothing(loopback.workers, 20)
    assert not state_on_disk(loopback.workers[0])
    wanted = tmp_path / "data" / "state"
    driver.call("start_service", workers=2, lanes=2, backend="rocksdb", local_dir=str(wanted))
    until(lambda: all_up(driver), driver)
    assert all(left_on(host) for host in loopback.workers)
    assert wanted.is_dir(), "agents have not made the folder"
    driver.kill()
    wait_for_nothing(loopback.workers, 40)
