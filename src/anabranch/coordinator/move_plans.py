"""Plans for what a user asks of a running service: from what there is, or will be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from anabranch.coordinator.calls import STATUS_SECONDS_MAX, ask_all
from anabranch.coordinator.planning import (
    TargetLayout,
    drained,
    host_drained,
    moved,
    rebalanced,
    rescaled,
)
from anabranch.coordinator.seating import Seating
from anabranch.coordinator.site_traffic import LanePlaces, lane_host
from anabranch.errors import StaleRouting
from anabranch.model.ids import HostId
from anabranch.model.ownership import whole
from anabranch.processes.worker_pool import WorkerPool
from anabranch.protocol import coordinator as protocol
from anabranch.protocol.host_layout import HostsNow
from anabranch.transport.messages.control import GroupLoad, Loads


class MovePlans:
    """Each request as the layout that it wants to reach."""

    def __init__(self, machine: protocol.CoordinatorMachine, lock: Any, pool: WorkerPool) -> None:
        self._machine = machine
        self._lock = lock
        self._pool = pool
        self.seating = Seating()
        self.addresses: Callable[[], Mapping[HostId, str]] = dict
        """Of hosts that have joined."""

    def wanted(self) -> TargetLayout:
        """What plans go on from."""
        raise NotImplementedError

    def plan(self) -> TargetLayout:
        """The present owners and workers."""
        with self._lock:
            fleet = self._machine.fleet
            owners, workers = self._machine.routing.owners, tuple(fleet.workers)
            placed = self.seating.placed
            return TargetLayout(owners, workers, drained_hosts=fleet.drained, placed=placed)

    def hosts(self) -> HostsNow:
        """Hosts and who runs where."""
        with self._lock:
            return self._machine.fleet.now()

    def places(self, lane: Sequence[str]) -> LanePlaces:
        """Who is where, as seen from a lane with these names."""
        now = self.hosts()
        at = lane_host(lane, self.addresses())
        return LanePlaces(at, now.at, self.seating.homes(now))

    def rescale(self, workers: Any, assignment: str, hosts: Any = None) -> TargetLayout:
        """Plan for a number of workers, on all hosts that are not drained or on some."""
        start, present = self.wanted(), self.plan().owners
        return rescaled(start, present, workers, assignment, self.hosts(), hosts)

    def move(self, groups: Any, to: Any) -> TargetLayout:
        """Plan for some key groups."""
        start = self.wanted()
        plan = moved(start, groups, to)
        self.seating.check_move(start, plan, self.hosts())
        return plan

    def place(self, site: Any, on: Any) -> TargetLayout:
        """Plan for a site."""
        return self.seating.place(self.wanted(), site, on, self.hosts())

    def drain(self, worker: Any) -> TargetLayout:
        """Plan without a worker."""
        return drained(self.wanted(), self.plan().owners, worker, self.hosts())

    def drain_host(self, host: Any) -> TargetLayout:
        """Plan without workers on a host."""
        return host_drained(self.wanted(), self.plan().owners, host, self.hosts())

    def rebalance(self) -> TargetLayout:
        """Plan by measured load: recent rows, or bytes if there are none or not all are known."""
        loads = self._loads()
        is_known = not any(load.unseen for load in loads.values())
        by_rows = is_known and any(load.rows for load in loads.values())
        load = {g: float(load.rows if by_rows else load.bytes) for g, load in loads.items()}
        return rebalanced(self.wanted(), load, self.hosts())

    def check_routing(self, version: int | None) -> None:
        """Refuse a request that was made up from an older picture."""
        with self._lock:
            now = self._machine.routing.version
        if version is not None and version != now:
            raise StaleRouting(
                f"Key groups have changed owners: the routing has version {now}, not {version}. "
                "Nothing was begun. Look at the status again, then decide."
            )

    def ownership(self) -> dict[str, Any]:
        """Owners of all key groups, and those that are on their way; no worker is asked."""
        with self._lock:
            routing, current = self._machine.routing, self._machine.moves.current
            moves = () if current is None else current.moves
            phases = {} if current is None else dict(current.phases)
        moving = [
            {**asdict(move), "phase": phases[move.group].value}
            for move in moves
            if move.group in phases
        ]
        return {**whole(routing), "moving": moving}

    def key_groups(self) -> list[dict[str, Any]]:
        """Owner, recent rows and bytes of each key group."""
        loads, owners, none = self._loads(), self.plan().owners, GroupLoad()
        found = [(owner, loads.get(group, none)) for group, owner in enumerate(owners)]
        return [
            {"group": group, "owner": owner, "rows": load.rows, "bytes": load.bytes}
            for group, (owner, load) in enumerate(found)
        ]

    def _loads(self, seconds_max: float = STATUS_SECONDS_MAX) -> dict[int, GroupLoad]:
        """What each key group costs, over all operators."""
        total: dict[int, GroupLoad] = {}
        for reply in ask_all(self._pool.peers(), Loads(), seconds_max).values():
            for group, load in reply.groups.items():
                total[group] = total.get(group, GroupLoad()) + load
        return total
