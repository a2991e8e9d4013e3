"""The workers and hosts as the coordinator knows them: who starts where, is up, waits, is given up.

A worker without a process waits until a host has room for it. Whatever changes hosts or workers
ends with a look at all that wait (`_place`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol.coordinator_messages import (
    Effect,
    HostJoined,
    HostLost,
    StartWorker,
    StopWorker,
    WorkerDown,
    WorkerStarted,
)
from anabranch.protocol.host_layout import HostsNow
from anabranch.protocol.placement import HostView, Wanted, has_room, place

STARTS_MAX = 3
"""Starts in a row that may fail on a host before another one is tried, or the worker given up."""


class WorkerPhase(Enum):
    """A worker process as the coordinator knows it."""

    WAITING = "waiting"
    STARTING = "starting"
    UP = "up"
    FAILED = "failed"


RUNNING = (WorkerPhase.STARTING, WorkerPhase.UP)
"""Phases with a process, which takes room on a host."""


@dataclass(slots=True)
class WorkerView:
    """One worker."""

    phase: WorkerPhase = WorkerPhase.WAITING
    incarnation: int = 0
    """Of its process; of the next one if it waits."""
    restarts: int = 0
    """How often a process that was gone was replaced."""
    failed_starts: int = 0
    """In a row, on the host that it was on last."""
    reason: str = ""
    grant: int | None = None
    """The order that tells a process that has started what it owns; None: not sent, or done."""
    host: HostId | None = None
    """Where its process is; of one that waits or is given up: where the last one was."""
    wish: HostId | None = None
    """Where it was asked to be."""
    tried: frozenset[HostId] = frozenset()
    """Hosts on which it could not be started."""

    @property
    def place(self) -> HostId | None:
        """The host on which it takes room."""
        return self.host if self.phase in RUNNING else None

    def wait(self) -> None:
        """Its process is gone, or never was: the next one needs a host."""
        self.phase, self.grant = WorkerPhase.WAITING, None


@dataclass(slots=True)
class Fleet:
    """All workers and hosts."""

    workers: dict[WorkerId, WorkerView] = field(default_factory=dict)
    retired: dict[WorkerId, int] = field(default_factory=dict)
    """Next incarnation of workers that are gone: a name that comes back is another process."""
    hosts: dict[HostId, HostView] = field(default_factory=dict)
    lost: dict[HostId, str] = field(default_factory=dict)
    """Hosts that were lost and have not come back, and why."""
    drained: frozenset[HostId] = frozenset()
    """Hosts that take no workers, until they are asked for again."""
    is_gathering: bool = False
    """Whether more hosts are about to join: nobody is placed before."""

    # -- hosts --

    def joined(self, event: HostJoined) -> list[Effect]:
        """A host can run workers: those that wait start, and those given up get another chance."""
        effects: list[Effect] = []
        if event.host in self.hosts:  # another agent: the workers of the one before are gone
            effects = self._lose(event.host, "Another agent has joined for it.")
        self.lost.pop(event.host, None)
        self.hosts[event.host] = HostView(event.capacity, event.labels)
        self.is_gathering = event.others_follow
        for view in self.workers.values():
            if view.phase is WorkerPhase.FAILED and event.host not in view.tried:
                self._try_again(view)
        return effects + self._place()

    def host_lost(self, event: HostLost) -> list[Effect]:
        """All workers of a host are gone at once; none of them counts as a failed start."""
        if event.host not in self.hosts:
            return []
        return self._lose(event.host, event.reason) + self._place()

    def _lose(self, host: HostId, reason: str) -> list[Effect]:
        del self.hosts[host]
        self.lost[host] = reason
        effects: list[Effect] = []
        for worker, view in self.workers.items():
            view.tried -= {host}
            if view.host != host:
                continue
            if view.phase in RUNNING:
                # Perhaps it can be told; if not, its agent ends it.
                effects.append(StopWorker(worker, view.incarnation))
                view.reason = f"Host {host} is lost: {reason}"
                self._replace(view)
            elif view.phase is WorkerPhase.FAILED:
                self._try_again(view)  # the host may have been the reason
            view.failed_starts = 0
        return effects

    def drain(self, hosts: Iterable[HostId]) -> None:
        """These hosts, and only these, take no workers from now on."""
        self.drained = frozenset(hosts)

    def usable(self) -> dict[HostId, HostView]:
        """Hosts that may take workers."""
        return {host: view for host, view in self.hosts.items() if host not in self.drained}

    def place_of(self, worker: WorkerId) -> HostId | None:
        """The host on which a worker has a process."""
        view = self.workers.get(worker)
        return view.place if view is not None else None

    def now(self) -> HostsNow:
        """Hosts and places at this moment, for plans."""
        at = {w: view.place for w, view in self.workers.items() if view.place is not None}
        return HostsNow(dict(self.hosts), self.drained, dict(self.lost), at)

    def runs(self) -> Counter[HostId]:
        """How many workers each host has."""
        return Counter(v.host for v in self.workers.values() if v.phase in RUNNING and v.host)

    def waiting(self) -> tuple[WorkerId, ...]:
        """Workers for which no host has room."""
        return tuple(w for w, view in self.workers.items() if view.phase is WorkerPhase.WAITING)

    def _place(self) -> list[Effect]:
        """Start the workers that wait, as far as there is room."""
        waiting = self.waiting()
        if self.is_gathering or not waiting:
            return []
        wanted = [_wanted(worker, self.workers[worker]) for worker in waiting]
        effects: list[Effect] = []
        places = place(wanted, self.usable(), self.runs())
        for worker in waiting:
            if worker in places:
                view = self.workers[worker]
                if view.host != places[worker]:
                    view.failed_starts = 0
                view.phase, view.host = WorkerPhase.STARTING, places[worker]
                effects.append(StartWorker(worker, view.incarnation, view.host))
        return effects

    # -- workers --

    def start(
        self, workers: Iterable[WorkerId], wishes: Mapping[WorkerId, HostId] | None = None
    ) -> list[Effect]:
        """Start workers that are not there; give those that were given up another chance."""
        for worker in workers:
            view = self.workers.get(worker)
            if view is None:
                view = self.workers[worker] = WorkerView(incarnation=self.retired.pop(worker, 0))
            elif view.phase is WorkerPhase.FAILED:
                self._try_again(view)
            view.wish = (wishes or {}).get(worker, view.wish)
        return self._place()

    def restart(self, keep: Iterable[WorkerId]) -> list[Effect]:
        """End all workers and start those that are kept."""
        kept = set(keep)
        effects: list[Effect] = []
        for worker, view in list(self.workers.items()):
            if view.phase in RUNNING:
                effects.append(StopWorker(worker, view.incarnation))
            if worker in kept:
                fresh = WorkerView(incarnation=view.incarnation + 1, wish=view.wish)
                fresh.host = view.host  # its files may be in the memory of that machine
                self.workers[worker] = fresh
            else:
                self.retired[worker] = view.incarnation + 1
                del self.workers[worker]
        return effects + self._place()

    def stop(self, worker: WorkerId) -> list[Effect]:
        """End a worker for good."""
        view = self.workers.pop(worker)
        self.retired[worker] = view.incarnation + 1
        if view.phase not in RUNNING:
            return []
        return [StopWorker(worker, view.incarnation), *self._place()]

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
        view.tried = frozenset()

    def down(self, event: WorkerDown) -> list[Effect]:
        """A process is gone: start the next one, unless too many did not start."""
        view = self.workers.get(event.worker)
        if view is None or view.incarnation != event.incarnation or view.phase not in RUNNING:
            return []
        if view.phase is WorkerPhase.STARTING:
            view.failed_starts += 1
        view.reason = event.reason
        if view.failed_starts >= STARTS_MAX and view.host is not None:
            view.tried |= {view.host}
            if not self._untried(view):
                view.phase, view.grant = WorkerPhase.FAILED, None
                return self._place()
            view.failed_starts = 0
        self._replace(view)
        return self._place()

    def has_room_elsewhere(self, worker: WorkerId) -> bool:
        """Whether another host than a worker's can take it."""
        hosts, runs = self.usable(), self.runs()
        return any(has_room(h, hosts, runs) for h in hosts if h != self.workers[worker].host)

    def leave_hosts(self, workers: Iterable[WorkerId]) -> list[Effect]:
        """Processes that too few can reach are replaced, on other hosts if there is room."""
        effects: list[Effect] = []
        for worker in workers:
            view = self.workers[worker]
            effects.append(StopWorker(worker, view.incarnation))
            view.reason = f"Lanes do not reach host {view.host}."
            view.tried |= {view.host} if view.host is not None else set()
            self._replace(view)
        return effects + self._place()

    def _untried(self, view: WorkerView) -> bool:
        """Whether a host has room on which a worker has not been tried."""
        hosts, runs = self.usable(), self.runs()
        return any(has_room(host, hosts, runs) for host in hosts if host not in view.tried)

    def _replace(self, view: WorkerView) -> None:
        view.incarnation += 1
        view.restarts += 1
        view.wait()

    def _try_again(self, view: WorkerView) -> None:
        """A worker that was given up gets a process again."""
        view.incarnation += 1
        view.failed_starts, view.restarts = 0, 0
        view.wait()

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

    def is_waiting(self, worker: WorkerId) -> bool:
        """Whether no host has room for the worker."""
        view = self.workers.get(worker)
        return view is not None and view.phase is WorkerPhase.WAITING


def _wanted(worker: WorkerId, view: WorkerView) -> Wanted:
    prefers = (host for host in (view.wish, view.host) if host is not None)
    return Wanted(worker, tuple(prefers), view.tried)
