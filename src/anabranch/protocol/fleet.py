"""The workers as the coordinator knows them: starting, up, given up; added and taken away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from anabranch.model.ids import WorkerId
from anabranch.protocol.coordinator_messages import (
    Effect,
    StartWorker,
    StopWorker,
    WorkerDown,
    WorkerStarted,
)

STARTS_MAX = 3
"""Starts in a row that may fail before a worker is given up."""


class WorkerPhase(Enum):
    """A worker process as the coordinator knows it."""

    STARTING = "starting"
    UP = "up"
    FAILED = "failed"


@dataclass(slots=True)
class WorkerView:
    """One worker."""

    phase: WorkerPhase = WorkerPhase.STARTING
    incarnation: int = 0
    restarts: int = 0
    """How often a process that was gone was replaced."""
    failed_starts: int = 0
    reason: str = ""
    grant: int | None = None
    """The order that tells a process that has started what it owns; None: not sent, or done."""


@dataclass(slots=True)
class Fleet:
    """All workers."""

    workers: dict[WorkerId, WorkerView] = field(default_factory=dict)
    retired: dict[WorkerId, int] = field(default_factory=dict)
    """Next incarnation of workers that are gone: a name that comes back is another process."""

    def start(self, workers: Iterable[WorkerId]) -> list[Effect]:
        """Start workers that are not there; give those that were given up another chance."""
        effects: list[Effect] = []
        for worker in workers:
            view = self.workers.get(worker)
            if view is None:
                view = WorkerView(incarnation=self.retired.pop(worker, 0))
            elif view.phase is WorkerPhase.FAILED:
                view = WorkerView(incarnation=view.incarnation + 1)
            else:
                continue
            self.workers[worker] = view
            effects.append(StartWorker(worker, view.incarnation))
        return effects

    def restart(self, keep: Iterable[WorkerId]) -> list[Effect]:
        """End all workers and start those that are kept."""
        kept = set(keep)
        effects: list[Effect] = []
        for worker, view in list(self.workers.items()):
            if view.phase is not WorkerPhase.FAILED:
                effects.append(StopWorker(worker, view.incarnation))
            if worker in kept:
                fresh = self.workers[worker] = WorkerView(incarnation=view.incarnation + 1)
                effects.append(StartWorker(worker, fresh.incarnation))
            else:
                self.retired[worker] = view.incarnation + 1
                del self.workers[worker]
        return effects

    def stop(self, worker: WorkerId) -> list[Effect]:
        """End a worker for good."""
        view = self.workers.pop(worker)
        self.retired[worker] = view.incarnation + 1
        if view.phase is WorkerPhase.FAILED:
            return []
        return [StopWorker(worker, view.incarnation)]

    def started(self, event: WorkerStarted, grant: int) -> bool:
        """A process runs: `grant` is the order that tells it what it owns.

        False if it was told before, or was replaced or given up meanwhile.
        """
        view = self.workers.get(event.worker)
        if view is None or view.incarnation != event.incarnation:
            return False
        if view.phase is not WorkerPhase.STARTING or view.grant is not None:
            return False
        view.grant = grant
        return True

    def granted_by(self, order: int) -> WorkerId | None:
        """The worker that an order tells what it owns; None: it is an order of a move, or late."""
        return next((w for w, view in self.workers.items() if view.grant == order), None)

    def up(self, worker: WorkerId) -> None:
        """A process knows what it owns."""
        view = self.workers[worker]
        view.phase, view.grant, view.failed_starts = WorkerPhase.UP, None, 0

    def down(self, event: WorkerDown) -> list[Effect]:
        """A process is gone: start the next one, unless too many did not start."""
        view = self.workers.get(event.worker)
        if view is None or view.incarnation != event.incarnation:
            return []
        if view.phase is WorkerPhase.STARTING:
            view.failed_starts += 1
        view.reason, view.grant = event.reason, None
        if view.failed_starts >= STARTS_MAX:
            view.phase = WorkerPhase.FAILED
            return []
        view.incarnation += 1
        view.restarts += 1
        view.phase = WorkerPhase.STARTING
        return [StartWorker(event.worker, view.incarnation)]

    def incarnation_up(self, worker: WorkerId) -> int | None:
        """The worker's incarnation if it is up."""
        view = self.workers.get(worker)
        return view.incarnation if view is not None and view.phase is WorkerPhase.UP else None

    def incarnation_told(self, worker: WorkerId) -> int | None:
        """The worker's incarnation if it is up, or was sent what it owns and may be up soon."""
        view = self.workers.get(worker)
        if view is None or (view.phase is not WorkerPhase.UP and view.grant is None):
            return None
        return view.incarnation

    def is_given_up(self, worker: WorkerId) -> bool:
        """Whether the worker could not be started."""
        view = self.workers.get(worker)
        return view is not None and view.phase is WorkerPhase.FAILED
