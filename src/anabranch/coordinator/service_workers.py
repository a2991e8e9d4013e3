"""The part of the service with which users replace a worker's process."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

from anabranch.errors import InvalidArgument, ServiceUnavailable
from anabranch.model.ids import WorkerId
from anabranch.processes.worker_pool import WorkerPool
from anabranch.protocol.coordinator import CoordinatorMachine, WorkerPhase

if TYPE_CHECKING:
    from anabranch.coordinator.service_hosts import ServiceHosts

LOOK_SECONDS = 0.05


def check_seconds(name: str, given: Any) -> None:
    """Refuse what is no time span; None is none."""
    if given is None:
        return
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not 0 < given < math.inf:
        raise InvalidArgument(f"{name} must be seconds above 0, got {given!r}.")


class Recycler:
    """Ends a worker's process and waits for the next one."""

    def __init__(
        self, machine: CoordinatorMachine, lock: threading.RLock, pool: WorkerPool
    ) -> None:
        self._machine = machine
        self._lock = lock
        self._pool = pool

    def recycle(self, worker: Any, timeout_seconds: float) -> None:
        """Return when another process has the worker's place."""
        with self._lock:
            known = list(self._machine.workers)
        if worker not in known:
            names = ", ".join(known)
            raise InvalidArgument(f"There is no worker {worker!r} in this service, only: {names}.")
        deadline = time.monotonic() + timeout_seconds
        former = self._pool.incarnations().get(worker, -1)
        self._pool.replace(worker, former, "recycle() was called.")
        while not self._is_up(worker, former):
            if time.monotonic() > deadline:
                raise ServiceUnavailable(
                    f"The new process of worker {worker} is not up after {timeout_seconds:g} s. It "
                    "is still being started: look at service.status() and at its messages on "
                    "standard error."
                )
            time.sleep(LOOK_SECONDS)

    def _is_up(self, worker: WorkerId, former: int) -> bool:
        with self._lock:
            view = self._machine.workers.get(worker)
        if view is None:
            raise ServiceUnavailable(
                f"Worker {worker} was taken out of the service meanwhile. Look at service.status()."
            )
        if view.phase is WorkerPhase.FAILED:
            raise ServiceUnavailable(
                f"Worker {worker} could not be started: {view.reason} See the worker's messages on "
                "standard error, fix the cause and start the service again."
            )
        return view.phase is WorkerPhase.UP and view.incarnation > former


class ServiceWorkers:
    """recycle, revoke_join_token."""

    def _recycler(self) -> Recycler:
        raise NotImplementedError

    def _hosts(self) -> ServiceHosts:
        raise NotImplementedError

    def revoke_join_token(self) -> None:
        """Send all hosts away that have joined by themselves, and let none join with their token.

        The workers start on other hosts, or wait for some. A new token is in the token file of
        `JoinedHosts` at once. Hosts that have it can join.
        """
        self._hosts().revoke_join_token()

    def recycle(self, worker: str, *, timeout: float = 60.0) -> None:
        """Replace the process of a worker by a new one, as after a crash: nothing is lost.

        For a worker whose user code hangs, or that has taken too much memory. Batches that need it
        wait and send their rows again. Returns when the new process is up; raises
        `ServiceUnavailable` if it is not within `timeout` seconds.
        """
        check_seconds("timeout", timeout)
        self._recycler().recycle(worker, timeout)
