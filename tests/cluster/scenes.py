"""Where Spark is in a scene: on the driver's host only, or on all; and how tests share a scene."""

from __future__ import annotations

import secrets
import sys
import time
from contextlib import ExitStack
from typing import Any

import pytest
from tests.cluster.leftovers import AGENT
from tests.cluster.scene import HOST_TIMEOUT, HOSTS, LOOKS, WORKERS, Scene

from anabranch_bench.testbed.driver import Driver
from anabranch_bench.testbed.namespaces import NamespacedHost
from anabranch_bench.testbed.standalone import StandaloneCluster

PORT = 7077
BACK_SECONDS = 15.0
"""For a host to come back by itself."""


class JoinedScene(Scene):
    """Spark on the driver's host only; an agent on each other one, started by hand."""

    def _start_driver(self, closing: ExitStack) -> Driver:
        return Driver(self.driver_host, "local[2]", self.folder / "app")

    def _start_service(self, **more: Any) -> None:
        token = self.folder / "token"
        if not token.exists():
            token.write_text(secrets.token_hex(16))
        source = {"expect": len(HOSTS), "port": PORT, "token_file": str(token)}
        started = self.driver.send(
            "start_service",
            hosts=["anabranch.coordinator.joined_hosts:JoinedHosts", source],
            workers=WORKERS,
            lanes=self.lanes,
            host=self.driver_host.address,
            host_timeout=HOST_TIMEOUT,
            **{**self._options, **more},
        )
        for name in HOSTS:
            self.start_again(self.network.hosts[name])
        started(120)

    def start_again(self, host: NamespacedHost) -> None:
        """As a person at the edge would."""
        if host.find(AGENT):
            return
        words = [sys.executable, "-m", "anabranch.cli.main", "agent", "--keep-trying"]
        words += ["--join", f"{self.driver_host.address}:{PORT}", "--host", host.name]
        words += ["--token-file", str(self.folder / "token")]
        host.start(words, self.folder / f"{host.name}-agent.log")


class SparkScene(Scene):
    """A standalone Spark cluster: executors, lanes and workers are on the hosts."""

    lanes = 4
    cluster: StandaloneCluster

    def _start_driver(self, closing: ExitStack) -> Driver:
        hosts = [self.network.hosts[name] for name in HOSTS]
        self.cluster = StandaloneCluster(self.driver_host, hosts, self.folder)
        closing.enter_context(self.cluster)
        # Agents take no slot of lanes then.
        settings = {"spark.task.cpus": "0.99"}
        return Driver(self.driver_host, self.cluster.url, self.folder / "app", settings)

    def _start_service(self, **more: Any) -> None:
        self.driver.call(
            "start_service",
            workers=WORKERS,
            lanes=self.lanes,
            host=self.driver_host.address,
            host_timeout=HOST_TIMEOUT,
            **{**self._options, **more},
        )

    def check_is_used(self, host: str) -> None:
        super().check_is_used(host)
        before = self._tasks_of(host)
        self.wait_until(f"{host} has run tasks", lambda: self._tasks_of(host) > before, 30)

    def _tasks_of(self, host: str) -> int:
        tasks: dict[str, int] = self.driver.call(f"{LOOKS}:tasks_by_host")
        return tasks.get(host, 0)

    def start_again(self, host: NamespacedHost) -> None:
        """After a long cut Spark's worker and master may not find each other for minutes."""
        limit = time.monotonic() + BACK_SECONDS
        while time.monotonic() < limit:
            if host.name in self.hosts_there():
                return
            time.sleep(0.5)
        host.kill()
        self.cluster.start_worker(host)


class Stage:
    """Makes a scene when there is none that can be used: to start one takes longer than a test."""

    def __init__(self, kind: type[Scene], factory: pytest.TempPathFactory) -> None:
        self._kind, self._factory = kind, factory
        self._closing = ExitStack()
        self._scene: Scene | None = None

    def scene(self) -> Scene:
        """The one that there is, or a new one."""
        if self._scene is None:
            self._scene = self._closing.enter_context(self._kind(self._factory.mktemp("scene")))
        return self._scene

    def clear(self) -> None:
        """The next test gets a new one."""
        self._scene = None
        self._closing.close()
