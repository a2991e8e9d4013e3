"""Which worker runs on which host: by capacity, spread first, and nobody moves who need not.

Pure: the same hosts and workers give the same places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.model.ids import HostId, WorkerId


@dataclass(frozen=True, slots=True)
class HostView:
    """A host that has joined."""

    capacity: int | None = None
    """How many workers it may run; None: as many as are asked for."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A worker that needs a host."""

    worker: WorkerId
    prefers: tuple[HostId, ...] = ()
    """Hosts that it should be on, best first."""
    avoids: frozenset[HostId] = frozenset()
    """Hosts on which it did not start: only if no other one has room."""


def place(
    wanted: Iterable[Wanted], hosts: Mapping[HostId, HostView], runs: Mapping[HostId, int]
) -> dict[WorkerId, HostId]:
    """A host for each worker, as far as there is room; `runs` is how many each host has already.

    Wishes come first, so that nobody else takes their room. The others go, one by one, where the
    fewest workers are.
    """
    places: dict[WorkerId, HostId] = {}
    count = Counter(dict(runs))
    rest: list[Wanted] = []
    for worker in wanted:
        usable = (h for h in worker.prefers if h in hosts and h not in worker.avoids)
        host = next((h for h in usable if _room(h, hosts[h], count)), None)
        if host is None:
            rest.append(worker)
        else:
            places[worker.worker] = host
            count[host] += 1
    for worker in sorted(rest, key=lambda worker: not worker.avoids):  # others can go anywhere
        free = [h for h, view in hosts.items() if _room(h, view, count)]
        if free:
            host = min(free, key=lambda h: (h in worker.avoids, *_rank(h, hosts[h], count)))
            places[worker.worker] = host
            count[host] += 1
    return places


def has_room(host: HostId, hosts: Mapping[HostId, HostView], runs: Mapping[HostId, int]) -> bool:
    """Whether a host can take one more worker."""
    return host in hosts and _room(host, hosts[host], Counter(dict(runs)))


def _room(host: HostId, view: HostView, count: Counter[HostId]) -> bool:
    return view.capacity is None or count[host] < view.capacity


def _rank(host: HostId, view: HostView, count: Counter[HostId]) -> tuple[float, float, str]:
    """Least workers first, then most room, then by name."""
    left = float("inf") if view.capacity is None else view.capacity - count[host]
    return count[host], -left, host
