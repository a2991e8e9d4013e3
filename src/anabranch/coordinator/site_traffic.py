"""How many rows of an operator are processed where their site belongs, and how many cross hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId, WorkerId
from anabranch.processor.sites import Sites
from anabranch.transport.messages.lanes import TransactionDone


@dataclass(slots=True)
class Counts:
    """Of rows that lanes have sent to workers."""

    rows: int = 0
    bytes: int = 0
    bytes_across_hosts: int = 0
    """The lane ran on another host than the worker."""
    bytes_away: int = 0
    """The worker ran elsewhere than where the site belongs."""

    def add(self, other: Counts) -> None:
        """Both together."""
        self.rows += other.rows
        self.bytes += other.bytes
        self.bytes_across_hosts += other.bytes_across_hosts
        self.bytes_away += other.bytes_away


@dataclass(frozen=True, slots=True)
class LanePlaces:
    """Who is where, at the end of a lane."""

    lane: HostId | None
    """None: no host of workers that is known."""
    workers: Mapping[WorkerId, HostId]
    homes: Mapping[int, Collection[HostId]]
    """Hosts where sites belong, by their first key group; the others belong nowhere."""


@dataclass(slots=True)
class SiteTraffic:
    """Counts of one operator by site, since the service started; a batch counts once."""

    sites: Sites
    totals: dict[int, Counts] = field(default_factory=dict)
    """By the first key group of the site."""
    lanes: dict[int, dict[int, Counts]] = field(default_factory=dict)
    """Of the running batch: a lane that runs again counts once."""

    def begin(self) -> None:
        """Another batch."""
        self.lanes = {}

    def finish(self, lane: int, transactions: Iterable[TransactionDone], at: LanePlaces) -> None:
        """A lane has come to its end."""
        found: dict[int, Counts] = {}
        for done in transactions:
            total = sum(done.rows)
            if not total:
                continue
            host, width = at.workers.get(WorkerId(done.report.worker)), self.sites.space.width
            for group, rows in zip(done.report.groups, done.rows, strict=True):
                if not rows:
                    continue
                first = group - group % width
                size = done.bytes * rows // total
                is_across = host is None or host != at.lane
                is_away = first in at.homes and host not in at.homes[first]
                counts = Counts(rows, size, size * is_across, size * is_away)
                found.setdefault(first, Counts()).add(counts)
        self.lanes[lane] = found

    def commit(self) -> None:
        """The batch exists."""
        for found in self.lanes.values():
            for first, counts in found.items():
                self.totals.setdefault(first, Counts()).add(counts)
        self.lanes = {}

    def describe(self) -> dict[str, Any]:
        """Plain values: by site, and what share of all bytes crosses."""
        names = {self.sites.groups_of(name)[0]: name for name in self.sites.names}
        every, undeclared = Counts(), Counts()
        shown = {name: asdict(Counts()) for name in self.sites.names}
        for first, counts in dict(self.totals).items():
            every.add(counts)
            if first in names:
                shown[names[first]] = asdict(counts)
            else:
                undeclared.add(counts)
        return {
            "sites": shown,
            "undeclared": asdict(undeclared),
            "share_across_hosts": _share(every.bytes_across_hosts, every.bytes),
            "share_away": _share(every.bytes_away, every.bytes),
        }


def lane_host(names: Iterable[str], addresses: Mapping[HostId, str]) -> HostId | None:
    """The host that a lane runs on, by its own names and addresses; None: none that is known."""
    known = [*names]
    for host, address in addresses.items():
        if host in known or address in known:
            return host
    return DRIVER if any(map(_is_loopback, known)) else None


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
