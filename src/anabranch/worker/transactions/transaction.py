"""A transaction in a worker: where its rows come from and where its effects go."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import ProcessorError
from anabranch.model.keyspace import GROUP, HASH, KeySpace
from anabranch.model.stats import TIMES
from anabranch.processor.contract import OperatorStats, RowChunk
from anabranch.processor.tally import Tally
from anabranch.protocol.epochs import TransactionReport
from anabranch.protocol.worker import (
    ApplyTransaction,
    AwaitArrivals,
    ChooseDeferred,
    FetchGroups,
    ForwardRows,
    LoadGroups,
    PersistChanges,
    RefuseTransaction,
    TransactionOpened,
)
from anabranch.state.contract import Sections
from anabranch.transport.messages.lanes import (
    TransactionDone,
    TransactionHeader,
    TransactionReports,
)
from anabranch.transport.spool import Spool
from anabranch.worker.busy import ACTIVITY_OF, SENDING, BusyClock
from anabranch.worker.transactions.row_buffer import RowBuffer


@dataclass(frozen=True, slots=True)
class TransactionOutput:
    """What a durable transaction left behind; cached for retries until the next epoch."""

    groups: tuple[int, ...]
    rows: Spool
    changelog: str | None
    stats: OperatorStats
    spent: Mapping[str, int] = field(default_factory=dict)
    """Milliseconds of each of TIMES."""
    deferred: frozenset[int] = frozenset()
    """Key groups whose rows wait."""
    tally: Tally = field(default_factory=Tally)
    counts: Mapping[int, int] = field(default_factory=dict)
    """Rows by key group, if the operator has sites."""
    mean_bytes: float = 0.0
    """Of a row."""

    def report(self, worker: str, groups: list[int]) -> TransactionDone:
        """For the lane: what was done for some of the key groups."""
        deferred = tuple(group for group in groups if group in self.deferred)
        report = TransactionReport(worker, tuple(groups), self.changelog, deferred)
        rows = tuple(self.counts[group] for group in groups) if self.counts else ()
        size = round(sum(rows) * self.mean_bytes)
        return TransactionDone(report, {**asdict(self.stats), **self.spent}, rows, size)


@dataclass(frozen=True, slots=True)
class Forwarded:
    """What the new owner of some key groups answered for the rows that were passed on to it."""

    groups: tuple[int, ...]
    sent: int
    """Rows that were passed on."""
    reports: tuple[TransactionDone, ...]
    tallies: bytes
    rows: Spool


@dataclass(frozen=True, slots=True)
class TransactionAnswer:
    """Reply to a lane: outputs of its key groups, possibly from several earlier transactions."""

    schema: pa.Schema
    report: TransactionReports
    parts: tuple[tuple[TransactionOutput, tuple[int, ...]], ...]
    forwarded: tuple[Forwarded, ...] = ()
    busy: BusyClock = field(default_factory=BusyClock)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Output rows, GROUP first."""
        for batch in self._batches():
            with self.busy.counted(SENDING):  # the server sends it before it asks for the next one
                yield batch

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for output, groups in self.parts:
            if len(groups) == len(output.groups):
                yield from output.rows
                continue
            wanted = pa.array(groups, pa.int32())
            for batch in output.rows:
                yield batch.filter(pc.is_in(batch.column(GROUP), value_set=wanted))
        for answer in self.forwarded:
            yield from answer.rows


TransactionEffect = (
    ChooseDeferred
    | AwaitArrivals
    | FetchGroups
    | LoadGroups
    | ForwardRows
    | ApplyTransaction
    | PersistChanges
    | RefuseTransaction
)
"""What the thread that serves a transaction does for it."""


class RunningTransaction:
    """The operator's view of a transaction (contract: Transaction) and the worker's handle."""

    def __init__(
        self,
        opened: TransactionOpened,
        header: TransactionHeader,
        rows: RowBuffer,
        output_schema: pa.Schema,
        output_bytes_max: int,
        busy: BusyClock,
    ) -> None:
        self.opened = opened
        self.header = header
        self.times = header.times
        self.task = header.task
        self.tally = Tally()
        self.rows = rows
        self.is_abandoned: Callable[[], bool] = lambda: False
        """Whether the lane that wants the outputs is gone."""
        self.todo: queue.SimpleQueue[TransactionEffect | TransactionAnswer] = queue.SimpleQueue()
        """For the thread that serves this transaction."""
        self.groups: tuple[int, ...] = ()
        """Key groups to apply; set when the protocol has decided, once or twice."""
        self.applied: tuple[int, ...] = ()
        """All key groups that were applied so far."""
        self.deferred: set[int] = set()
        """Key groups whose rows wait for a later transaction."""
        self.waits = None if header.waits is None else frozenset(header.waits)
        """The key groups whose rows have to wait, if that is settled; None: it is chosen here."""
        self.forwarded: list[Forwarded] = []
        self._busy = busy
        self._seconds = dict.fromkeys(TIMES, 0.0)
        self.initial_rows: list[RowChunk] = []
        self.stats = OperatorStats()
        self._output_schema = output_schema
        self._output_bytes_max = output_bytes_max
        self.output = Spool(output_bytes_max)
        self._log: dict[str, list[pa.Table]] = {}

    @property
    def epoch(self) -> int:
        """Spark's batch id."""
        return self.opened.epoch

    def chunks(self) -> Iterator[RowChunk]:
        """Rows of the key groups to apply."""
        wanted = set(self.groups)
        for chunk in self.rows.chunks():
            if wanted.issuperset(chunk.groups):
                yield chunk
            else:
                yield from self._partly(chunk, wanted)

    def initial(self) -> Iterator[RowChunk]:
        """Initial-state rows."""
        return iter(self.initial_rows)

    def emit(self, rows: pa.Table) -> None:
        """Add outputs."""
        if rows.num_rows:
            self._check_nulls(rows)
            for batch in rows.cast(self._output_schema).combine_chunks().to_batches():
                self.output.append(batch)

    def log(self, section: str, entries: pa.Table) -> None:
        """Add changes."""
        if entries.num_rows:
            self._log.setdefault(section, []).append(entries)

    def note_applied(self, stats: OperatorStats) -> None:
        """The operator has done its work on `groups`."""
        for each in fields(OperatorStats):
            total = getattr(self.stats, each.name) + getattr(stats, each.name)
            setattr(self.stats, each.name, total)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Count the time of something: one of TIMES."""
        started = time.monotonic()
        try:
            yield
        finally:
            seconds = time.monotonic() - started
            self._seconds[what] += seconds
            if what in ACTIVITY_OF:
                self._busy.add(ACTIVITY_OF[what], seconds)

    @property
    def spent(self) -> dict[str, int]:
        """Milliseconds of each of TIMES, as far as there are any."""
        spent = {what: round(1000 * seconds) for what, seconds in self._seconds.items()}
        return {what: ms for what, ms in spent.items() if ms}

    def changes(self) -> Sections:
        """Everything logged."""
        # Some have a column more: KEPT.
        return {
            name: pa.concat_tables(tables, promote_options="default")
            for name, tables in self._log.items()
        }

    def reset(self) -> None:
        """Forget effects of an application that failed."""
        self.applied = ()
        self.deferred = set()
        self._log = {}
        self.output = Spool(self._output_bytes_max)
        self.stats = OperatorStats()
        self.tally = Tally()

    def _check_nulls(self, rows: pa.Table) -> None:
        for about, column in zip(self._output_schema, rows.columns, strict=True):
            if not about.nullable and column.null_count:
                raise ProcessorError(
                    f"NULL value appeared in the non-nullable output column '{about.name}' of "
                    f"operator '{self.opened.operator}'. Give a value, or make the column nullable "
                    "in outputStructType (DDL: without NOT NULL). The batch was not applied."
                )

    def _partly(self, chunk: RowChunk, wanted: set[int]) -> Iterator[RowChunk]:
        groups = tuple(g for g in chunk.groups if g in wanted)
        if groups:
            rows = rows_of_groups(chunk.rows, groups, self.rows.keyspace)
            if rows.num_rows:
                yield RowChunk(groups, rows)


def rows_of_groups(rows: pa.Table, groups: tuple[int, ...], keyspace: KeySpace) -> pa.Table:
    """Rows whose key belongs to some key groups."""
    wanted = np.zeros(keyspace.groups, dtype=bool)
    wanted[list(groups)] = True
    hashes = rows.column(HASH).to_numpy()
    return rows.filter(pa.array(wanted[keyspace.group_of(hashes)]))
