"""Cuts that are not symmetric: a lane does not reach a worker that the coordinator reaches.

Lanes say so when they begin again. If most of the hosts with lanes do, the worker gets another
process on another host. Else lanes of those hosts reach it through a relay: a worker between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol.coordinator_messages import LaneBegan
from anabranch.protocol.fleet import Fleet

FORGET_COMMITS = 100
"""After so many batches, lanes try to reach a worker directly again."""
LATELY_COMMITS = 2
"""A host has lanes if one of them has begun since so many batches."""


@dataclass(slots=True)
class Cut:
    """The lanes of a host do not reach a worker's process."""

    incarnation: int
    since: int
    """How many batches were committed when that was said."""
    in_vain: set[WorkerId] = field(default_factory=set)
    """Relays that did not help."""


@dataclass(slots=True)
class Reachability:
    """What lanes have said about workers."""

    commits: int = 0
    began: dict[HostId, int] = field(default_factory=dict)
    """How many batches were committed when a lane of a host began last."""
    cuts: dict[tuple[HostId, WorkerId], Cut] = field(default_factory=dict)
    moved: Counter[HostId] = field(default_factory=Counter)
    """How many workers were moved for a host's lanes since a batch was committed."""

    def committed(self) -> None:
        """A batch was committed."""
        self.commits += 1
        self.moved.clear()
        old = self.commits - FORGET_COMMITS
        for key in [key for key, cut in self.cuts.items() if cut.since <= old]:
            del self.cuts[key]

    def heard(self, event: LaneBegan, fleet: Fleet) -> list[WorkerId]:
        """A lane begins; workers that should get another process for what it says."""
        host = event.host
        if host is None:
            return []
        self.began[host] = self.commits
        for unreached in event.unreached:
            worker = unreached.worker
            if fleet.incarnation_up(worker) != unreached.incarnation:
                continue  # it was replaced meanwhile
            cut = self._cut(host, worker, fleet)
            if cut is None:
                cut = self.cuts[host, worker] = Cut(unreached.incarnation, self.commits)
            if unreached.relay is not None:
                cut.in_vain.add(unreached.relay)
        lost: list[WorkerId] = []
        for worker in sorted({unreached.worker for unreached in event.unreached}):
            if self._is_lost(host, worker, fleet):
                self.moved[host] += 1
                lost.append(worker)
        return lost

    def _is_lost(self, host: HostId, worker: WorkerId, fleet: Fleet) -> bool:
        """Whether another process elsewhere is the way out for a worker."""
        if self._cut(host, worker, fleet) is None or not fleet.has_room_elsewhere(worker):
            return False
        if self.moved[host] >= len(fleet.usable()):
            return False  # it is the lanes' host that is cut off
        return self._most_miss(worker, fleet) or self._relay(host, worker, fleet) is None

    def _most_miss(self, worker: WorkerId, fleet: Fleet) -> bool:
        oldest = self.commits - LATELY_COMMITS
        hosts = [host for host, commits in self.began.items() if commits >= oldest]
        missing = [host for host in hosts if self._cut(host, worker, fleet) is not None]
        return 2 * len(missing) > len(hosts)

    def ways(
        self, host: HostId | None, workers: Iterable[WorkerId], fleet: Fleet
    ) -> tuple[dict[WorkerId, WorkerId], list[WorkerId]]:
        """Relays to workers that a host's lanes do not reach directly; those that have none."""
        relays: dict[WorkerId, WorkerId] = {}
        stranded: list[WorkerId] = []
        for worker in workers:
            if host is None or self._cut(host, worker, fleet) is None:
                continue
            relay = self._relay(host, worker, fleet)
            if relay is not None:
                relays[worker] = relay
            else:
                stranded.append(worker)
                del self.cuts[host, worker]  # the next one tries everything again
        return relays, stranded

    def _cut(self, host: HostId, worker: WorkerId, fleet: Fleet) -> Cut | None:
        """What a host's lanes have said of the present process of a worker."""
        cut = self.cuts.get((host, worker))
        return cut if cut and cut.incarnation == fleet.incarnation_up(worker) else None

    def _relay(self, host: HostId, worker: WorkerId, fleet: Fleet) -> WorkerId | None:
        """A worker that a host's lanes reach, on a third host: those two miss each other."""
        in_vain = self.cuts[host, worker].in_vain
        near = (host, fleet.workers[worker].host)
        relays = [
            name
            for name, view in fleet.workers.items()
            if view.host not in near
            and name not in in_vain
            and fleet.incarnation_up(name) is not None
            and self._cut(host, name, fleet) is None
        ]
        return min(relays, default=None)
