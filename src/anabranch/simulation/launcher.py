"""How the coordinator starts and ends worker processes, with no host but the driver's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from anabranch.model.ids import WorkerId
from anabranch.protocol import coordinator as protocol

if TYPE_CHECKING:
    from anabranch.simulation.coordinator import CoordinatorProcess

START_TICKS, INSTALL_TICKS = 8, 12


class SimulatedLauncher(Protocol):
    """Carries out what the coordinator decides about processes."""

    def start(self, effect: protocol.StartWorker) -> None:
        """Start a process; the coordinator hears when it has, or that it did not."""

    def stop(self, effect: protocol.StopWorker) -> None:
        """End a process."""

    def down(self, event: protocol.WorkerDown) -> None:
        """The coordinator takes a process for gone."""


class DriverLauncher:
    """Starts processes beside the coordinator."""

    __slots__ = ("coordinator", "stopped")

    def __init__(self, coordinator: CoordinatorProcess) -> None:
        self.coordinator = coordinator
        self.stopped: set[tuple[WorkerId, int]] = set()

    def start(self, effect: protocol.StartWorker) -> None:
        """After a while there is a process."""
        scheduler = self.coordinator.cluster.scheduler
        label = f"start {effect.worker}.{effect.incarnation}"
        scheduler.after(scheduler.delay(START_TICKS), label, self._start, effect)

    def _start(self, effect: protocol.StartWorker) -> None:
        coordinator, started = self.coordinator, (effect.worker, effect.incarnation)
        if not coordinator.is_alive or started in self.stopped:
            return
        cluster = coordinator.cluster
        if cluster.faults.start_fails(effect.worker):
            reason = "simulated failure to start."
            coordinator.handle(protocol.WorkerDown(*started, reason))
            return
        cluster.start_worker(*started, coordinator.host, coordinator)
        event = protocol.WorkerStarted(*started)
        label = f"{effect.worker}.{effect.incarnation} has started"
        delay = cluster.scheduler.delay(INSTALL_TICKS)
        cluster.scheduler.after(delay, label, coordinator.handle, event)

    def stop(self, effect: protocol.StopWorker) -> None:
        """After a while it is gone."""
        cluster = self.coordinator.cluster
        self.stopped.add((effect.worker, effect.incarnation))
        process = cluster.process(effect.worker, effect.incarnation)
        if process is not None:
            delay = cluster.scheduler.delay(START_TICKS)
            cluster.scheduler.after(delay, f"{process.name} is stopped", process.crash)

    def down(self, event: protocol.WorkerDown) -> None:
        """Whoever talks to it notices by itself."""
