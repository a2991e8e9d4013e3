"""Safety properties of hosts and of where workers are; see `invariants`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol.coordinator_messages import (
    Effect,
    HostJoined,
    HostLost,
    StartWorker,
    StopWorker,
)
from anabranch.protocol.fleet import Fleet
from anabranch.protocol.invariants import require
from anabranch.protocol.placement import has_room


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A worker before an event."""

    host: HostId | None
    """Where its process is."""
    prefers: frozenset[HostId]
    """Where the next one would be rather than elsewhere."""


def places_of(fleet: Fleet) -> dict[WorkerId, WorkerPlace]:
    """All workers at a moment."""
    return {
        worker: WorkerPlace(
            view.place, frozenset(h for h in (view.wish, view.host) if h is not None)
        )
        for worker, view in fleet.workers.items()
    }


def within_capacity(fleet: Fleet) -> None:
    """A host with more workers than it can run would be out of memory."""
    for host, count in fleet.runs().items():
        view = fleet.hosts.get(host)
        fits = view is not None and (view.capacity is None or count <= view.capacity)
        require(fits, "within_capacity", (host, count, view))


def waits_for_room(fleet: Fleet) -> None:
    """A worker that waits although a host has room would wait for ever."""
    if fleet.waiting() and not fleet.is_gathering:
        runs, hosts = fleet.runs(), fleet.usable()
        free = [host for host in hosts if has_room(host, hosts, runs)]
        require(not free, "waits_for_room", (fleet.waiting(), free))


def check_hosts(fleet: Fleet) -> None:
    """All properties of hosts."""
    within_capacity(fleet)
    waits_for_room(fleet)


def check_placed(
    fleet: Fleet, before: Mapping[WorkerId, WorkerPlace], effects: Sequence[Effect]
) -> None:
    """Workers crowded on one host would be lost together; nobody starts on a drained one."""
    runs = fleet.runs()
    hosts = {host: view for host, view in fleet.hosts.items() if host not in fleet.drained}
    for effect in effects:
        if not isinstance(effect, StartWorker):
            continue
        view = fleet.workers.get(effect.worker)
        if view is None or view.host is None:
            continue  # started and stopped at once
        require(view.host in hosts, "placed_on_usable", effect)
        place = before.get(effect.worker)
        if view.wish == view.host or (place is not None and view.host in place.prefers):
            continue
        free = [h for h in hosts if h not in view.tried and has_room(h, hosts, runs)]
        crowded = [h for h in free if runs[h] + 1 < runs[view.host]]
        require(not crowded, "spread_first", (effect, crowded, runs))


def check_moved_least(
    event: HostJoined | HostLost, before: Mapping[WorkerId, WorkerPlace], effects: Sequence[Effect]
) -> None:
    """A worker of another host would be stopped for nothing: its state would be loaded anew."""
    for effect in effects:
        if isinstance(effect, StopWorker):
            host = before[effect.worker].host
            require(host == event.host, "moved_least", (event, effect, host))
