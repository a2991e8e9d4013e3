"""Everything that runs in a scenario, and how the parts reach each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from anabranch.errors import AnabranchError, ServiceUnavailable
from anabranch.model.ids import WorkerId
from anabranch.protocol import coordinator as control
from anabranch.protocol import worker as data
from anabranch.simulation.checks import Checks
from anabranch.simulation.coordinator import CoordinatorProcess
from anabranch.simulation.driver import SparkDriver
from anabranch.simulation.faults import FaultState
from anabranch.simulation.lane import RETRY_TICKS, Answer, Reply, SimulatedLane
from anabranch.simulation.moves import Moves
from anabranch.simulation.network import Network
from anabranch.simulation.oracle import OPERATOR, Oracle, Rows
from anabranch.simulation.scheduler import Scheduler
from anabranch.simulation.store import Store
from anabranch.simulation.worker import Forward, LaneExchange, WorkerProcess

RESTART_TICKS = 20
SLOW_SHARE, SLOW_TICKS = 0.1, 60
"""Lanes that take their time between their first and their last rows."""


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
    ) -> None:
        self.rng = rng
        self.store_rng = Random(rng.random()) if store_is_source else None
        """Chooses what is left in the store; None: key groups are always read whole."""
        self.scheduler = Scheduler(rng)
        self.network = Network(self.scheduler)
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
        self.exchange_count = 0
        self.counts: Counter[str] = Counter()
        self.moves = Moves(self)
        self.coordinator = CoordinatorProcess(self)
        self.driver = SparkDriver(self, lanes)
        self.driver.start()

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter of mechanisms that were at work, per strategy and in all."""
        if amount:
            self.counts[name] += amount
            self.counts[f"{self.moves.strategy} {name}"] += amount

    # -- lanes and the coordinator --

    def next_request(self, task: SimulatedLane) -> int:
        """An id for a call."""
        self.request_count += 1
        self.requests[self.request_count] = task
        return self.request_count

    def call(self, task: SimulatedLane, event: control.Event, label: str) -> None:
        """A lane calls the coordinator that it knows; one that died meanwhile never answers."""
        ends = ("C", f"L{task.lane}")
        self.network.send(ends, None, label, self.coordinator.handle, event)

    def reply(self, request: int, effect: Reply, label: str) -> None:
        """The coordinator answers."""
        task = self.requests[request]
        text = f"{task.name} {label}"
        self.network.send(("C", f"L{task.lane}"), None, text, task.replied, effect)

    # -- lanes and workers --

    def open_exchange(
        self,
        task: SimulatedLane | Forward,
        process: WorkerProcess,
        ends: tuple[str, str],
        opened: data.TransactionOpened,
    ) -> LaneExchange:
        """A stream to a process."""
        self.exchange_count += 1
        exchange = LaneExchange(self.exchange_count, task, process, opened, ends)
        process.exchanges[opened.tx] = exchange
        return exchange

    def send_rows(self, exchange: LaneExchange, rows: Rows) -> None:
        """Open, rows, end mark."""
        process, opened = exchange.process, exchange.opened
        label = f"{process.name} tx{opened.tx} of {exchange.task.name}: "
        kind = "shadow" if opened.is_shadow else "opened"
        text = f"{label}{kind} {opened.groups} base {opened.base}"
        self.stream(exchange, text, process.open, exchange)
        if rows:
            self.stream(exchange, f"{label}rows", process.receive, exchange, rows)
        if self.rng.random() < SLOW_SHARE:
            self.network.hold(exchange.number, int(self.rng.random() * SLOW_TICKS))
        self.stream(exchange, f"{label}end mark", process.end_mark, exchange)

    def reachable(self, caller: WorkerProcess, worker: WorkerId) -> WorkerProcess | None:
        """A live process of a worker; a peer may still know the one before."""
        found = [
            process
            for process in (*self.processes.values(), *self.zombies)
            if process.is_alive
            and process.worker == worker
            and process.generation == caller.generation
        ]
        return self.rng.choice(found) if len(found) > 1 else found[0] if found else None

    def process(self, worker: WorkerId, incarnation: int) -> WorkerProcess | None:
        for process in (self.processes.get(worker), *self.zombies):
            if (
                process is not None
                and process.is_alive
                and (process.worker, process.incarnation) == (worker, incarnation)
                and process.generation == self.generation
            ):
                return process
        return None

    def stream(
        self, exchange: LaneExchange, label: str, deliver: Callable[..., None], *args: Any
    ) -> None:
        """Something that a lane sends in an exchange."""
        self.network.send(exchange.ends, exchange.number, label, deliver, *args)

    def answer_exchange(self, exchange: LaneExchange, answer: Answer | AnabranchError) -> None:
        """Something that a worker sends in an exchange."""
        task = exchange.task
        kind = "refusal" if isinstance(answer, AnabranchError) else "outputs"
        label = f"{task.name} gets {kind} of {exchange.process.name} tx{exchange.opened.tx}"
        self.network.send(exchange.ends, None, label, self._answered, exchange, answer)

    @staticmethod
    def _answered(exchange: LaneExchange, answer: Answer | AnabranchError) -> None:
        if not exchange.is_broken:
            exchange.task.answered(exchange, answer)

    def break_exchange(self, exchange: LaneExchange) -> None:
        """The stream ends; what is on its way may be lost, each side notices in its own time."""
        exchange.is_broken = self.rng.random() < 0.7
        process, task = exchange.process, exchange.task
        ends = exchange.ends
        name = f"{process.name} tx{exchange.opened.tx}"
        if process.is_alive:
            label = f"{name}: lane gone"
            self.network.send(ends, exchange.number, label, process.lane_gone, exchange)
        if task.is_alive:
            error = ServiceUnavailable("simulated loss of a connection")
            label = f"{task.name} lost {name}"
            self.network.send(ends, None, label, task.answered, exchange, error)

    # -- processes --

    def start_worker(self, worker: WorkerId, incarnation: int) -> None:
        """A new process for a worker; it has the operator, but does not know what it owns."""
        old = self.processes.get(worker)
        if old is not None and old.is_alive:
            self.zombies.append(old)
        process = self.processes[worker] = WorkerProcess(self, worker, incarnation)
        process.handle(data.OperatorInstalled(OPERATOR))

    def declare_down(self, process: WorkerProcess) -> None:
        """The coordinator learns (rightly or not) that a process is gone."""
        event = control.WorkerDown(process.worker, process.incarnation, "simulated end.")
        label = f"coordinator misses {process.name}"
        self.network.send(("C", process.worker), None, label, self.coordinator.handle, event)

    def crash_driver(self) -> None:
        """The driver dies with its coordinator; workers and tasks follow, but not at once."""
        self.driver.stop()
        self.coordinator.is_alive = False
        old = [p for p in (*self.processes.values(), *self.zombies) if p.is_alive]
        for process in old:
            delay = self.scheduler.delay(RESTART_TICKS)
            self.scheduler.after(delay, f"{process.name} ends", process.crash)
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

    def _install(
        self, generation: int, run: int, lanes: int, processes: list[WorkerProcess]
    ) -> None:
        if (generation, run) != (self.generation, self.driver.run):
            return  # another restart came first
        waiting = []
        for process in processes:
            if process.machine.is_busy(OPERATOR) and process.is_alive:
                waiting.append(process)
            else:
                process.handle(data.OperatorInstalled(OPERATOR))
        if waiting:
            delay = self.scheduler.delay(RETRY_TICKS)
            self.scheduler.after(delay, "", self._install, generation, run, lanes, waiting)
        else:
            self.driver.start(lanes)
