"""What the autoscaler decides, why, and on what that rests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from anabranch.model.ids import HostId


class Action(Enum):
    """What is done."""

    HOLD = "hold"
    RESCALE = "rescale"
    REBALANCE = "rebalance"


class Rule(Enum):
    """Why."""

    NO_DATA = "no-data"
    MOVING = "moving"
    RECOVERING = "recovering"
    STABILIZING = "stabilizing"
    BACKING_OFF = "backing-off"
    TAKEN_BACK = "taken-back"
    SKEW = "skew"
    HOT_GROUP = "hot-group"
    UP = "up"
    CONFIRMING = "confirming"
    AT_LIMIT = "at-limit"
    NO_ROOM = "no-room"
    REMEMBERED = "remembered"
    CANNOT_HELP = "cannot-help"
    SOURCE_SLOW = "source-slow"
    DOWN = "down"
    WAITING_DOWN = "waiting-down"
    ENOUGH = "enough"
    COST = "cost"


@dataclass(frozen=True, slots=True)
class Decision:
    """One of them; holding still is one too."""

    action: Action
    rule: Rule
    workers: int
    """That there are."""
    wanted: int
    """Workers that would be right; what is done may be less."""
    reason: str
    """A sentence for people."""
    query: str = ""
    """The one that decided."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What it rests on, as plain values."""
    to: int = 0
    """With RESCALE: so many workers."""
    hosts: tuple[HostId, ...] | None = None
    """With RESCALE: on these; None: wherever workers may be."""
    missing: int = 0
    """Workers for which no host has room."""
    row_seconds: float = 0.0
    """Of the busiest worker, for a row of the query."""

    @property
    def is_action(self) -> bool:
        """Whether something is to be done."""
        return self.action is not Action.HOLD

    @property
    def gist(self) -> tuple[object, ...]:
        """What makes it another decision than the one before."""
        return self.action, self.rule, self.wanted, self.query

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "action": self.action.value,
            "rule": self.rule.value,
            "workers": self.workers,
            "wanted": self.wanted,
            "reason": self.reason,
            "query": self.query,
            "inputs": dict(self.inputs),
            "to": self.to or None,
            "hosts": None if self.hosts is None else list(self.hosts),
            "missing": self.missing,
        }
