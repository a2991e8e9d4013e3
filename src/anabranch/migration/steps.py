"""What a strategy can ask for, one step at a time; the controller answers when it is done."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from anabranch.migration.plan import GroupMove


class Arrival(Enum):
    """What the first transaction on a key group does whose state is still elsewhere."""

    BLOCK = "block"
    """Waits for the import."""
    GROUP = "group"
    """Fetches the key groups that it needs."""
    BIN = "bin"
    """Fetches the bins that its rows and due timers need."""
    KEY = "key"
    """Fetches the keys that its rows and due timers need."""


class ImportPriority(Enum):
    """In which order an import brings what is missing."""

    INDEX = "index"
    HOT = "hot"
    """Key groups and bins with most recent rows first."""
    WAITING = "waiting"
    """What transactions wait for first, then by rows that arrived for it per byte of state."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Targets open their channels to sources."""

    moves: tuple[GroupMove, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """Make replicas at the targets while the sources go on."""

    moves: tuple[GroupMove, ...]


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Bring replicas up to date; the result has how many changed entries that took."""

    moves: tuple[GroupMove, ...]


@dataclass(frozen=True, slots=True)
class Flip:
    """Change owners."""

    moves: tuple[GroupMove, ...]
    arrival: Arrival = Arrival.GROUP
    ready_first: bool = False
    """Whether a transaction applies key groups that are here before it waits for others."""


@dataclass(frozen=True, slots=True)
class Import:
    """Bring everything that is still missing; afterwards the sources are not needed."""

    moves: tuple[GroupMove, ...]
    order: ImportPriority = ImportPriority.INDEX
    by_bin: bool = False


@dataclass(frozen=True, slots=True)
class Clean:
    """Drop frozen state and replicas, close channels between peers."""

    moves: tuple[GroupMove, ...]


@dataclass(frozen=True, slots=True)
class CloseGate:
    """Let no new batch begin that touches the key groups of these moves; None: no batch at all."""

    moves: tuple[GroupMove, ...] | None = None


@dataclass(frozen=True, slots=True)
class OpenGate:
    """Let batches begin again."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Wait until no batch runs that began before the gate."""


@dataclass(frozen=True, slots=True)
class NextEpoch:
    """Wait until all operators of a query have committed a batch, or none has come for a while."""


@dataclass(frozen=True, slots=True)
class AskIdle:
    """Ask whether still no batch runs: the result has `idle`."""


@dataclass(frozen=True, slots=True)
class Shadow:
    """From the next batch on, sources and targets both process the rows; or no longer."""

    moves: tuple[GroupMove, ...]
    on: bool = True


@dataclass(frozen=True, slots=True)
class Lag:
    """Ask the targets whether they kept pace: the result has the key groups that did not."""

    moves: tuple[GroupMove, ...]


@dataclass(frozen=True, slots=True)
class SaveAll:
    """Every worker saves all its state in the store."""


@dataclass(frozen=True, slots=True)
class Restart:
    """All workers end and start again, under the routing after these moves."""

    moves: tuple[GroupMove, ...]


@dataclass(frozen=True, slots=True)
class LoadAll:
    """Every worker loads all its key groups from the store."""


@dataclass(frozen=True, slots=True)
class Together:
    """Run several strategies side by side, at most `limit` at a time."""

    parts: tuple[Steps, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class AddCount:
    """Add to a counter of the report."""

    name: str
    amount: int = 1


Step = (
    Connect
    | Copy
    | CatchUp
    | Flip
    | Import
    | Clean
    | CloseGate
    | OpenGate
    | Quiet
    | NextEpoch
    | AskIdle
    | Shadow
    | Lag
    | SaveAll
    | Restart
    | LoadAll
    | Together
    | AddCount
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a step: sums over all workers that took part."""

    counters: dict[str, int] = field(default_factory=dict)

    def __getitem__(self, name: str) -> int:
        return self.counters.get(name, 0)


Steps = Generator["Step", Any, None]
"""A strategy that runs: yields a Step, is sent its Outcome."""
