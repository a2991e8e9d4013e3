"""Which workers have the key groups of a site: those at the host where the site belongs.

Every plan of a move is changed so that each site is where it belongs, as far as its host is there.
Nothing moves by itself here: `site_keeper.py` asks for it when hosts come.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from anabranch.coordinator.planning import TargetLayout
from anabranch.errors import InvalidArgument
from anabranch.model.ids import HostId, WorkerId
from anabranch.processor.sites import Sites
from anabranch.protocol.host_layout import HostsNow

LABEL = "site"
"""Of a host: the site that belongs there, unless it was placed elsewhere."""


@dataclass(frozen=True, slots=True)
class Seat:
    """A site, its key groups, and where it belongs."""

    site: str
    groups: tuple[int, ...]
    on: str
    """A host, a label of hosts ("rack=3"), or a worker."""

    def hosts(self, now: HostsNow) -> list[HostId]:
        """Its hosts, those that take workers."""
        return [host for host in hosts_of(self.on, now) if host in now.usable]

    def staff(self, layout: TargetLayout, now: HostsNow) -> list[WorkerId]:
        """The workers that are where it belongs."""
        if self.on in layout.workers:
            return [WorkerId(self.on)]
        hosts = self.hosts(now)
        return [worker for worker in layout.workers if place_of(worker, layout, now) in hosts]


def hosts_of(on: str, now: HostsNow) -> list[HostId]:
    """Hosts with a name or a label."""
    return now.labelled(on) if "=" in on else [host for host in now.hosts if host == on]


def place_of(worker: WorkerId, layout: TargetLayout, now: HostsNow) -> HostId | None:
    """Where a worker is, or will be."""
    found = now.at.get(worker) or layout.hosts.get(worker)
    if found is None and len(now.hosts) == 1:
        return next(iter(now.hosts))
    return found


class Seating:
    """The sites of a service, and where they belong."""

    def __init__(
        self,
        sites: Sites | None = None,
        placed: Mapping[str, str] | None = None,
        save: Callable[[Mapping[str, str]], None] = lambda placed: None,
    ) -> None:
        self.sites = sites
        self.placed: Mapping[str, str] = dict(placed or {})
        """Where sites were placed, by name; a label of hosts says it for the others."""
        self._save = save

    def settle(self, placed: Mapping[str, str]) -> None:
        """Remember where sites were placed, also after a restart."""
        if placed != self.placed:
            self._save(placed)
            self.placed = dict(placed)

    def seats(self, placed: Mapping[str, str], now: HostsNow) -> list[Seat]:
        """Every site that belongs somewhere."""
        if self.sites is None:
            return []
        labelled = {
            name: f"{LABEL}={name}"
            for name in self.sites.names
            if name not in placed and hosts_of(f"{LABEL}={name}", now)
        }
        wanted = {**labelled, **placed}
        return [Seat(site, self.sites.groups_of(site), on) for site, on in wanted.items()]

    def seated(self, layout: TargetLayout, now: HostsNow) -> TargetLayout:
        """The layout with each site where it belongs; what has no place there stays as it is."""
        seats = self.seats(layout.placed, now)
        for seat in seats:
            if not seat.staff(layout, now):
                layout = _brought(layout, seat, seats, now)
            staff = seat.staff(layout, now)
            if staff:
                layout = replace(layout, owners=_given(layout.owners, seat.groups, staff))
        return layout

    def homes(self, now: HostsNow) -> dict[int, list[HostId]]:
        """Hosts where sites belong, also those that are drained, by their first key group."""
        return {
            seat.groups[0]: [now.at[WorkerId(seat.on)]]
            if seat.on in now.at
            else hosts_of(seat.on, now)
            for seat in self.seats(self.placed, now)
        }

    def place(self, start: TargetLayout, site: Any, on: Any, now: HostsNow) -> TargetLayout:
        """Plan for a site at a host, on hosts with a label, or on a worker; None: anywhere."""
        seat = self._seat(start, site, on, now)
        if seat is None:
            rest = {name: where for name, where in start.placed.items() if name != site}
            return replace(start, placed=rest)
        self._check_alone(start, seat)
        layout = replace(start, placed={**start.placed, seat.site: seat.on})
        if seat.staff(layout, now):
            return layout
        host = next((host for host in seat.hosts(now) if _has_room(host, layout, now)), None)
        if host is None:
            return replace(layout, lack=f"No host of {seat.on!r} has room for a worker.")
        added = _name(layout, now)
        return replace(
            layout, workers=(*layout.workers, added), hosts={**layout.hosts, added: host}
        )

    def check_move(self, start: TargetLayout, moved: TargetLayout, now: HostsNow) -> None:
        """Refuse to move key groups of a site away from where it belongs: they would come back."""
        for seat in self.seats(start.placed, now):
            staff = seat.staff(start, now)
            away = [
                group
                for group in seat.groups
                if moved.owners[group] != start.owners[group] and moved.owners[group] not in staff
            ]
            if staff and away:
                raise InvalidArgument(
                    f"Key groups {away} are of site {seat.site!r}, which belongs to {seat.on}. "
                    f"Move the site as a whole: place(site={seat.site!r}, on=...)."
                )

    def _seat(self, start: TargetLayout, site: Any, on: Any, now: HostsNow) -> Seat | None:
        if self.sites is None or not isinstance(site, str):
            raise InvalidArgument(f"site must be the name of a site, got {site!r}.")
        if on is None:
            return None
        if not isinstance(on, str) or not on:
            raise InvalidArgument(f"on must name a host, a worker or a label, got {on!r}.")
        if on not in start.workers:
            hosts = hosts_of(on, now) if "=" in on else [now.known(on)]
            if not hosts:
                raise InvalidArgument(
                    f"No host has the label {on}. Start an agent with --label {on}, or name a host."
                )
            if not now.usable.keys() & set(hosts):
                raise InvalidArgument(
                    f"{', '.join(hosts)} is drained and takes no workers. Name it in "
                    "rescale(n, hosts=[...]) first."
                )
        return Seat(site, self.sites.groups_of(site), on)

    def _check_alone(self, start: TargetLayout, seat: Seat) -> None:
        """Refuse two places for the same key groups: both sites are undeclared and share them."""
        assert self.sites is not None
        for other, on in start.placed.items():
            if other == seat.site or on == seat.on:
                continue
            if set(self.sites.groups_of(other)) & set(seat.groups):
                raise InvalidArgument(
                    f"Sites {other!r} and {seat.site!r} were not declared and share key groups "
                    f"{seat.groups[0]} to {seat.groups[-1]}, and {other!r} is placed on {on}. "
                    "Place both there, or declare them (sites=[...]) in a new location."
                )

    def describe(self, layout: TargetLayout, now: HostsNow) -> dict[str, dict[str, Any]]:
        """Plain values about sites: where they belong and where they are."""
        if self.sites is None:
            return {}
        seats = {seat.site: seat for seat in self.seats(layout.placed, now)}
        shown: dict[str, dict[str, Any]] = {}
        for site in dict.fromkeys((*self.sites.names, *seats)):
            groups, seat = self.sites.groups_of(site), seats.get(site)
            workers = sorted({layout.owners[group] for group in groups})
            places = {place_of(worker, layout, now) for worker in workers}
            shown[site] = {
                "key_groups": list(groups),
                "is_declared": site in self.sites.names,
                "belongs_to": None if seat is None else seat.on,
                "workers": list(workers),
                "hosts": sorted(place for place in places if place is not None),
                "is_there": seat is None or set(workers) <= set(seat.staff(layout, now)),
            }
        return shown


def _given(
    owners: tuple[WorkerId, ...], groups: Collection[int], staff: list[WorkerId]
) -> tuple[WorkerId, ...]:
    """Owners with some key groups shared out evenly among workers; as few as possible move."""
    result, most = list(owners), -(-len(groups) // len(staff))
    count = Counter[WorkerId]()
    rest = []
    for group in groups:
        owner = result[group]
        if owner in staff and count[owner] < most:
            count[owner] += 1
        else:
            rest.append(group)
    for group in rest:
        worker = min(staff, key=lambda each: count[each])
        result[group] = worker
        count[worker] += 1
    return tuple(result)


def _brought(
    layout: TargetLayout, seat: Seat, seats: Iterable[Seat], now: HostsNow
) -> TargetLayout:
    """With a worker at a host that has none, in place of the one that has most of the site."""
    host = next((host for host in seat.hosts(now) if _has_room(host, layout, now)), None)
    if host is None:
        return layout
    staffs = (other.staff(layout, now) for other in seats)
    needed = {staff[0] for staff in staffs if len(staff) == 1}
    count = Counter(layout.owners[group] for group in seat.groups)
    free = [worker for worker in layout.workers if worker not in needed]
    if not free:
        return layout
    leaving, coming = max(free, key=lambda worker: count[worker]), _name(layout, now)
    heirs = {leaving: coming}
    return replace(
        layout,
        owners=tuple(heirs.get(owner, owner) for owner in layout.owners),
        workers=tuple(heirs.get(worker, worker) for worker in layout.workers),
        hosts={**{w: h for w, h in layout.hosts.items() if w != leaving}, coming: host},
    )


def _has_room(host: HostId, layout: TargetLayout, now: HostsNow) -> bool:
    capacity = now.hosts[host].capacity
    coming = sum(1 for w, h in layout.hosts.items() if h == host and w not in now.at)
    return capacity is None or sum(1 for h in now.at.values() if h == host) + coming < capacity


def _name(layout: TargetLayout, now: HostsNow) -> WorkerId:
    taken = {*layout.workers, *layout.drained, *now.at}
    names = (WorkerId(f"w{number}") for number in itertools.count(1))
    return next(name for name in names if name not in taken)
