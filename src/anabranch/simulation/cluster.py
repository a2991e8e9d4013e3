"""Everything that runs in a scenario, and how the parts reach each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol import coordinator as control
from anabranch.protocol import worker as data
from anabranch.simulation.checks import Checks
from anabranch.simulation.coordinator import CoordinatorProcess
from anabranch.simulation.driver import SparkDriver
from anabranch.simulation.exchanges import Exchanges
from anabranch.simulation.faults import FaultState
from anabranch.simulation.host_checks import HostChecks
from anabranch.simulation.hosts import Hosts
from anabranch.simulation.lane import RETRY_TICKS, LaneReply, SimulatedLane
from anabranch.simulation.moves import Moves
from anabranch.simulation.network import Endpoint, SimulatedNetwork
from anabranch.simulation.oracle import OPERATOR, Oracle
from anabranch.simulation.scheduler import Scheduler
from anabranch.simulation.store import Store
from anabranch.simulation.worker import WorkerProcess

RESTART_TICKS = 20


class Cluster:
    """Driver, coordinator, workers, lanes, network and store of one scenario."""

    def __init__(
        self,
        rng: Random,
        batches: int,
        lanes: int,
        workers: int,
        store_is_source: bool = False,
        order_rng: Random | None = None,
        sleep_rng: Random | None = None,
        host_rng: Random | None = None,
    ) -> None:
        self.rng = rng
        self.store_rng = Random(rng.random()) if store_is_source else None
        """Chooses what is left in the store; None: key groups are always read whole."""
        self.sleep_rng = sleep_rng
        """Chooses when the query has nothing to do; None: batches follow each other."""
        self.scheduler = Scheduler(rng)
        self.store = Store()
        self.oracle = Oracle.create(rng, batches)
        self.faults = FaultState(rng, order_rng)
        self.checks = Checks(self)
        self.worker_count = workers
        self.generation = 0
        """Counts lives of the service."""
        self.processes: dict[WorkerId, WorkerProcess] = {}
        """The newest process of each worker."""
        self.zombies: list[WorkerProcess] = []
        self.requests: dict[int, SimulatedLane] = {}
        self.request_count = 0
        self.counts: Counter[str] = Counter()
        self.exchanges = Exchanges(self)
        self.moves = Moves(self)
        self.network = SimulatedNetwork(self.scheduler)
        self.hosts: Hosts | None = None
        self.driver = SparkDriver(self, lanes)
        if host_rng is not None:
            self.hosts = Hosts(self, host_rng)
            self.network = self.hosts.network
            self.checks.hosts = HostChecks(self.hosts)
        self.coordinator = CoordinatorProcess(self)
        self.driver.start()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of mechanisms that were at work, per strategy and in all."""
        if amount:
            self.counts[name] += amount
            self.counts[f"{self.moves.strategy} {name}"] += amount

    @property
    def is_closed(self) -> bool:
        """Whether nobody beats or tries again any more."""
        return self.hosts is not None and self.hosts.is_closed

    def refuses(self, caller: Endpoint, process: WorkerProcess) -> bool:
        """Whether a caller was told that nobody is at the address of a process."""
        return self.hosts is not None and self.hosts.watch.refuses(caller, process)

    def is_asleep(self, process: WorkerProcess) -> bool:
        """Whether a process is on a host that has stopped."""
        return self.hosts is not None and not self.hosts.of[process.host].is_running

    # -- lanes and the coordinator --

    def next_request(self, task: SimulatedLane) -> int:
        """An id for a call."""
        self.request_count += 1
        self.requests[self.request_count] = task
        return self.request_count

    def call(self, task: SimulatedLane, event: control.Event, label: str) -> None:
        """A lane calls the coordinator that it knows; one that died meanwhile never answers."""
        coordinator = self.coordinator
        if self.faults.call_hangs():
            task.hung_request = task.request
            self.count("calls_hung")
            return
        self.network.send(task, coordinator, None, label, coordinator.handle, event)

    def reply(self, request: int, effect: LaneReply, label: str) -> None:
        """The coordinator answers."""
        task = self.requests[request]
        text = f"{task.name} {label}"
        self.network.send(self.coordinator, task, None, text, task.replied, effect)

    def tell_driver(self, task: SimulatedLane, tell: Callable[..., None], *args: Any) -> None:
        """A task has ended."""
        if self.hosts is None:
            tell(*args)
        else:
            self.network.send(task, self.coordinator, None, f"{task.name} has ended", tell, *args)

    # -- lanes and workers --

    def reachable(self, caller: WorkerProcess, worker: WorkerId) -> WorkerProcess | None:
        """A live process of a worker; a peer may still know the one before."""
        found = [
            process
            for process in (*self.processes.values(), *self.zombies)
            if (process.is_alive or process.is_lost)
            and process.worker == worker
            and process.generation == caller.generation
        ]
        return self.rng.choice(found) if len(found) > 1 else found[0] if found else None

    def process(self, worker: WorkerId, incarnation: int) -> WorkerProcess | None:
        for process in (self.processes.get(worker), *self.zombies):
            if (
                process is not None
                and (process.is_alive or process.is_lost)
                and (process.worker, process.incarnation) == (worker, incarnation)
                and process.generation == self.generation
            ):
                return process
        return None

    # -- processes --

    def process_of(self, worker: WorkerId, incarnation: int) -> WorkerProcess | None:
        """A process of this life of the service, dead or alive."""
        return next(
            (
                process
                for process in (self.processes.get(worker), *self.zombies)
                if process is not None
                and (process.worker, process.incarnation) == (worker, incarnation)
            ),
            None,
        )

    def start_worker(
        self, worker: WorkerId, incarnation: int, host: HostId, coordinator: CoordinatorProcess
    ) -> WorkerProcess:
        """A new process for a worker; it has the operator, but does not know what it owns."""
        process = WorkerProcess(self, worker, incarnation, host, coordinator)
        old = self.processes.get(worker)
        if coordinator is not self.coordinator or (old and old.incarnation > incarnation):
            self.zombies.append(process)  # it was ordered long ago
        else:
            if old is not None and (old.is_alive or old.is_lost):
                self.zombies.append(old)
            self.processes[worker] = process
        process.handle(data.OperatorInstalled(OPERATOR))
        return process

    def declare_down(self, process: WorkerProcess) -> None:
        """The coordinator learns (rightly or not) that a process is gone."""
        event = control.WorkerDown(process.worker, process.incarnation, "simulated end.")
        label = f"coordinator misses {process.name}"
        coordinator = self.coordinator
        self.network.send(process, coordinator, None, label, coordinator.handle, event)

    def crash_driver(self) -> None:
        """The driver dies with its coordinator; workers and tasks follow, but not at once."""
        self.driver.stop()
        self.coordinator.is_alive = False
        if self.hosts is None:
            old = [p for p in (*self.processes.values(), *self.zombies) if p.is_alive]
            for process in old:
                delay = self.scheduler.delay(RESTART_TICKS)
                self.scheduler.after(delay, f"{process.name} ends", process.crash)
        else:
            self.hosts.driver_died()
        self.processes, self.zombies = {}, []
        delay = self.scheduler.delay(RESTART_TICKS)
        self.scheduler.after(delay, "service starts again", self._restart, self.generation)

    def _restart(self, generation: int) -> None:
        if generation == self.generation:
            self.generation += 1
            self.faults.clear()
            self.moves.clear()
            self.coordinator = CoordinatorProcess(self)
            self.driver.start(self.faults.other_lanes(self.driver.lanes))

    def restart_query(self, lanes: int, is_redefined: bool) -> None:
        """The query starts again in the same driver, perhaps with its operator defined anew."""
        self.driver.stop()
        installs: list[WorkerProcess] = []
        if is_redefined:
            self.coordinator.register()
            installs = [p for p in self.processes.values() if p.is_alive]
        self._install(self.generation, self.driver.run, lanes, installs)

    def _is_given_up(self, process: WorkerProcess) -> bool:
        """Whether nobody waits for a process, of which nobody may hear that it has ended."""
        view = self.coordinator.machine.workers.get(process.worker)
        is_known = view is not None and view.incarnation == process.incarnation
        return self.hosts is not None and not is_known

    def _install(
        self, generation: int, run: int, lanes: int, processes: list[WorkerProcess]
    ) -> None:
        if (generation, run) != (self.generation, self.driver.run):
            return  # another restart came first
        waiting = []
        for process in processes:
            if self._is_given_up(process):
                continue
            if process.is_alive and (process.machine.is_busy(OPERATOR) or self.is_asleep(process)):
                waiting.append(process)
            else:
                process.handle(data.OperatorInstalled(OPERATOR))
        if waiting:
            delay = self.scheduler.delay(RETRY_TICKS)
            self.scheduler.after(delay, "", self._install, generation, run, lanes, waiting)
        else:
            self.driver.start(lanes)
