"""The simulated host registry: who counts for a host, what its agent has to do, who is gone."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.leases import Claims, Loss
from anabranch.simulation.agent import TIMES, SimulatedAgent
from anabranch.simulation.claim_checks import ClaimChecks
from anabranch.simulation.hosts import Hosts
from anabranch.simulation.launcher import INSTALL_TICKS

if TYPE_CHECKING:
    from anabranch.simulation.coordinator import CoordinatorProcess
    from anabranch.simulation.worker import WorkerProcess

LOOK_TICKS, EXPECT_TICKS, NO_HOST_TICKS = 8, 60, 800
ANSWER_TICKS = 250
"""A start that is not answered by then has failed."""


@dataclass(slots=True)
class Start:
    """A process that was ordered."""

    number: int
    worker: WorkerId
    incarnation: int
    agent: SimulatedAgent
    process: WorkerProcess | None = None
    has_started: bool = False
    is_unwanted: bool = False


class SimulatedRegistry:
    """Claims, leases and orders of one life of the coordinator."""

    def __init__(self, coordinator: CoordinatorProcess, hosts: Hosts) -> None:
        self.coordinator = coordinator
        self.hosts = hosts
        self.claims = Claims(TIMES)
        self._checks = ClaimChecks()
        self.agents: dict[HostId, SimulatedAgent] = {}
        """That have joined and count."""
        self.starts: dict[int, Start] = {}
        self._numbers = itertools.count(1)
        self._scheduler = coordinator.cluster.scheduler
        self._gathers_until = self._scheduler.now + EXPECT_TICKS
        self._scheduler.after(EXPECT_TICKS, "", self._gathered)
        self._waiting_since: int | None = None
        self._scheduler.after(LOOK_TICKS, "", self._look)

    # -- agents --

    def join(self, agent: SimulatedAgent, asked: float) -> None:
        """An agent offers its host."""
        if not self.coordinator.is_alive:
            return
        answer, loss = self.claims.join(agent.host, agent.id, self._scheduler.now)
        self._checks.asked(agent, answer, self._scheduler.now)
        self._lost(loss)
        self._send(agent, f"{agent.end} is told: {answer.value}", agent.answered, answer, asked)

    def stream_opened(self, agent: SimulatedAgent, stream: int) -> None:
        """An agent hears orders from now on."""
        if not self.coordinator.is_alive:
            return
        is_first = self.claims.stream_opened(agent.id, stream, self._scheduler.now)
        self._checks.opened(agent, stream, self._scheduler.now)
        if is_first is None:
            self._send(agent, "", agent.not_counted)
        elif is_first:
            self.agents[agent.host] = agent
            others = self._scheduler.now < self._gathers_until
            follow = others and len(self.agents) < self.hosts.expected
            capacity = self.hosts.of[agent.host].capacity
            self.coordinator.handle(protocol.HostJoined(agent.host, capacity, {}, follow))
        else:
            self._order_again(agent)

    def _gathered(self) -> None:
        machine = self.coordinator.machine
        if self.coordinator.is_alive and machine.fleet.is_gathering and self.agents:
            host = next(iter(self.agents))
            view = machine.fleet.hosts[host]
            self.coordinator.handle(protocol.HostJoined(host, view.capacity, view.labels))

    def stream_closed(self, agent: SimulatedAgent, stream: int) -> None:
        """Perhaps the agent comes back."""
        if self.coordinator.is_alive:
            self.claims.stream_closed(agent.id, stream, self._scheduler.now)
            self._checks.closed(agent, stream, self._scheduler.now)

    def beat(self, agent: SimulatedAgent, sent: float) -> None:
        """A sign of life."""
        if not self.coordinator.is_alive:
            return
        self._checks.heard(agent, self._scheduler.now)
        if self.claims.heard(agent.id, self._scheduler.now):
            self.hosts.of[agent.host].counts(agent)
            self._send(agent, "", agent.acknowledged, sent)
        else:
            self._send(agent, "", agent.not_counted)

    def _look(self) -> None:
        if not self.coordinator.is_alive or self.hosts.is_closed:
            return
        for loss in self.claims.expire(self._scheduler.now):
            self._lost(loss)
        self._checks.looked(self._scheduler.now)
        self._look_for_hosts()
        self._scheduler.after(LOOK_TICKS, "", self._look)

    def _lost(self, loss: Loss | None) -> None:
        if loss is not None:
            self._checks.lost(loss)
        if loss is None or not loss.had_joined:
            return
        agent = self.agents.pop(loss.host)
        self.hosts.cluster.count("hosts_lost")
        self._scheduler.note(f"host {loss.host} ({agent.end}) is lost: {loss.reason}")
        checks = self.hosts.cluster.checks.hosts
        assert checks is not None
        checks.host_lost(agent, loss)
        mine = [start for start in self.starts.values() if start.agent is agent]
        for start in mine:
            del self.starts[start.number]
        self._gone([start.process for start in mine if start.process is not None])
        self.coordinator.handle(protocol.HostLost(loss.host, loss.reason))
        self.hosts.cluster.driver.host_lost(loss.host)

    def _look_for_hosts(self) -> None:
        """Workers that have waited long enough for a host: lanes hear of it."""
        if not self.coordinator.machine.fleet.waiting():
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self._scheduler.now
        elif self._scheduler.now - self._waiting_since >= NO_HOST_TICKS:
            self._waiting_since = self._scheduler.now
            self.coordinator.has_given_up = True
            self.coordinator.handle(protocol.HostsAwaited("simulated end of patience."))

    # -- workers --

    def start(self, effect: protocol.StartWorker) -> None:
        """Order a process."""
        agent, number = self.agents[effect.host], next(self._numbers)
        start = Start(number, effect.worker, effect.incarnation, agent)
        self.starts[number] = start
        self._order_start(start)
        self._scheduler.after(ANSWER_TICKS, "", self._expect_answer, start)

    def _order_start(self, start: Start) -> None:
        agent = start.agent
        stream = self._stream_of(agent)
        label = f"{agent.end} shall start {start.worker}.{start.incarnation} ({start.number})"
        args = stream, start.number, start.worker, start.incarnation
        self._send(agent, label, agent.start, *args)

    def _order_stop(self, start: Start) -> None:
        agent = start.agent
        label = f"{agent.end} shall end {start.worker}.{start.incarnation} ({start.number})"
        self._send(agent, label, agent.stop, self._stream_of(agent), start.number)

    def _stream_of(self, agent: SimulatedAgent) -> int:
        claim = self.claims.claim_of(agent.id)
        return (claim.stream if claim is not None else None) or 0

    def _order_again(self, agent: SimulatedAgent) -> None:
        """The order stream broke: what it lost is said again."""
        for start in list(self.starts.values()):
            if start.agent is agent and start.is_unwanted:
                self._order_stop(start)
            elif start.agent is agent and start.process is None:
                self._order_start(start)

    def _expect_answer(self, start: Start) -> None:
        if start.number in self.starts and not start.has_started and not start.is_unwanted:
            self.hosts.cluster.count("starts_unanswered")
            self._end(start)
            self._down(start, "it did not answer.")

    def started(self, agent: SimulatedAgent, number: int, process: WorkerProcess) -> None:
        """An agent has forked a worker; it gets its operators."""
        start = self._start_of(agent, number)
        if start is None:
            return
        start.process = process
        self.hosts.watch.here(process)
        if not start.is_unwanted:
            label = f"{process.name} gets its operators"
            network = self.hosts.network
            network.send(self.coordinator, process, None, label, self._install, start, process)

    def _install(self, start: Start, process: WorkerProcess) -> None:
        delay = process.scheduler.delay(INSTALL_TICKS)
        process.scheduler.after(delay, "", self._installed, start, process)

    def _installed(self, start: Start, process: WorkerProcess) -> None:
        label = f"{process.name} has started"
        self.hosts.network.send(process, self.coordinator, None, label, self._ready, start)

    def _ready(self, start: Start) -> None:
        if start.number in self.starts and not start.is_unwanted:
            start.has_started = True
            event = protocol.WorkerStarted(start.worker, start.incarnation)
            self.coordinator.handle(event)

    def failed(self, agent: SimulatedAgent, number: int) -> None:
        """A worker has ended before it was ready."""
        start = self._start_of(agent, number)
        if start is not None:
            del self.starts[number]
            self._down(start, "simulated failure to start.")

    def ended(self, agent: SimulatedAgent, number: int) -> None:
        """A worker that was not wanted is gone."""
        start = self._start_of(agent, number)
        if start is not None:
            del self.starts[number]

    def _start_of(self, agent: SimulatedAgent, number: int) -> Start | None:
        """What an agent reports on; None: it does not count any more."""
        if self.claims.host_of(agent.id) is None or not self.coordinator.is_alive:
            return None
        return self.starts.get(number)

    def stop(self, effect: protocol.StopWorker) -> None:
        """End a process, if anybody can be told."""
        for start in list(self.starts.values()):
            if (start.worker, start.incarnation) == (effect.worker, effect.incarnation):
                self._end(start)

    def down(self, event: protocol.WorkerDown) -> None:
        """A process is gone, or is taken for gone: then it ends."""
        for start in list(self.starts.values()):
            if (start.worker, start.incarnation) == (event.worker, event.incarnation):
                self._end(start)

    def _end(self, start: Start) -> None:
        if not start.is_unwanted:
            start.is_unwanted = True
            self._order_stop(start)
            if start.process is not None:
                self._gone([start.process])

    def _down(self, start: Start, reason: str) -> None:
        event = protocol.WorkerDown(start.worker, start.incarnation, reason)
        self.coordinator.handle(event)

    def _gone(self, processes: list[WorkerProcess]) -> None:
        self.hosts.in_flight.note(processes)
        if processes:
            self.hosts.watch.gone(processes)

    def _send(self, agent: SimulatedAgent, label: str, hear: object, *args: object) -> None:
        assert callable(hear)
        channel = "from C", agent.end
        self.hosts.network.send(self.coordinator, agent, channel, label, hear, *args)
