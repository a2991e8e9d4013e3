"""What the autoscaler is told: values, made by whoever can see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.model.ids import HostId


@dataclass(frozen=True, slots=True)
class SignalBatch:
    """A committed batch of a query."""

    started: float
    """When, on any clock that does not jump."""
    seconds: float
    """Of all of it, as the query sees it."""
    rows: int
    """That the query's operators took."""
    useful: Mapping[str, float]
    """Seconds in which workers applied rows, over the query's operators."""
    workers: int
    """That there were."""
    lag_rows: float = 0.0
    """That waited in the source when it was over."""
    is_calm: bool = True
    """Whether nothing else went on: no move, no worker that was replaced."""

    @property
    def ended(self) -> float:
        """When it was committed."""
        return self.started + self.seconds


@dataclass(frozen=True, slots=True)
class QueryLoad:
    """A query of the service."""

    name: str
    batches: tuple[SignalBatch, ...]
    """The recent ones, the newest last."""
    interval: float = 0.0
    """Of its trigger."""
    is_in_batch: bool = False
    """Whether one runs just now."""


@dataclass(frozen=True, slots=True)
class HostUse:
    """A host, and what it has to do with the service."""

    workers: int
    capacity: int | None = None
    """None: any number."""
    is_drained: bool = False


@dataclass(frozen=True, slots=True)
class GroupRows:
    """Recent rows of a key group."""

    group: int
    owner: str
    rows: float


@dataclass(frozen=True, slots=True)
class FleetSignals:
    """The workers."""

    workers: int
    """That there are, or that the running move will end with."""
    is_moving: bool = False
    recovering: str = ""
    """Why not all of them work; empty: all do."""
    state_bytes: int = 0
    worker_state_bytes_max: int | None = None
    """What each may have in memory; None: no limit."""
    hosts: Mapping[HostId, HostUse] = field(default_factory=dict)
    """Empty: all workers are on one machine without a limit."""
    released: frozenset[HostId] = frozenset()
    """Hosts that the autoscaler has drained itself."""
    groups: tuple[GroupRows, ...] = ()
    """Asked for only if one worker is much busier than the others."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Everything at a moment."""

    now: float
    queries: tuple[QueryLoad, ...]
    fleet: FleetSignals


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a dry run says about a step."""

    bytes: int = 0
    seconds: float = 0.0
    lack: str = ""
    """Why it is not possible now; empty: it is."""
