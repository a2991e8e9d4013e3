"""One reconfiguration at a time: a new request takes the place of the one that runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.migration.plan import GroupMove, moves_between
from anabranch.migration.steps import Quiet
from anabranch.protocol.coordinator_messages import (
    Effect,
    MoveEnded,
    MoveRequested,
    OrderDone,
    OrderFailed,
)
from anabranch.protocol.move_context import MoveContext
from anabranch.protocol.move_run import MoveRun

SUPERSEDED = "Another request took its place."


@dataclass(slots=True)
class MoveQueue:
    """The one that runs and the one that waits for it to give way."""

    context: MoveContext
    order_ids: Iterator[int]
    current: MoveRun | None = None
    pending: MoveRequested | None = None
    unsettled: tuple[GroupMove, ...] = ()
    """Moves of ended reconfigurations whose state has not all arrived."""
    kept: tuple[GroupMove, ...] = ()
    """Moves whose replicas the next one will use."""

    def request(self, event: MoveRequested) -> list[Effect]:
        """Begin, as soon as the present one has given way."""
        effects: list[Effect] = []
        if self.pending is not None:
            effects.append(MoveEnded(self.pending.number, SUPERSEDED))
        self.pending = event
        if self.current is not None:
            wanted = moves_between(self.context.routing.owners, event.owners)
            keeps = frozenset((m.group, m.target) for m in wanted)
            effects.extend(self.current.give_way(SUPERSEDED, keeps))
        return effects + self._next()

    def order_ended(self, event: OrderDone | OrderFailed) -> list[Effect]:
        """A worker has answered."""
        if self.current is None:
            return []
        return self.current.order_ended(event) + self._next()

    def poll(self) -> list[Effect]:
        """Workers or batches have changed."""
        return [] if self.current is None else self.current.poll() + self._next()

    def epoch_passed(self) -> list[Effect]:
        """A batch was committed, or none has come for a while."""
        return [] if self.current is None else self.current.epoch_passed() + self._next()

    def count(self, name: str) -> None:
        """Something that the one that runs has caused, for its report."""
        if self.current is not None:
            self.current.counters[name] += 1

    def hosts_awaited(self, reason: str) -> list[Effect]:
        """Workers have waited long enough for a host."""
        return [] if self.current is None else self.current.hosts_awaited(reason) + self._next()

    def stuck(self, reason: str) -> list[Effect]:
        """Batches do not come to an end. A move that holds others back for them gives up."""
        if self.current is None:
            return []
        if any(isinstance(task.current, Quiet) for task in self.current.tasks):
            return self.current.give_way(reason) + self._next()
        return self.epoch_passed()

    def _next(self) -> list[Effect]:
        """Effects that begin the waiting request once nothing is in its way."""
        effects: list[Effect] = []
        while self.current is None or self.current.is_ended:
            if self.current is not None:
                self.unsettled, self.kept = self.current.unsettled, self.current.kept
                self.current = None
            if self.pending is None:
                break
            request, self.pending = self.pending, None
            self.current = MoveRun(request, self.context, self.order_ids)
            effects.extend(self.current.begin(self.unsettled, self.kept))
        return effects
