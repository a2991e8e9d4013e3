"""A simulated host agent: joins, beats, starts and ends workers, and fences itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.model.ids import AgentId, WorkerId
from anabranch.protocol.leases import JoinAnswer, LeaseTimes, OwnLease
from anabranch.simulation.lease_checks import OwnLeaseCheck

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.hosts import SimulatedHost
    from anabranch.simulation.worker import WorkerProcess

TIMES = LeaseTimes(lease=60.0, beat=10.0, absence=8.0, proof=360.0)
FORK_TICKS, END_TICKS, JOIN_TICKS = 6, 6, 40
TWICE_SHARE, TWICE_TICKS = 0.5, 400
"""Calls to join that come twice, and how late they come at most."""


class SimulatedAgent:
    """One agent process."""

    def __init__(self, cluster: Cluster, host: SimulatedHost, number: int) -> None:
        self.cluster = cluster
        self.machine = host
        self.id = AgentId(f"a{number}")
        self.end = f"{host.name}.{self.id}"
        self.host = host.name
        self.scheduler = host
        self.coordinator = cluster.coordinator
        self.is_alive = True
        self.has_joined = False
        self.lease = OwnLease(TIMES.lease, host.clock)
        self._lease_check = OwnLeaseCheck(self)
        self.stream = 1
        """Number of its order stream."""
        self.breaks_next = False
        """Whether the stream breaks before it brings the next order."""
        self.processes: dict[int, WorkerProcess] = {}
        self.known: set[int] = set()
        """Starts that it was told of."""
        self.unwanted: set[int] = set()
        """Those that it was told to end."""

    # -- join --

    def join(self) -> None:
        """Offer the host; another agent tries again if nobody answers."""
        registry = self.coordinator.registry
        label = f"{self.end} wants to join"
        asked = self.machine.clock
        self._send(label, registry.join, self, asked)
        late = self._late_join()
        if late is not None:
            label = f"{self.end} wants to join (again)"
            network, coordinator = self.cluster.network, self.coordinator
            network.send_late(late, self, coordinator, label, registry.join, self, asked)
        self.scheduler.after(JOIN_TICKS, "", self._give_up_joining)

    def _late_join(self) -> int | None:
        """When the call comes a second time; None: it does not."""
        hosts = self.cluster.hosts
        rng = None if hosts is None else hosts.join_rng
        if rng is None or rng.random() >= TWICE_SHARE:
            return None
        self.cluster.count("joins_twice")
        return int(rng.random() * TWICE_TICKS)

    def _give_up_joining(self) -> None:
        if not self.has_joined:
            self.end_all("hears nothing")

    def answered(self, answer: JoinAnswer, asked: float) -> None:
        """The coordinator's answer."""
        if not self.is_alive or self.has_joined:
            return
        if answer in (JoinAnswer.TAKEN, JoinAnswer.GIVEN_UP):
            self.end_all(f"is told to return: {answer.value}")
            return
        self.has_joined = True
        self.lease.acknowledged(asked, self.machine.clock)
        self.open_stream()
        self._beat()
        self._watch_lease()

    def open_stream(self) -> None:
        """Orders come from now on."""
        if self.is_alive:
            label = f"{self.end} opens order stream {self.stream}"
            self._send(label, self.coordinator.registry.stream_opened, self, self.stream)

    def lose_stream(self) -> None:
        """The order stream breaks, and is opened again."""
        self.breaks_next = False
        self._send("", self.coordinator.registry.stream_closed, self, self.stream)
        self.stream += 1  # what comes of the one that is broken is not heard
        self.scheduler.after(self.scheduler.delay(4), "", self.open_stream)

    # -- lease --

    def _beat(self) -> None:
        if not self.is_alive or self.cluster.is_closed:
            return
        self._send("", self.coordinator.registry.beat, self, self.machine.clock)
        self.scheduler.after(self.machine.ticks(TIMES.beat), "", self._beat)

    def acknowledged(self, sent: float) -> None:
        """A beat was heard."""
        self._lease_check.answered(sent)
        self.lease.acknowledged(sent, self.machine.clock)

    def _watch_lease(self) -> None:
        if not self.is_alive or self.cluster.is_closed:
            return
        clock = self.machine.clock
        if self.lease.is_over(clock):
            self.cluster.count("agents_fenced")
            self.end_all("fences itself")
            return
        left = self.lease.left(clock)
        self.scheduler.after(self.machine.ticks(left), "", self._watch_lease)

    def not_counted(self) -> None:
        """The coordinator says that another agent counts, or none."""
        self.end_all("does not count any more")

    # -- orders --

    def _hears(self, stream: int) -> bool:
        if self.is_alive and self.breaks_next:
            self.lose_stream()
        return self.is_alive and stream == self.stream

    def start(self, stream: int, number: int, worker: WorkerId, incarnation: int) -> None:
        """Fork a worker."""
        if not self._hears(stream) or number in self.known:
            return
        self.known.add(number)
        faults = self.cluster.faults
        if faults.start_hangs():
            self.cluster.scheduler.note(f"{self.end} never answers start {number}")
            return
        if faults.start_fails(worker):
            self._report(number, "failed", self.coordinator.registry.failed, number)
            return
        label = f"{self.end} forks {worker}.{incarnation}"
        delay = self.scheduler.delay(FORK_TICKS)
        self.scheduler.after(delay, label, self._fork, number, worker, incarnation)

    def _fork(self, number: int, worker: WorkerId, incarnation: int) -> None:
        if not self.is_alive or number in self.unwanted:
            return
        process = self.cluster.start_worker(worker, incarnation, self.host, self.coordinator)
        process.agent, process.scheduler = self, self.machine
        process.address = self.machine.free_address()
        self.processes[number] = process
        self.machine.processes.append(process)
        self._report(number, "started", self.coordinator.registry.started, number, process)

    def stop(self, stream: int, number: int) -> None:
        """End a worker."""
        if not self._hears(stream):
            return
        self.unwanted.add(number)
        process = self.processes.get(number)
        delay = self.scheduler.delay(END_TICKS)
        self.scheduler.after(delay, "", self._stop, number, process)

    def _stop(self, number: int, process: WorkerProcess | None) -> None:
        if process is not None:
            self.cluster.scheduler.note(f"{process.name} is stopped")
            process.crash()
        self._report(number, "ended", self.coordinator.registry.ended, number)

    # -- end --

    def end_all(self, reason: str) -> None:
        """Return; the workers end with it, at once or soon."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.cluster.scheduler.note(f"{self.end} {reason} and returns")
        for process in self.processes.values():
            process.crash()
        self._send("", self.coordinator.registry.stream_closed, self, self.stream)

    def kill(self) -> None:
        """The process is killed; its workers notice a little later."""
        self.is_alive = False
        for process in self.processes.values():
            label = f"{process.name} ends with its agent"
            self.scheduler.after(self.scheduler.delay(END_TICKS), label, process.crash)
        self._send("", self.coordinator.registry.stream_closed, self, self.stream)

    def vanish(self) -> None:
        """The host has died."""
        self.is_alive = False

    # -- messages --

    def _report(self, number: int, what: str, hear: object, *args: object) -> None:
        assert callable(hear)
        label = f"{self.end} reports: start {number} has {what}"
        self._send(label, hear, self, *args)

    def _send(self, label: str, hear: object, *args: object) -> None:
        assert callable(hear)
        network = self.cluster.network
        network.send(self, self.coordinator, ("to C", self.end), label, hear, *args)
