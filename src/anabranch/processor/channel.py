"""Any operator with channels in front of its key groups: rows can be kept now and applied later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.keyspace import HASH, Int64s, KeySpace
from anabranch.model.spark_task import NO_TASK, SparkTask
from anabranch.processor.contract import (
    BatchTimes,
    CodePlace,
    OperatorEngine,
    OperatorStats,
    RowChunk,
    Transaction,
    View,
)
from anabranch.processor.tally import Tally, counting
from anabranch.state.channel import (
    CHANNEL,
    ChannelledState,
    Waiting,
    added,
    as_applied,
    drained,
    plain,
)
from anabranch.state.contract import GroupState, Sections

States = Mapping[int, GroupState]
_HASH_ONLY = pa.schema([pa.field(HASH, pa.int64())])


class ChannelEngine:
    """`OperatorEngine` around another one.

    A transaction is deferred (its rows wait, the operator does not hear of them) or applied: first
    what waits, batch by batch with the clocks of each, then its own rows. So a key's rows are seen
    in the same order and with the same clocks whatever was deferred; outputs come later.

    With `logs_rows` changelogs contain a transaction's rows instead of what they have changed:
    restoring means to apply them again, and to forget the outputs.
    """

    def __init__(self, engine: OperatorEngine, keyspace: KeySpace, logs_rows: bool = False) -> None:
        self.inner = engine
        self._keyspace = keyspace
        self.logs_rows = logs_rows

    def create_group(self) -> GroupState:
        """Empty state with an empty channel."""
        return ChannelledState(self.inner.create_group())

    def place(self) -> CodePlace | None:
        """As for the operator."""
        return self.inner.place()

    def due_hashes(self, state: GroupState, times: BatchTimes) -> Int64s:
        """Keys with something due."""
        return self.inner.due_hashes(cast(ChannelledState, state).inner, times)

    @property
    def is_by_key(self) -> bool:
        """As for the operator: keys of rows that wait are needed too."""
        return self.inner.is_by_key

    @property
    def logs_since_begin(self) -> bool:
        """As the operator does."""
        return self.inner.logs_since_begin

    @property
    def due_column(self) -> tuple[str, str] | None:
        """Where the operator keeps times."""
        return self.inner.due_column

    def due_limit(self, times: BatchTimes) -> int:
        """What is due at these clocks."""
        return self.inner.due_limit(times)

    @property
    def is_due_once(self) -> bool:
        """As for the operator."""
        return self.inner.is_due_once

    @property
    def expiring(self) -> Mapping[str, str]:
        """As for the operator."""
        return self.inner.expiring

    def unexpired(self, rest: Sections, here: Sections, times: BatchTimes) -> Sections:
        """A part of a key group without entries whose TTL is over; `here` is the other part.

        With rows that wait, all stay: these see the state at the clocks of their own batch.
        """
        if CHANNEL in rest or CHANNEL in here:
            return rest
        kept = dict(rest)
        for name, column in self.expiring.items():
            if name in rest:
                times_ms = rest[name].column(column)
                kept[name] = rest[name].filter(pc.greater(times_ms, times.processing_time_ms))
        return kept

    def look_up(
        self, views: Mapping[int, View], keys: pa.Table, section: str
    ) -> Iterator[pa.Table]:
        """What the entries have; rows that wait are not among them."""
        inner: dict[int, View] = {}
        for group, (state, before) in views.items():
            channelled = cast(ChannelledState, state)
            inner[group] = channelled.inner, before and channelled.is_inner_begun
        return self.inner.look_up(inner, keys, section)

    def catch_up(self, states: States) -> None:
        """Apply rows whose outputs are out already, up to the first ones that wait."""
        for group, state in states.items():
            channelled = cast(ChannelledState, state)
            for some in channelled.waiting:
                if not some.is_applied:
                    break
                part = _SubTransaction(_NOTHING, [some], logs=False, emits=False)
                with counting(part.tally):
                    self.inner.apply(part, {group: channelled.inner})
                channelled.waiting = channelled.waiting[1:]

    def close(self) -> None:
        """End of the worker."""
        self.inner.close()

    def defer(self, tx: Transaction, states: States) -> None:
        """Keep the rows of some of the transaction's key groups for a later one."""
        arrived = self._by_group(tx, states)
        if arrived:
            tx.log(CHANNEL, added(arrived))
        for some in arrived:  # nothing fails from here on
            cast(ChannelledState, states[some.group]).defer(some)

    def apply(self, tx: Transaction, states: States) -> OperatorStats:
        """What waits, then the transaction's own rows."""
        channels = {group: cast(ChannelledState, states[group]) for group in tx.groups}
        inner = {group: state.inner for group, state in channels.items()}
        logs_rows = self.logs_rows and not any(True for _ in tx.initial())
        stats = self._drain(tx, channels, logs_rows)
        own: Transaction = _SubTransaction(tx, logs=False) if logs_rows else tx
        _add(stats, self.inner.apply(own, inner))
        if logs_rows:
            tx.log(CHANNEL, added(as_applied(self._by_group(tx, states))))
        return stats

    def _drain(
        self, tx: Transaction, channels: Mapping[int, ChannelledState], logs_rows: bool
    ) -> OperatorStats:
        stats = OperatorStats()
        waiting = [some for state in channels.values() for some in state.waiting]
        if not waiting:
            return stats
        # An operator whose log covers all since `begin` says everything at the end.
        logs = not logs_rows and not self.inner.logs_since_begin
        for epoch in sorted({some.epoch for some in waiting}):
            for is_applied in (False, True):
                batch = [w for w in waiting if (w.epoch, w.is_applied) == (epoch, is_applied)]
                if batch:
                    part = _SubTransaction(tx, batch, logs=logs, emits=not is_applied)
                    inner = {some.group: channels[some.group].inner for some in batch}
                    with counting(part.tally):
                        done = self.inner.apply(part, inner)
                    _add(stats, OperatorStats() if is_applied else done)
        for state in channels.values():
            state.waiting = ()
        if logs_rows:  # what is durable stays what it was, except for the mark
            news = [some for some in waiting if not some.is_applied]
            if news:
                tx.log(CHANNEL, added(as_applied(news)))
        else:
            groups = sorted({some.group for some in waiting})
            last = max(some.epoch for some in waiting)
            tx.log(CHANNEL, drained(groups, last, waiting[0].rows))
        return stats

    def _by_group(self, tx: Transaction, states: States) -> list[Waiting]:
        """The transaction's rows, key group by key group, also where there are none."""
        clocks = cast("tuple[int, int, int]", astuple(tx.times))
        rows: dict[int, pa.Table] = {}
        empty = _HASH_ONLY.empty_table()
        for chunk in tx.chunks():
            groups = self._keyspace.group_of(chunk.rows.column(HASH).to_numpy())
            order = np.argsort(groups, kind="stable")
            ordered = plain(chunk.rows.take(pa.array(order)))
            empty = ordered.slice(0, 0)
            found, starts = np.unique(groups[order], return_index=True)
            ends = [*starts[1:].tolist(), len(order)]
            for group, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
                rows[group] = ordered.slice(start, end - start)
        return [
            Waiting(group, tx.epoch, clocks, rows.get(group, empty))
            for group in tx.groups
            if group in states
        ]


@dataclass(frozen=True, slots=True)
class _SubTransaction:
    """A transaction for some of what a transaction has to do (contract: Transaction)."""

    whole: Transaction
    waiting: Sequence[Waiting] | None = None
    """One batch of several key groups; None: the transaction's own rows."""
    logs: bool = True
    emits: bool = True
    unused: Tally = field(default_factory=Tally)

    @property
    def epoch(self) -> int:
        """Of the batch that brought the rows."""
        return self.whole.epoch if self.waiting is None else self.waiting[0].epoch

    @property
    def groups(self) -> tuple[int, ...]:
        """Key groups to apply."""
        if self.waiting is None:
            return self.whole.groups
        return tuple(some.group for some in self.waiting)

    @property
    def times(self) -> BatchTimes:
        """Clocks of the batch that brought the rows."""
        if self.waiting is None:
            return self.whole.times
        return BatchTimes(*self.waiting[0].clocks)

    @property
    def task(self) -> SparkTask:
        """The task that made the operator apply them."""
        return NO_TASK if self.whole is _NOTHING else self.whole.task

    @property
    def tally(self) -> Tally:
        """What was added counts with the outputs, once."""
        return self.whole.tally if self.emits else self.unused

    def chunks(self) -> Iterator[RowChunk]:
        """The rows."""
        if self.waiting is None:
            yield from self.whole.chunks()
            return
        tables = [some.rows for some in self.waiting if some.rows.num_rows]
        if tables:
            yield RowChunk(self.groups, pa.concat_tables(tables))

    def initial(self) -> Iterator[RowChunk]:
        """None: these are not the first rows, or there are no initial ones."""
        return iter(())

    def emit(self, rows: pa.Table) -> None:
        """Outputs, if they are not out yet."""
        if self.emits:
            self.whole.emit(rows)

    def log(self, section: str, entries: pa.Table) -> None:
        """Changes, if somebody wants them."""
        if self.logs:
            self.whole.log(section, entries)


_NOTHING = cast(Transaction, None)
"""The whole of a part that neither logs nor emits."""


def _add(total: OperatorStats, more: OperatorStats) -> None:
    for each in fields(OperatorStats):
        setattr(total, each.name, getattr(total, each.name) + getattr(more, each.name))
