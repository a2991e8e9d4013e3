"""How long each worker applied rows of an operator's batches, from what transactions report."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.transport.messages.lanes import TransactionDone

BATCHES_KEPT = 100


@dataclass(frozen=True, slots=True)
class BatchLoad:
    """A committed batch of an operator."""

    epoch: int
    started: float
    seconds: float
    rows: int
    useful: dict[str, float]
    """Seconds of applying, by worker; all that took part are in it."""
    version: int
    """Of the routing when it began."""
    state_bytes: int


@dataclass(slots=True)
class UsefulTime:
    """Of one operator."""

    batches: deque[BatchLoad] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))
    version: int = 0
    """Of the routing that the running batch began with."""
    _lanes: dict[int, Counter[str]] = field(default_factory=dict)
    """Of the running batch: a lane that runs again counts once."""

    def begin(self, version: int) -> None:
        """Another batch."""
        self.version, self._lanes = version, {}

    def finish(self, lane: int, transactions: Iterable[TransactionDone]) -> None:
        """A lane has come to its end."""
        found: Counter[str] = Counter()
        for done in transactions:
            found[done.report.worker] += done.stats.get("apply_ms", 0)
        self._lanes[lane] = found

    def commit(
        self, epoch: int, started: float, seconds: float, rows: int, state_bytes: int
    ) -> None:
        """The batch exists."""
        total: Counter[str] = Counter()
        for found in self._lanes.values():
            for worker, milliseconds in found.items():
                total[worker] += milliseconds
        useful = {worker: ms / 1000 for worker, ms in total.items()}
        self.batches.append(
            BatchLoad(epoch, started, seconds, rows, useful, self.version, state_bytes)
        )
