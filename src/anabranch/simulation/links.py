"""The network between hosts: a cut link swallows what is sent, without an error, until it heals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from anabranch.model.ids import HostId
from anabranch.simulation.network import Endpoint, SimulatedNetwork

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.hosts import Hosts

NEVER = 1 << 60
"""When a link heals that does not."""


class HostNetwork(SimulatedNetwork):
    """Links between hosts, each in one direction.

    What is sent over a cut link comes when it has healed, as in TCP: the sender tries again and
    again, less and less often. Over a link that never heals it never comes.
    """

    __slots__ = ("_cluster", "_cut_since", "_hosts", "_links")

    def __init__(self, cluster: Cluster, hosts: Hosts) -> None:
        super().__init__(cluster.scheduler)
        self._cluster = cluster
        self._hosts = hosts
        self._links: dict[tuple[HostId, HostId], int] = {}
        """When links heal that are cut."""
        self._cut_since: dict[tuple[HostId, HostId], int] = {}

    # -- links --

    def cut_links(self, links: Iterable[tuple[HostId, HostId]], until: int) -> None:
        """Swallow what is sent from the first host of each pair to the second one."""
        for link in links:
            if self.is_open(*link):
                self._cut_since[link] = self._scheduler.now
            self._links[link] = max(self._links.get(link, 0), until)

    def is_open(self, source: HostId, target: HostId) -> bool:
        """Whether what is sent now will come soon."""
        return self._links.get((source, target), 0) <= self._scheduler.now

    def was_open(self, source: HostId, target: HostId, since: int) -> bool:
        """Whether what was sent since then has come soon."""
        return self._links.get((source, target), 0) < since

    def are_open(self, a: HostId, b: HostId) -> bool:
        """Whether two hosts can talk to each other."""
        return self.is_open(a, b) and self.is_open(b, a)

    # -- messages --

    def _moment(self, source: Endpoint, target: Endpoint) -> int:
        return self._through(source, target, super()._moment(source, target))

    def _through(self, source: Endpoint, target: Endpoint, when: int) -> int:
        """When something comes over that would come at a moment if the link were open."""
        link, now = (source.host, target.host), self._scheduler.now
        heals = self._links.get(link, 0)
        if heals <= now or source.host == target.host:
            return when
        self._cluster.count("messages_swallowed")
        if heals == NEVER:
            return NEVER
        pause = (heals - self._cut_since[link]) / 2  # until it is tried again
        return max(when, heals + int(self._scheduler.rng.random() * pause))

    def send_late(
        self,
        ticks: int,
        source: Endpoint,
        target: Endpoint,
        label: str,
        deliver: Callable[..., None],
        *args: Any,
    ) -> None:
        """Deliver after so long."""
        when = self._through(source, target, self._scheduler.now + ticks)
        self._schedule(when, source, target, label, deliver, args)

    def _schedule(
        self,
        when: int,
        source: Endpoint,
        target: Endpoint,
        label: str,
        deliver: Callable[..., None],
        args: tuple[Any, ...],
    ) -> None:
        if when < NEVER:
            host = self._hosts.of[target.host]
            self._scheduler.at(when, "", host.take, label, deliver, args)
