"""Workers as processes, each behind a cable of its own that can be cut and never healed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cable import Cable
from tests.integration.streaming import MovingCluster

from anabranch.model.ids import HostId
from anabranch.processes.launcher import LocalLauncher, LocalWorker
from anabranch.processes.worker_config import WorkerConfig


class CabledWorker:
    """A worker whose address is that of its cable."""

    def __init__(self, worker: LocalWorker, on_exit: Callable[[str], None]) -> None:
        self._worker = worker
        self._on_exit = on_exit
        self.cable = Cable(worker.address)
        self.is_lost = False

    @property
    def host(self) -> HostId:
        return self._worker.host

    @property
    def address(self) -> str:
        return self.cable.address

    @property
    def pid(self) -> int:
        return self._worker.pid

    def stop(self) -> None:
        if not self.is_lost:
            self._worker.stop()

    def kill(self) -> None:
        if not self.is_lost:
            self._worker.kill()

    def dump(self) -> None:
        pass

    def lose(self) -> None:
        """What the registry does when its host is lost; the process lives on, as a zombie."""
        self.is_lost = True
        self._on_exit("its host is lost.")

    def end(self) -> None:
        """Whatever has become of it."""
        self.is_lost = False
        self._worker.kill()
        self.cable.close()


class CabledLauncher:
    """Starts workers behind cables."""

    def __init__(self) -> None:
        self._local = LocalLauncher()
        self.all: list[CabledWorker] = []
        self.newest: dict[str, CabledWorker] = {}

    def start(
        self, config: WorkerConfig, host: HostId, on_exit: Callable[[str], None]
    ) -> CabledWorker:
        started: list[CabledWorker] = []

        def ended(reason: str) -> None:
            if not started or not started[0].is_lost:
                on_exit(reason)

        started.append(CabledWorker(self._local.start(config, host, ended), on_exit))
        self.all += started
        self.newest[config.worker] = started[0]
        return started[0]

    def close(self) -> None:
        for worker in self.all:
            worker.end()
        self._local.close()


class CabledCluster(MovingCluster):
    """A cluster of them."""

    def __init__(self, folder: Path, workers: int = 2, **settings: Any) -> None:
        self.launcher = CabledLauncher()
        super().__init__(folder, workers, local=lambda: self.launcher, **settings)

    def cut_off(self, worker: str, lost_after: float) -> None:
        """For ever; the coordinator notices after some time, as when no beats come."""
        victim = self.launcher.newest[worker]
        victim.cable.cut()
        time.sleep(lost_after)
        victim.lose()
