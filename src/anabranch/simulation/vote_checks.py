"""What must hold where lanes miss workers: most of the hosts decide, and no host moves all.

Kept apart from `protocol/reachability.py`: the checks count for themselves what lanes have said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol import coordinator as control
from anabranch.protocol.fleet import Fleet
from anabranch.protocol.reachability import LATELY_COMMITS
from anabranch.simulation.checks import Failure

MOVED = "Lanes do not reach"
"""How the reason begins for which a worker has left its host."""


class VoteChecks:
    """What lanes have said in one life of the coordinator."""

    def __init__(self) -> None:
        self._commits = 0
        self._began: dict[HostId, int] = {}
        self._missed: set[tuple[HostId, WorkerId, int]] = set()
        self._moved: Counter[HostId] = Counter()
        """Workers that were moved for a host's lanes since a batch was committed."""
        self._usable = 0
        self._missed_by_most: list[tuple[WorkerId, int]] = []

    def before(self, event: control.Event, fleet: Fleet) -> None:
        """An event is about to be handled."""
        self._missed_by_most = []
        if isinstance(event, control.ManifestWritten):
            self._commits += 1
            self._moved.clear()
        if isinstance(event, control.LaneBegan) and event.host is not None:
            self._began[event.host] = self._commits
            said = {(u.worker, u.incarnation) for u in event.unreached}
            there = [each for each in said if fleet.incarnation_up(each[0]) == each[1]]
            self._missed |= {(event.host, *each) for each in there}
            self._usable = len(fleet.usable())
            left = self._usable - self._moved[event.host]  # others may be moved before these
            if len(there) <= left:
                self._missed_by_most = [
                    each
                    for each in there
                    if self._most_miss(*each) and fleet.has_room_elsewhere(each[0])
                ]

    def _most_miss(self, worker: WorkerId, incarnation: int) -> bool:
        lately = [h for h, at in self._began.items() if at >= self._commits - LATELY_COMMITS]
        return 2 * sum((h, worker, incarnation) in self._missed for h in lately) > len(lately)

    def after(self, event: control.Event, fleet: Fleet, effects: Sequence[control.Effect]) -> None:
        """It was handled."""
        if isinstance(event, control.LaneBegan) and event.host is not None:
            self._moves_within_limit(event, event.host, fleet, effects)
        for worker, incarnation in self._missed_by_most:
            if fleet.incarnation_up(worker) == incarnation:
                raise Failure(f"most hosts with lanes miss {worker}, and it stays where it is")
        for effect in effects:
            if isinstance(effect, control.RefuseRequest) and "do not reach" in str(effect.error):
                self._missed.clear()  # they try everything again

    def _moves_within_limit(
        self,
        event: control.LaneBegan,
        host: HostId,
        fleet: Fleet,
        effects: Sequence[control.Effect],
    ) -> None:
        missed = {unreached.worker for unreached in event.unreached}
        for effect in effects:
            if isinstance(effect, control.StopWorker) and effect.worker in missed:
                view = fleet.workers.get(effect.worker)
                self._moved[host] += view is not None and view.reason.startswith(MOVED)
        if self._moved[host] > self._usable:
            raise Failure(f"lanes of {host} have moved {self._moved[host]} workers in a batch")
