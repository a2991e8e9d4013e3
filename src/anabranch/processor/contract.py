"""The line between workers, which own transactions, and operators, which know what rows mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from anabranch.model.batch_times import BatchTimes as BatchTimes
from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.model.spark_task import SparkTask
from anabranch.processor.sites import PlacedBy
from anabranch.processor.tally import Tally
from anabranch.state.backend import MEMORY, Backend
from anabranch.state.contract import GroupState

INITIAL_ROWS = "rows"
"""Section name in the files that keep an operator's initial state."""


@dataclass(frozen=True, slots=True)
class RowChunk:
    """All rows of some key groups of a transaction; HASH first, then the input columns."""

    groups: tuple[int, ...]
    rows: pa.Table


class Transaction(Protocol):
    """All rows of one lane for one epoch on one worker, and where the effects go."""

    @property
    def epoch(self) -> int:
        """Spark's batch id."""

    @property
    def groups(self) -> tuple[int, ...]:
        """Every key group of the transaction, also those without rows (their timers may be due)."""

    @property
    def times(self) -> BatchTimes:
        """Clock readings of the batch."""

    @property
    def task(self) -> SparkTask:
        """The lane's Spark task."""

    @property
    def tally(self) -> Tally:
        """What user code adds to Spark's accumulators."""

    def chunks(self) -> Iterator[RowChunk]:
        """The rows, in chunks with disjoint key groups; a group's rows are all in one chunk."""

    def initial(self) -> Iterator[RowChunk]:
        """Initial-state rows, in the same form; empty except in the operator's first epoch."""

    def emit(self, rows: pa.Table) -> None:
        """Add output rows: GROUP (int32) first, then the operator's output columns."""

    def log(self, section: str, entries: pa.Table) -> None:
        """Add changed entries to the changelog: HASH, OP (uint8), key columns, payload."""


View = tuple[GroupState, bool]
"""State as it is, or (True) as it was at its last `begin`."""


@dataclass(slots=True)
class OperatorStats:
    """What a transaction did, in the words of Spark's state operator progress."""

    rows_updated: int = 0
    rows_removed: int = 0
    rows_dropped_late: int = 0
    timers_fired: int = 0


@dataclass(frozen=True, slots=True)
class CodePlace:
    """Where user code is."""

    method: str
    mark: object
    """The same object as long as it is the same call."""
    key: Callable[[], str] | None = None
    """The key, as a person reads it; None: the call is not for one key."""


class OperatorEngine(Protocol):
    """One operator on one worker."""

    @property
    def logs_since_begin(self) -> bool:
        """Whether `apply` logs all changes since `begin`, also those of `apply` calls before."""

    def create_group(self) -> GroupState:
        """Empty state for a key group."""

    def apply(self, tx: Transaction, states: Mapping[int, GroupState]) -> OperatorStats:
        """Run the transaction on the states of its key groups (all of `tx.groups` are there).

        `begin` was called on each state. On an exception the worker undoes all of them, so nothing
        here needs to be atomic. The same rows in the same order give the same outputs in the same
        order.
        """

    def place(self) -> CodePlace | None:
        """Where user code is just now; None: nowhere. Any thread may ask, at any time."""

    def due_hashes(self, state: GroupState, times: BatchTimes) -> Int64s:
        """Hashes of keys for which a transaction at these clocks does something without rows.

        Timers, windows and sessions; changes nothing. Expired TTL is not among them: nobody sees
        such entries, and the next transaction or snapshot that has them removes them.
        """

    @property
    def is_by_key(self) -> bool:
        """Whether a transaction needs nothing but entries of its rows' keys and of what is due."""

    @property
    def due_column(self) -> tuple[str, str] | None:
        """Section and column with the times that `due_hashes` looks at; None: nothing is ever due.

        Files have an index of it, so that what is due is found without reading the state.
        """

    def due_limit(self, times: BatchTimes) -> int:
        """What is due at these clocks: values of the due column up to this one."""

    @property
    def is_due_once(self) -> bool:
        """Whether what was due in a batch is not due in the next one, unless it was written."""

    @property
    def expiring(self) -> Mapping[str, str]:
        """Sections with TTL, and the column with the processing time when an entry is over."""

    def look_up(
        self, views: Mapping[int, View], keys: pa.Table, section: str
    ) -> Iterator[pa.Table]:
        """What a section has of keys (HASH and the key columns) of some key groups.

        It is settled when this returns; the tables, of bounded size, are made when they are taken,
        while transactions may go on. For the driver, which knows the operator's definition too;
        changes nothing.
        """

    def close(self) -> None:
        """End of the worker: let user code clean up."""


class OperatorDefinition(Protocol):
    """An operator as made in the driver; picklable, sent to workers with the token only."""

    @property
    def description(self) -> Mapping[str, Any]:
        """JSON-able: what must be the same between runs (kind, keys, state variables, types)."""

    def unreadable(self, stored: Mapping[str, Any]) -> list[str]:
        """What of state with another description cannot be used, in words; empty: all can."""

    def after(self, stored: Mapping[str, Any]) -> OperatorDefinition:
        """The same, with what must be remembered of state with another description."""

    @property
    def placed_by(self) -> PlacedBy | None:
        """The key column that says where keys are; None: their hash does."""

    @property
    def output_schema(self) -> pa.Schema:
        """Columns of the outputs, without GROUP."""

    def open(self, keyspace: KeySpace, backend: Backend = MEMORY) -> OperatorEngine:
        """Make the engine, in a worker."""
