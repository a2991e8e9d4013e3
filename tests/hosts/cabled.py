"""Hosts with agents, all of whose connections go through cables that can be cut, and stay cut.

A cut host does not reach the coordinator, and nobody reaches its workers. What its workers would
begin with those of other hosts is not cut: nothing tells whose cable that is.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.cable import Cable
from tests.hosts.agents import AgentCluster

from anabranch.coordinator import service_hosts
from anabranch.coordinator.cluster_launcher import ClusterLauncher, RemoteWorker
from anabranch.coordinator.host_registry import HostRegistry
from anabranch.model.ids import HostId
from anabranch.processes.worker_config import WorkerConfig

HOST_TIMEOUT = 3.0


class CabledLauncher(ClusterLauncher):
    """Workers' addresses are those of their cables; they call the coordinator by their host's."""

    def __init__(self, registry: HostRegistry) -> None:
        super().__init__(registry)
        self.lines: dict[str, Cable] = {}
        """From each host to the coordinator."""
        self.cables: defaultdict[str, list[Cable]] = defaultdict(list)
        """To the workers that a host has ever had."""
        self.addresses: dict[str, str] = {}
        """Of the newest process of each worker, as others know it."""

    def start(
        self, config: WorkerConfig, host: HostId, on_exit: Callable[[str], None]
    ) -> RemoteWorker:
        if config.coordinator is not None:
            config = replace(config, coordinator=self.lines[host].address)
        worker = super().start(config, host, on_exit)
        cable = Cable(worker.address)
        self.cables[host].append(cable)
        worker.address = self.addresses[config.worker] = cable.address
        return worker

    def cables_of(self, host: str) -> list[Cable]:
        """To its workers."""
        return list(self.cables[host])


class CabledHosts(AgentCluster):
    """A cluster of them; hosts are lost by silence only, as in a real network."""

    def __init__(self, folder: Path, hosts: int = 3, workers: int = 2, **settings: Any) -> None:
        self.launcher: CabledLauncher

        def make(registry: HostRegistry) -> CabledLauncher:
            self.launcher = CabledLauncher(registry)
            return self.launcher

        with patch.object(service_hosts, "ClusterLauncher", make):
            super().__init__(
                folder / "state",
                0,
                workers,
                expect=hosts,
                host_timeout=HOST_TIMEOUT,
                **settings,
            )
        for number in range(1, hosts + 1):
            line = self.launcher.lines[f"h{number}"] = Cable(self.coordinator.address)
            self.add(number, join=line.address)

    def host_of(self, worker: str) -> str:
        """Where a worker is; empty while it is nowhere."""
        shown = self.coordinator.status()["workers"].get(worker, {})
        return shown.get("host") or ""

    def cut_off(self, host: str, into: bool = True, out_of: bool = True) -> float:
        """For ever, both directions or one; when that was."""
        self.launcher.lines[host].cut(inward=out_of, outward=into)
        for cable in self.launcher.cables_of(host):
            cable.cut(inward=into, outward=out_of)
        return time.monotonic()

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            for cable in (*self.launcher.lines.values(), *chain(*self.launcher.cables.values())):
                cable.close()
