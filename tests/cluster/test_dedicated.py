"""Agents in executors of their own, which Spark makes for them by dynamic allocation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from anabranch_bench.testbed.driver import Driver
from anabranch_bench.testbed.hosts import Host
from anabranch_bench.testbed.standalone import EXECUTOR, StandaloneCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ZYGOTE = "anabranch.processes.zygote"
SETTINGS = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "1",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.executor.cores": "1",
}
WAIT = 300


def line_above(pid: int, part: str) -> str:
    """The command line of a process above this one that has some part."""
    while pid > 1:
        line = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        if part in line:
            return line
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return ""


def profile_of(line: str) -> str:
    """The number of the resource profile that an executor was made for; "0": that of lanes."""
    return line.split("--resourceProfileId ")[1].split()[0]


def is_left(host: Host) -> bool:
    return bool(host.find(ZYGOTE))


def test_agents_have_executors_of_their_own(loopback: StandaloneCluster, tmp_path: Path) -> None:
    names = [host.address for host in loopback.workers]
    wanted = {"dedicated": 2, "memory": "1g", "labels": {names[0]: {"rack": "3"}}}
    with Driver(loopback.master, loopback.url, tmp_path, SETTINGS) as driver:
        source: Any = ["anabranch:SparkHosts", wanted]
        driver.call("start_service", workers=2, lanes=2, hosts=source)

        def hosts() -> dict[str, Any]:
            found: dict[str, Any] = driver.call("service", "status")["hosts"]
            return found

        limit = time.monotonic() + WAIT
        while sorted(hosts()) != names:
            assert time.monotonic() < limit, driver.tail()
            time.sleep(0.5)
        assert hosts()[names[0]]["labels"] == {"rack": "3"}
        assert hosts()[names[1]]["labels"] == {}
        assert all(shown["memory_bytes"] == 1 << 30 for shown in hosts().values())
        for host in loopback.workers:
            (zygote,) = host.find(ZYGOTE)
            assert profile_of(line_above(zygote, EXECUTOR)) != "0", "lanes run there too"
        driver.call("start_query", "totals")
        first = driver.wait_for("batch", WAIT)["at"]
        driver.wait_for("batch", WAIT, since=first + 3)
        assert driver.call("check")["wrong"] == []
        driver.call("stop_service")
        limit = time.monotonic() + WAIT
        while any(is_left(host) for host in loopback.workers):
            assert time.monotonic() < limit, driver.tail()
            time.sleep(0.5)
