"""Channel state: rows that a checkpoint contains beside the state that they have yet to change."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.model.keyspace import DELETE, HASH, OP, UPSERT, Int64s
from anabranch.state.contract import GroupState, Sections

CHANNEL = "__channel"
"""Section with waiting rows. All have the same place in their key group, so that they travel as
one: HASH is the key group's number, whose bin is 0. A row's own hash is in ROW_HASH."""

BIN = 0
EPOCH, CLOCKS, IS_APPLIED, ROW_HASH = "__epoch", "__clocks", "__is_applied", "__row_hash"

_OWN = pa.schema(
    [
        pa.field(HASH, pa.int64()),
        pa.field(EPOCH, pa.int64()),
        pa.field(CLOCKS, pa.list_(pa.int64(), 3)),
        pa.field(IS_APPLIED, pa.bool_()),
        pa.field(ROW_HASH, pa.int64()),
    ]
)
"""Then the operator's input columns. One entry without ROW_HASH heads the rows of a batch."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a key group got in one batch: rows in their order, and the batch's clocks."""

    group: int
    epoch: int
    clocks: tuple[int, int, int]
    rows: pa.Table
    """HASH first, then the operator's input columns; without rows, timers may still be due."""
    is_applied: bool = False
    """Its outputs are out: only the state must still be brought up to it."""


class ChannelledState:
    """A `GroupState` with a channel in front; operators work on `inner`.

    As of an epoch, the state is what `inner` becomes when all that is waiting is applied to it.
    """

    __slots__ = ("_adding", "_before", "inner", "is_inner_begun", "waiting")

    def __init__(self, inner: GroupState) -> None:
        self.inner = inner
        self.waiting: tuple[Waiting, ...] = ()
        """By epoch."""
        self._before: tuple[Waiting, ...] = ()
        self.is_inner_begun = True
        self._adding = threading.Lock()
        """Rows are put aside while another transaction is applied, so without the lock of the
        operator's turn; what an import brings may be installed just then."""

    def begin(self) -> None:
        """Start a transaction."""
        self.inner.begin()
        self._before, self.is_inner_begun = self.waiting, True

    def defer(self, some: Waiting) -> None:
        """Start a transaction that only adds to the channel: `inner` may be busy."""
        with self._adding:
            self._before, self.is_inner_begun = self.waiting, False
            self.waiting = (*self.waiting, some)

    def undo(self) -> None:
        """Go back to the last `begin`."""
        if self.is_inner_begun:
            self.inner.undo()
        self.waiting = self._before

    def settle(self) -> None:
        """The last transaction is final, and there is none yet: forget how to undo it."""
        self.inner.begin()

    def export(self, bins: Collection[int] | None = None, hashes: Int64s | None = None) -> Sections:
        """Entries and, unless only keys are wanted, waiting rows."""
        sections = self.inner.export(bins, hashes)
        return sections if hashes is not None else self._with_channel(sections, bins)

    def export_packed(self, bins: Collection[int]) -> Sections:
        """The same, in the form that costs least."""
        return self._with_channel(self.inner.export_packed(bins), bins)

    def install(self, sections: Sections) -> None:
        """Add exported entries and waiting rows."""
        rest, channel = _split(sections)
        if rest:
            self.inner.install(rest)
        if channel is None:
            return
        with self._adding:
            same = self._before is self.waiting
            self.waiting = _changed(self.waiting, channel)
            self._before = self.waiting if same else _changed(self._before, channel)

    def replay(self, sections: Sections) -> None:
        """Apply the changelog of one transaction."""
        rest, channel = _split(sections)
        if rest:
            self.inner.replay(rest)
        if channel is not None:
            self.waiting = _changed(self.waiting, channel)

    def discard(self, bins: Collection[int]) -> None:
        """Drop the entries of some bins."""
        self.inner.discard(bins)
        if BIN in bins:
            self.waiting = self._before = ()

    @property
    def num_rows(self) -> int:
        """Entries and waiting rows."""
        return self.inner.num_rows + sum(int(some.rows.num_rows) for some in self.waiting)

    @property
    def num_bytes(self) -> int:
        """Memory held."""
        return self.inner.num_bytes + sum(int(some.rows.nbytes) for some in self.waiting)

    def _with_channel(self, sections: Sections, bins: Collection[int] | None) -> Sections:
        if not self.waiting or not (bins is None or BIN in bins):
            return sections
        return {**sections, CHANNEL: _encode(self.waiting)}


def plain(rows: pa.Table) -> pa.Table:
    """Rows without what only Spark says of their columns (metadata, never null): they are put
    together with others that have been in files."""
    return pa.table(rows.columns, names=rows.column_names)


def has_waiting(state: GroupState | None) -> bool:
    """Whether entries alone are not the whole state."""
    return isinstance(state, ChannelledState) and bool(state.waiting)


def waiting_in(states: Iterable[GroupState]) -> list[Waiting]:
    """All batches that wait in some key groups."""
    channelled = [state for state in states if isinstance(state, ChannelledState)]
    return [some for state in channelled for some in state.waiting]


def is_behind(state: GroupState, before: bool) -> bool:
    """Whether rows whose outputs are out are not in the entries (or were not at `begin`)."""
    assert isinstance(state, ChannelledState)
    waiting = state._before if before else state.waiting
    return any(some.is_applied for some in waiting)


def added(waiting: Sequence[Waiting]) -> pa.Table:
    """Changelog entries: these batches wait, or have another mark than before."""
    return _with_op(_encode(waiting), UPSERT)


def drained(groups: Iterable[int], epoch: int, like: pa.Table) -> pa.Table:
    """Changelog entries: nothing up to the epoch waits any more; `like` has the input columns."""
    heads = [Waiting(group, epoch, (0, 0, 0), like.slice(0, 0)) for group in groups]
    return _with_op(_encode(heads), DELETE)


def _with_op(entries: pa.Table, op: int) -> pa.Table:
    ops = pa.array(np.full(entries.num_rows, op, np.uint8))
    return entries.add_column(1, pa.field(OP, pa.uint8()), ops)


def _split(sections: Sections) -> tuple[Sections, pa.Table | None]:
    if CHANNEL not in sections:
        return sections, None
    rest = {name: table for name, table in sections.items() if name != CHANNEL}
    return rest, sections[CHANNEL]


def _changed(waiting: Iterable[Waiting], entries: pa.Table) -> tuple[Waiting, ...]:
    by_epoch = {some.epoch: some for some in waiting}
    for op, some in _decode(entries):
        if op == DELETE:
            by_epoch = {epoch: kept for epoch, kept in by_epoch.items() if epoch > some.epoch}
        else:
            by_epoch[some.epoch] = some
    return tuple(by_epoch[epoch] for epoch in sorted(by_epoch))


def _encode(waiting: Sequence[Waiting]) -> pa.Table:
    # A transaction without any row does not know the input columns.
    return pa.concat_tables(map(_encode_one, waiting), promote_options="default")


def _encode_one(some: Waiting) -> pa.Table:
    count = 1 + some.rows.num_rows
    inputs = some.rows.schema
    head = pa.table({field.name: pa.nulls(1, field.type) for field in inputs})
    rows = pa.concat_tables([head, plain(some.rows)])
    clocks = pa.array(np.tile(np.array(some.clocks, np.int64), count))
    own: list[Any] = [
        np.full(count, some.group, np.int64),
        np.full(count, some.epoch, np.int64),
        pa.FixedSizeListArray.from_arrays(clocks, 3),
        np.full(count, some.is_applied),
        rows.column(HASH),
    ]
    names = [*_OWN.names, *inputs.names[1:]]
    return pa.table([*own, *rows.columns[1:]], names=names)


def _decode(entries: pa.Table) -> Iterator[tuple[int, Waiting]]:
    """Batches in the order of their entries, each with its OP."""
    if not entries.num_rows:
        return
    heads = np.flatnonzero(entries.column(ROW_HASH).is_null().to_numpy(zero_copy_only=False))
    ops = entries.column(OP).to_pylist() if OP in entries.column_names else None
    about = entries.select(_OWN.names[:-1]).take(pa.array(heads)).to_pylist()
    inputs = [name for name in entries.column_names if name not in (*_OWN.names, OP)]
    rows = entries.select([ROW_HASH, *inputs]).rename_columns([HASH, *inputs])
    ends = [*heads[1:].tolist(), entries.num_rows]
    for head, end, known in zip(heads.tolist(), ends, about, strict=True):
        some = Waiting(
            known[HASH],
            known[EPOCH],
            tuple(known[CLOCKS]),
            rows.slice(head + 1, end - head - 1),
            known[IS_APPLIED],
        )
        yield (UPSERT if ops is None else ops[head]), some


def as_applied(waiting: Iterable[Waiting]) -> list[Waiting]:
    """The same batches after their outputs are out."""
    return [replace(some, is_applied=True) for some in waiting]
