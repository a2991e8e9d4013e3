"""What the API needs of a service."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.durability.journal import JournalContent
from anabranch.durability.savepoint import Savepoint
from anabranch.model.journal_entry import JournalEntry
from anabranch.model.query_reports import BatchReport

Listener = Callable[[JournalEntry], None]


class ControlledService(Protocol):
    """A running `StateService`, as far as the API uses it."""

    def status(self) -> dict[str, Any]:
        """Workers, operators, the running reconfiguration."""

    def source_lag_rows(self) -> dict[str, int]:
        """By operator, where sources count rows."""

    def key_groups(self) -> list[dict[str, Any]]:
        """Owner, rows and bytes of each key group."""

    def ownership(self) -> dict[str, Any]:
        """Owners of all key groups, and those that are on their way."""

    def rescale(self, workers: int, **how: Any) -> Any:
        """A MoveHandle, or with `dry_run` a Forecast; so do the other five."""

    def move(self, key_groups: Sequence[int], to: str, **how: Any) -> Any:
        """Move some key groups."""

    def place(self, site: str, on: str | None, **how: Any) -> Any:
        """Move all state of a site."""

    def drain(self, worker: str | None = None, *, host: str | None = None, **how: Any) -> Any:
        """Empty a worker and end it, or all of a host."""

    def rebalance(self, **how: Any) -> Any:
        """Share key groups out by load."""

    def standby(self, workers: int, **how: Any) -> Any:
        """Keep replicas for a later rescale."""

    def recent_moves(self) -> list[MoveHandle]:
        """Running and recent reconfigurations, the oldest first."""

    def autoscale(self, **settings: Any) -> dict[str, Any]:
        """Other settings of the autoscaler; those that count now."""

    def autoscaler(self, limit: int = ...) -> dict[str, Any]:
        """Settings and the last decisions, the newest last."""

    def savepoint(self, name: str) -> Savepoint:
        """Make a savepoint."""

    def savepoints(self) -> list[Savepoint]:
        """All savepoints of the location."""

    def state(self, operator: str, variable: str | None = None) -> Any:
        """Lookups of single keys."""

    def history(self, since: float | None = None, until: float | None = None) -> JournalContent:
        """Entries of the journal."""

    def spark_batches(self) -> Mapping[str, Sequence[BatchReport]]:
        """What Spark itself says about the last batches of each operator's query."""

    def stop(self) -> None:
        """End it."""

    def on_entry(self, listener: Listener) -> None:
        """Call it for each entry of the journal from now on, at once, in any thread."""
