"""The hosts of a scenario: machines that stop, die and come back with everything that runs on them.

What runs on a host lives by the host's timer: while the host is stopped, nothing happens there, and
all that has come meanwhile happens when it wakes up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from random import Random
from typing import TYPE_CHECKING, Any

from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId
from anabranch.simulation.agent import SimulatedAgent
from anabranch.simulation.checks import Failure
from anabranch.simulation.in_flight import SimulatedCalls
from anabranch.simulation.links import HostNetwork
from anabranch.simulation.network import Endpoint
from anabranch.simulation.scheduler import Scheduler
from anabranch.simulation.watch import SimulatedWatch

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.lane import SimulatedLane
    from anabranch.simulation.worker import WorkerProcess

EDGE = HostId("x1")
"""A host that runs lanes and no workers."""
CAPACITIES = (1, 2, 2, 3, 4, None)
DRIFT = 0.05
"""How much faster or slower than true time clocks are, at most."""
CARRIER_TICKS = 40


class SimulatedHost:
    """One machine."""

    def __init__(self, scheduler: Scheduler, name: HostId, capacity: int | None, rate: float):
        self.name = name
        self.capacity = capacity
        self.rate = rate
        """Of its clock: ticks that it counts in one."""
        self.agents: list[SimulatedAgent] = []
        self.heard: list[SimulatedAgent] = []
        """Agents that have counted, in their order."""
        self.processes: list[WorkerProcess] = []
        self.lanes: list[SimulatedLane] = []
        self.is_down = False
        self.is_stopped = False
        self.has_slept = False
        """Whether its agent may have slept through its lease."""
        self.boots = 0
        self._scheduler = scheduler
        self._inbox: list[tuple[int, str, Callable[..., None], tuple[Any, ...]]] = []
        self._lost_ticks = 0
        """During which its clock stood still."""
        self._stopped_at = 0

    @property
    def is_running(self) -> bool:
        """Whether anything happens there."""
        return not self.is_down and not self.is_stopped

    # -- time --

    @property
    def clock(self) -> float:
        """What its monotonic clock says."""
        return (self._scheduler.now - self._lost_ticks) * self.rate

    def ticks(self, seconds: float) -> int:
        """Ticks that pass while its clock counts so much."""
        return max(1, round(seconds / self.rate))

    def after(self, delay: int, label: str, action: Callable[..., None], *args: Any) -> None:
        """Run an action there, `delay` ticks from now, unless the host dies before."""
        self._scheduler.after(delay, "", self._fire, self.boots, label, action, args)

    def delay(self, most: int) -> int:
        """A random delay."""
        return self._scheduler.delay(most)

    def take(self, label: str, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Something has come over the network."""
        self._fire(self.boots, label, action, args)

    def _fire(
        self, boots: int, label: str, action: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        if self.is_down or boots != self.boots:
            return
        if self.is_stopped:
            self._inbox.append((boots, label, action, args))
            return
        if label:
            self._scheduler.note(label)
        action(*args)

    def counts(self, agent: SimulatedAgent) -> None:
        """A beat of an agent is heard: those that were heard before it count no longer."""
        if self.heard and agent is self.heard[-1]:
            return
        if agent in self.heard:
            raise Failure(f"{agent.end} and {self.heard[-1].end} count at the same time")
        self.heard.append(agent)

    def free_address(self) -> str:
        """Where the next process will listen: a port that became free is used again."""
        used = {process.address for process in self.processes if process.is_alive}
        ports = (f"{self.name}:{port}" for port in itertools.count(1))
        return next(address for address in ports if address not in used)

    # -- stop, wake up, die, come back --

    def stop(self) -> None:
        """Nothing happens there until it wakes up."""
        self.is_stopped, self.has_slept = True, True
        self._stopped_at = self._scheduler.now

    def wake_up(self, clock_stood_still: bool) -> None:
        """Everything that has come meanwhile happens now."""
        if not self.is_stopped:
            return
        self.is_stopped = False
        if clock_stood_still:
            self._lost_ticks += self._scheduler.now - self._stopped_at
        inbox, self._inbox = self._inbox, []
        for entry in inbox:
            self._fire(*entry)

    def die(self) -> None:
        """The power is gone: no connection is closed."""
        self.is_down, self.is_stopped = True, False
        self.boots += 1
        self._inbox.clear()
        for agent in self.agents:
            agent.vanish()
        for process in self.processes:
            process.vanish()
        for lane in self.lanes:
            lane.vanish()
        self.agents.clear()
        self.processes.clear()
        self.lanes.clear()

    def come_back(self) -> None:
        """It is there again, with nothing on it."""
        self.is_down = False


class Hosts:
    """All of them, the network between them, and who keeps agents running."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.of: dict[HostId, SimulatedHost] = {}
        for name in (DRIVER, EDGE):
            self.of[name] = SimulatedHost(cluster.scheduler, name, 0, 1.0)
        self.network = HostNetwork(cluster, self)
        self.in_flight = SimulatedCalls(self)
        self.watch = SimulatedWatch(self, self.in_flight.cancel)
        self.expected = rng.choice((2, 3, 3, 4))
        """How many hosts the service waits for at its start."""
        self.join_rng: Random | None = None
        """Chooses agents whose call to join comes twice; None: none does."""
        self.is_closed = False
        """Whether the scenario is over: nobody beats or tries again any more."""
        self.agent_count = 0
        for _ in range(self.expected):
            self.add(rng.choice(CAPACITIES))

    def add(self, capacity: int | None) -> SimulatedHost:
        """One more host for workers, and whoever keeps an agent on it running."""
        name = HostId(f"h{len(self.of) - 1}")
        rate = 1 + (self.rng.random() * 2 - 1) * DRIFT
        host = self.of[name] = SimulatedHost(self.cluster.scheduler, name, capacity, rate)
        self._carry_later(host)
        return host

    # -- questions --

    @property
    def of_workers(self) -> list[SimulatedHost]:
        """Hosts that can run workers."""
        return [host for host in self.of.values() if host.name not in (DRIVER, EDGE)]

    def reaches(self, caller: Endpoint, peer: Endpoint) -> bool:
        """Whether a ping would be answered."""
        is_open = caller.host == peer.host or self.network.are_open(caller.host, peer.host)
        return is_open and self.of[peer.host].is_running and peer.is_alive

    def executor(self, avoided: Collection[HostId] = ()) -> SimulatedHost:
        """A host on which Spark runs a task: one that it reaches, and on which it did not fail."""
        known = [
            host
            for host in self.of.values()
            if host.name != DRIVER and host.is_running and self.network.are_open(DRIVER, host.name)
        ]
        good = [host for host in known if host.name not in avoided] or known
        return self.rng.choice(good) if good else self.of[EDGE]

    def timer(self, name: HostId) -> SimulatedHost:
        """By which what runs on a host lives."""
        return self.of[name]

    # -- agents --

    def driver_died(self) -> None:
        """Connections to it close: its agents end, as far as they hear of it."""
        dead = self.cluster.coordinator
        for host in self.of_workers:
            for agent in host.agents:
                label = f"{agent.end} loses its driver"
                self.network.send(dead, agent, None, label, agent.end_all, "has no coordinator")

    def _carry(self, host: SimulatedHost) -> None:
        """Spark, systemd or a person keeps an agent on a host running."""
        if self.is_closed:
            return
        if host.is_running and not any(agent.is_alive for agent in host.agents):
            self.start_agent(host)
        self._carry_later(host)

    def _carry_later(self, host: SimulatedHost) -> None:
        delay = 1 + int(self.rng.random() * CARRIER_TICKS)
        self.cluster.scheduler.after(delay, "", self._carry, host)

    def start_agent(self, host: SimulatedHost) -> None:
        """An agent, perhaps beside one that is there."""
        self.agent_count += 1
        agent = SimulatedAgent(self.cluster, host, self.agent_count)
        host.agents = [*(a for a in host.agents if a.is_alive), agent]
        agent.join()
