"""What must hold with hosts: who counts, who is placed where, that all goes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol import coordinator as control
from anabranch.protocol import host_invariants
from anabranch.protocol.leases import Loss
from anabranch.simulation.agent import TIMES, SimulatedAgent
from anabranch.simulation.checks import Failure
from anabranch.simulation.hosts import DRIFT, EDGE, Hosts, SimulatedHost
from anabranch.simulation.vote_checks import VoteChecks

if TYPE_CHECKING:
    from anabranch.simulation.coordinator import CoordinatorProcess
    from anabranch.simulation.worker import WorkerProcess

WATCH_TICKS = 50
BOUND_TICKS = 1_500
"""In which a batch or a move must come to its end while there is a healthy host with room."""
PATIENCE_TICKS = 300
"""After so long without one, somebody adds a host."""
DRIFT_SLACK = 2 * DRIFT * TIMES.lease
"""Of two clocks, in the time of a lease."""
CLOSE_TICKS = 400
"""After the last batch: every zombie must be gone then."""


class HostChecks:
    """All checks of hosts in one scenario."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.cluster = hosts.cluster
        self._progress: object = None
        self._since = 0
        """Since when nothing has come to its end, although there is a healthy host with room."""
        self._lacks_since = 0
        self.longest = 0
        self._votes = VoteChecks()
        self._voted: CoordinatorProcess | None = None
        """The life of the coordinator that they are of."""
        self.cluster.scheduler.after(WATCH_TICKS, "", self._watch)

    # -- every step of the coordinator --

    def before(
        self, process: CoordinatorProcess, event: control.Event
    ) -> dict[WorkerId, host_invariants.WorkerPlace]:
        """Where workers are, and would like to be."""
        if process is not self._voted:
            self._voted, self._votes = process, VoteChecks()
        self._votes.before(event, process.machine.fleet)
        return host_invariants.places_of(process.machine.fleet)

    def coordinator_step(
        self,
        process: CoordinatorProcess,
        event: control.Event,
        before: dict[WorkerId, host_invariants.WorkerPlace],
        effects: list[control.Effect],
    ) -> None:
        """The coordinator has decided about hosts and workers."""
        fleet = process.machine.fleet
        host_invariants.check_hosts(fleet)
        host_invariants.check_placed(fleet, before, effects)
        self._votes.after(event, fleet, effects)
        is_move = process.machine.moves.current is not None  # it may restart all workers now
        if isinstance(event, control.HostJoined | control.HostLost) and not is_move:
            host_invariants.check_moved_least(event, before, effects)

    def after_step(self, process: CoordinatorProcess) -> None:
        """Whoever is up was started by the agent that counts for its host."""
        registry = process.registry
        for worker, view in process.machine.workers.items():
            if view.phase is not control.WorkerPhase.UP or view.host is None:
                continue
            found = self.cluster.process_of(worker, view.incarnation)
            agent = registry.agents[view.host]
            if found is None or found.agent is not agent:
                raise Failure(f"{worker} is up on {view.host}, but {agent.end} did not start it")

    def host_lost(self, agent: SimulatedAgent, loss: Loss) -> None:
        """An agent whose lease is over has fenced itself before, if its clock is good."""
        machine = agent.machine
        if not agent.is_alive or not machine.is_running or machine.has_slept:
            return
        if "not been heard" in loss.reason and agent.lease.left(machine.clock) > DRIFT_SLACK:
            raise Failure(f"{agent.end} is given up, and its lease goes on")

    # -- all goes on --

    def _watch(self) -> None:
        cluster, now = self.cluster, self.cluster.scheduler.now
        driver, moves = cluster.driver, cluster.moves
        if self._is_over():
            cluster.scheduler.after(CLOSE_TICKS, "", self._close)
            return
        progress = driver.committed, driver.is_refused, moves.number, len(moves.open)
        if progress != self._progress:
            self._progress, self._since = progress, now
        if self._can_go_on():
            self._lacks_since = now
        else:
            self._since = now
            if now - self._lacks_since >= PATIENCE_TICKS:
                self._lacks_since = now
                host = self.hosts.add(None)
                cluster.scheduler.note(f"somebody adds host {host.name}")
        self.longest = max(self.longest, now - self._since)
        if now - self._since > BOUND_TICKS:
            raise Failure(
                f"nothing has come to its end since {self._since}, at batch {driver.epoch}"
            )
        cluster.scheduler.after(WATCH_TICKS, "", self._watch)

    def _is_over(self) -> bool:
        """Whether all that was asked for has come to its end."""
        driver = self.cluster.driver
        return driver.is_finished and (driver.is_refused or not self.cluster.moves.open)

    def _can_go_on(self) -> bool:
        """Whether healthy hosts have room for all workers, and reach each other, if by a third."""
        coordinator = self.cluster.coordinator
        if not coordinator.is_alive or self._is_cut_off(DRIVER):
            return False
        fleet = coordinator.machine.fleet
        healthy = [host for host in self.hosts.of_workers if self._is_healthy(host)]
        usable = [host for host in healthy if host.name not in fleet.drained]
        if not self._are_connected([host.name for host in healthy]):
            return False
        room = sum(len(fleet.workers) if h.capacity is None else h.capacity for h in usable)
        return room >= len(fleet.workers)

    def _are_connected(self, healthy: list[HostId]) -> bool:
        are_open = self.hosts.network.are_open
        return all(
            are_open(a, b) or any(are_open(a, c) and are_open(c, b) for c in healthy)
            for a in (*healthy, EDGE)
            for b in healthy
        )

    def _is_cut_off(self, name: HostId) -> bool:
        """Whether a host reaches no other host."""
        others = [h.name for h in self.hosts.of_workers if h.name != name]
        return not any(self.hosts.network.are_open(name, other) for other in others)

    def _is_healthy(self, host: SimulatedHost) -> bool:
        return host.is_running and self.hosts.network.are_open(host.name, DRIVER)

    # -- the end --

    def _close(self, suspects: frozenset[WorkerProcess] = frozenset()) -> None:
        """Every process that lives is one that the coordinator knows, or has not lived long."""
        if not self._is_over():  # something was asked for meanwhile
            self._progress = None
            self._watch()
            return
        unknown = frozenset(self._unknown())
        for process in unknown & suspects:
            raise Failure(f"{process.name} lives on {process.host}, and nobody knows it")
        if unknown:
            self.cluster.scheduler.after(CLOSE_TICKS, "", self._close, unknown)
        else:
            self.hosts.is_closed = True

    def _unknown(self) -> Iterator[WorkerProcess]:
        machine = self.cluster.coordinator.machine
        for host in self.hosts.of_workers:
            for process in host.processes if host.is_running else ():
                view = machine.workers.get(process.worker)
                is_known = (
                    view is not None
                    and process.coordinator is self.cluster.coordinator
                    and view.incarnation == process.incarnation
                    and view.place == host.name
                )
                if process.is_alive and not is_known:
                    yield process
