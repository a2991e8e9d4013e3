"""On which hosts workers shall be: spread while they come, whole hosts emptied while they leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.autoscale.signals import FleetSignals, HostUse
from anabranch.model.ids import HostId


@dataclass(frozen=True, slots=True)
class HostPlan:
    """For a number of workers."""

    names: tuple[HostId, ...] | None = None
    """None: hosts stay as they are."""
    missing: int = 0
    """Workers without room."""


def spread(count: int, fleet: FleetSignals) -> HostPlan:
    """Where so many workers shall be."""
    ours = {
        host: use
        for host, use in fleet.hosts.items()
        if not use.is_drained or host in fleet.released
    }
    released = fleet.released.intersection(ours)
    room = _room(ours)
    missing = 0 if room is None else max(0, count - room)
    if len(ours) < 2:
        return HostPlan(missing=missing)
    used = {host: use for host, use in ours.items() if host not in released}
    if count >= fleet.workers:
        back = sorted(released)[: count - fleet.workers]  # a worker that comes needs one at most
        if not back:
            return HostPlan(missing=missing)
        return HostPlan((*sorted(used), *back), missing)
    kept = _after_leaving(count, used)
    if len(kept) == len(used):
        return HostPlan(missing=missing)
    return HostPlan(tuple(sorted(kept)), missing)


def _room(hosts: Mapping[HostId, HostUse]) -> int | None:
    """How many workers fit; None: any number."""
    total = 0
    for use in hosts.values():
        if use.capacity is None:
            return None
        total += use.capacity
    return total if hosts else None


def _after_leaving(count: int, used: Mapping[HostId, HostUse]) -> dict[HostId, HostUse]:
    """Hosts that are left when those with the fewest workers are emptied."""
    kept = dict(used)
    left = sum(use.workers for use in used.values())
    for host in sorted(used, key=lambda each: (used[each].workers, each)):
        rest = {other: use for other, use in kept.items() if other != host}
        room = _room(rest)
        fits = room is None or room >= count
        if rest and fits and left - used[host].workers >= count:
            kept, left = rest, left - used[host].workers
    return kept
