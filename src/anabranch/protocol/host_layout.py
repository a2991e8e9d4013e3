"""How many workers each host shall have: for requests that add, take away or spread workers.

A worker's process cannot change its host. So a worker that has to leave a host ends, and a new one
elsewhere takes its key groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.errors import InvalidArgument
from anabranch.model.host import DRIVER
from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol.placement import HostView


@dataclass(frozen=True, slots=True)
class HostsNow:
    """All hosts at a moment, and who runs where."""

    hosts: Mapping[HostId, HostView]
    drained: frozenset[HostId] = frozenset()
    """Hosts that take no workers."""
    lost: Mapping[HostId, str] = field(default_factory=dict)
    """Hosts that were lost and have not come back, and why."""
    at: Mapping[WorkerId, HostId] = field(default_factory=dict)
    """Every worker with a process, also those that a move is about to end."""

    @property
    def usable(self) -> dict[HostId, HostView]:
        """Hosts that take workers."""
        return {host: view for host, view in self.hosts.items() if host not in self.drained}

    def as_drained(self, drained: frozenset[HostId]) -> HostsNow:
        """The same with these hosts drained, and no others."""
        return HostsNow(self.hosts, drained, self.lost, self.at)

    def known(self, host: object) -> HostId:
        """A host that a user has named; an error if it has not joined."""
        found = next((each for each in self.hosts if each == host), None)
        if found is not None:
            return found
        why = next((why for lost, why in self.lost.items() if lost == host), None)
        if why is not None:
            raise InvalidArgument(
                f"Host {host} is lost ({why.rstrip('.')}). Hosts that are there: {self._names}."
            )
        raise InvalidArgument(f"There is no host {host!r}; there are {self._names}.")

    def labelled(self, label: str) -> list[HostId]:
        """Hosts with a label such as "rack=3"."""
        name, _, value = label.partition("=")
        return [host for host, view in self.hosts.items() if view.labels.get(name) == value]

    def meant_by(self, name: object) -> list[HostId]:
        """The host of a name, or all hosts with a label; an error if there is none."""
        is_label = isinstance(name, str) and "=" in name and name not in self.hosts
        if not isinstance(name, str) or not is_label:
            return [self.known(name)]
        found = self.labelled(name)
        if not found:
            raise InvalidArgument(
                f"No host has the label {name}; there are {self._names}. Start an agent with "
                f"--label {name}, give SparkHosts(labels=...), or name a host."
            )
        return found

    def only(self, hosts: object) -> HostsNow:
        """The same with all hosts drained but these, given by names or labels."""
        if isinstance(hosts, str) or not isinstance(hosts, Iterable):
            raise InvalidArgument(
                f"hosts must be a list of names or labels of hosts, got {hosts!r}."
            )
        wanted = [host for name in hosts for host in self.meant_by(name)]
        if not wanted:
            raise InvalidArgument(f"hosts must name at least one host; there are {self._names}.")
        return self.as_drained(frozenset(self.hosts).difference(wanted))

    def without(self, host: HostId) -> HostsNow:
        """The same with one more drained host; an error if no other one takes workers."""
        rest = self.as_drained(self.drained | {host})
        if not rest.usable:
            others = sorted(self.drained - {host})
            drained = f" ({', '.join(others)} drained before)" if others else ""
            raise InvalidArgument(
                f"{host} is the only host that takes workers{drained}: nobody could take its key "
                "groups. Let another host join, or name hosts again with rescale(n, hosts=[...])."
            )
        return rest

    @property
    def _names(self) -> str:
        return ", ".join(sorted(self.hosts)) or "none yet"

    def describe_room(self) -> str:
        """What the hosts can hold, for people."""
        if not self.usable:
            return "no host takes workers" if self.hosts else "no host has joined"
        shown = (
            f"{host} {'any number' if view.capacity is None else view.capacity}"
            for host, view in self.usable.items()
        )
        total = "any number" if self.room is None else self.room
        return f"the hosts can hold {total} ({', '.join(shown)})"

    @property
    def room(self) -> int | None:
        """How many workers fit on the hosts that take workers; None: any number."""
        total = 0
        for view in self.usable.values():
            if view.capacity is None:
                return None
            total += view.capacity
        return total


HERE = HostsNow({DRIVER: HostView()})
"""One machine, where any number of workers may run."""


def are_apart(host: HostId | None, other: HostId | None) -> bool:
    """Whether two hosts are known and different."""
    return host is not None and other is not None and host != other


@dataclass(frozen=True, slots=True)
class HostLayout:
    """The workers that there shall be."""

    kept: Mapping[WorkerId, HostId | None]
    """Workers that stay, and where; None: no host has room."""
    added: tuple[HostId | None, ...]
    """Hosts of workers that come."""

    @property
    def lacking(self) -> int:
        """For how many workers no host has room."""
        return [*self.kept.values(), *self.added].count(None)


def lay_out(
    workers: Sequence[WorkerId],
    spare: Sequence[WorkerId],
    count: int,
    now: HostsNow,
    is_even: bool = False,
) -> HostLayout:
    """So many workers on the hosts that take workers; as few as possible leave or come.

    `workers` are those that there are, the oldest first; `spare` ones are about to end, but may
    stay instead. Workers on other hosts leave. Without `is_even`, workers stay where they are, and
    if there are too many, the newest of the fullest hosts leave. With it, no host has two more than
    another, as far as there is room.
    """
    here: dict[HostId, list[WorkerId]] = {host: [] for host in now.usable}
    for worker in workers:
        if now.at.get(worker) in here:
            here[now.at[worker]].append(worker)
    limits = _limits(now, {*workers, *spare})
    if is_even:
        quotas = _filled(here, dict.fromkeys(here, 0), limits, count)
    else:
        quotas = _filled(here, _emptied(workers, here, count), limits, count)
    kept: dict[WorkerId, HostId | None] = {
        worker: host for host, some in here.items() for worker in some[: quotas[host]]
    }
    free: list[HostId | None] = []
    for host in sorted(here, key=lambda h: len(here[h])):
        free += [host] * (quotas[host] - len(here[host]))
    free += [None] * (count - sum(quotas.values()))
    waiting = [worker for worker in workers if worker not in now.at]
    for worker in waiting[: len(free)]:
        kept[worker] = free.pop(0)
    return HostLayout({w: kept[w] for w in workers if w in kept}, tuple(free))


Here = Mapping[HostId, Sequence[WorkerId]]
"""Hosts that take workers, and those that they have, the oldest first."""


def _limits(now: HostsNow, ours: Collection[WorkerId]) -> dict[HostId, float]:
    """How many workers each host can have, beside those that end there and cannot stay."""
    others = Counter(host for worker, host in now.at.items() if worker not in ours)
    return {
        host: float("inf") if view.capacity is None else view.capacity - others[host]
        for host, view in now.usable.items()
    }


def _emptied(workers: Sequence[WorkerId], here: Here, count: int) -> dict[HostId, int]:
    """How many workers each host keeps if there are to be so many at most."""
    quotas = {host: len(some) for host, some in here.items()}
    age = {worker: n for n, worker in enumerate(workers)}
    while sum(quotas.values()) > count:
        fullest = max(quotas.values())
        full = [host for host, quota in quotas.items() if quota == fullest]
        quotas[max(full, key=lambda h: age[here[h][fullest - 1]])] -= 1
    return quotas


def _filled(
    here: Here, quotas: dict[HostId, int], limits: Mapping[HostId, float], count: int
) -> dict[HostId, int]:
    """How many workers each host shall have, as far as there is room for so many."""

    def rank(host: HostId) -> tuple[float, ...]:
        # Fewest workers first; then where some are already, and where most room is left.
        return quotas[host], -len(here[host]), quotas[host] - limits[host]

    while sum(quotas.values()) < count:
        open_hosts = [host for host in sorted(quotas) if quotas[host] < limits[host]]
        if not open_hosts:
            break
        quotas[min(open_hosts, key=rank)] += 1
    return quotas
