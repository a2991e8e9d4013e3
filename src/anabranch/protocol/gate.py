"""A gate: batches that begin after it was closed wait, those that run go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.model.routing import lane_groups
from anabranch.protocol.coordinator_messages import LaneBegan

if TYPE_CHECKING:
    from anabranch.protocol.coordinator import OperatorView


@dataclass(frozen=True, slots=True)
class Gate:
    """Closed for batches after the given ones."""

    groups: frozenset[int] | None
    """Key groups that are held back; None: all."""
    after: Mapping[str, int] = field(default_factory=dict)
    """Last batch of each operator that may still run."""
    held: set[int] = field(default_factory=set)
    """Requests that it holds back, or has."""

    @classmethod
    def close(cls, groups: frozenset[int] | None, operators: Mapping[str, OperatorView]) -> Gate:
        """Close it now."""
        after = {}
        for name, operator in operators.items():
            running = operator.current.epoch if operator.current is not None else None
            known = [epoch for epoch in (running, operator.committed) if epoch is not None]
            after[name] = max(known, default=-1)
        return cls(groups, after)

    def holds(self, event: LaneBegan, groups: int) -> bool:
        """Whether a lane has to wait."""
        if event.epoch <= self.after.get(event.operator, -1):
            return False
        if self.groups is None:
            return True
        return not self.groups.isdisjoint(lane_groups(event.lane, event.lanes, groups))
