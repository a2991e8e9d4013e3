"""Runs a columnar processor on the tables of a worker's key groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import GROUP, HASH, Int64s, KeySpace
from anabranch.processor.columnar.aggregates import AggregateProcessor
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.late import timely
from anabranch.processor.columnar.returned import ProcessorCalls, Returned
from anabranch.processor.columnar.sessions import SessionProcessor
from anabranch.processor.contract import BatchTimes, CodePlace, OperatorStats, Transaction, View
from anabranch.state.backend import MEMORY, Backend
from anabranch.state.columnar.arena import TooManyBytes
from anabranch.state.columnar.compare import normalise
from anabranch.state.columnar.grouping import Places, Segments, group_rows
from anabranch.state.columnar.keyed import KeyedEntries
from anabranch.state.columnar.layout import SECTION, ColumnarLayout, columns_of, nullable
from anabranch.state.columnar.table import GroupTable
from anabranch.state.columnar.values import flat
from anabranch.state.contract import GroupState

_PIECE_ROWS_MAX = 1 << 20
_PIECE_BYTES_MAX = 128 << 20
_MICROS = 1000
_NO_KEY = np.zeros(1, np.int64)
"""The hash of the only key of an operator without key columns."""


class ColumnarEngine:
    """One columnar operator on one worker; see `OperatorEngine`."""

    logs_since_begin = False
    is_by_key = True

    def __init__(
        self, definition: ColumnarDefinition, keyspace: KeySpace, backend: Backend = MEMORY
    ) -> None:
        self._backend = backend
        self._processor = definition.processor
        self._calls = ProcessorCalls(definition.processor)
        self._definition = definition
        self._keyspace = keyspace
        self._layout = ColumnarLayout(
            definition.key_schema, self._processor.state_schema, self._processor.expiry
        )
        width = self._layout.record.itemsize
        self._piece_rows_max = max(1024, min(_PIECE_ROWS_MAX, _PIECE_BYTES_MAX // width))

    def create_group(self) -> GroupTable:
        """Empty table for a key group."""
        return self._backend.new_table(self._layout, self._keyspace)

    def apply(self, tx: Transaction, states: Mapping[int, GroupState]) -> OperatorStats:
        """Rows of all chunks, then the entries that expire."""
        tables = cast("Mapping[int, GroupTable]", states)
        stats = OperatorStats()
        is_idle = True
        for chunk in tx.chunks():
            for piece in self._pieces(chunk.rows):
                is_idle = False
                self._rows(tx, tables, piece, stats)
        if is_idle and int(self._keyspace.group_of(_NO_KEY)[0]) in tables:
            self._idle(tx, tables, stats)
        if self._layout.expiry is not None:
            self._expire(tx, tables, stats)
        return stats

    def place(self) -> CodePlace | None:
        """A call of the processor: of many keys."""
        return self._calls.place

    def due_hashes(self, state: GroupState, times: BatchTimes) -> Int64s:
        """Keys whose entries expire at the watermark."""
        return cast("GroupTable", state).peek_due(self.due_limit(times))

    @property
    def due_column(self) -> tuple[str, str] | None:
        """The processor's expiry column."""
        return None if self._layout.expiry is None else (SECTION, self._layout.expiry)

    @property
    def is_due_once(self) -> bool:
        """Ours drop what expires or move its expiry; who knows what a user's processor does."""
        ours = (AggregateProcessor, SessionProcessor)
        is_inherited = type(self._processor).expire is ColumnarProcessor.expire
        return is_inherited or isinstance(self._processor, ours)

    @property
    def expiring(self) -> Mapping[str, str]:
        """None: entries are over when the watermark says so, which their processor hears of."""
        return {}

    def due_limit(self, times: BatchTimes) -> int:
        """The watermark, in microseconds."""
        return times.watermark_ms * _MICROS

    def look_up(
        self, views: Mapping[int, View], keys: pa.Table, section: str
    ) -> Iterator[pa.Table]:
        """Key columns and what the processor shows of the state, for keys that have some."""
        schema = self._definition.key_schema
        arrays = [flat(keys.column(HASH)), *columns_of(keys, schema)]
        _, hashes, columns = self._group(pa.Table.from_arrays(arrays, [HASH, *schema.names]))
        _, bounds, present = self._split(hashes)
        chosen = [(cast("GroupTable", views[g][0]), views[g][1]) for g in present.tolist()]
        self._backend.bring_tables([table for table, _ in chosen], bounds, hashes)
        tables: list[Any] = [table.before() if before else table for table, before in chosen]
        entries = KeyedEntries.find(self._layout, tables, bounds, hashes, columns)
        there = np.flatnonzero(~entries.is_new)
        state_schema = nullable(self._layout.state)
        stored = pa.Table.from_arrays(entries.state(), schema=state_schema).take(there)
        shown = self._processor.show(stored.combine_chunks())
        found = [*(key.take(there) for key in entries.keys), *shown.columns]
        names = [*schema.names, *shown.column_names]
        return iter([pa.Table.from_arrays(found, names=names)])

    def close(self) -> None:
        """Nothing is held."""

    # Rows

    def _pieces(self, rows: pa.Table) -> Iterator[pa.Table]:
        """Rows cut between keys into tables of bounded size; only a hot key makes a larger one."""
        limit, size = self._piece_rows_max, rows.num_rows
        if size <= limit:
            if size:
                yield rows
            return
        hashes = flat(rows.column(HASH)).to_numpy()
        ordered = np.sort(hashes)
        start = 0
        while start < size:
            end = min(start + limit, size)
            if end < size:
                end = int(np.searchsorted(ordered, ordered[end]))
                if end <= start:
                    end = int(np.searchsorted(ordered, ordered[start], side="right"))
            wanted = (hashes >= ordered[start]) & (hashes <= ordered[end - 1])
            # Slice by slice: the whole column may be too long for one array.
            slices = range(0, size, limit)
            parts = [
                rows.slice(i, limit).take(np.flatnonzero(wanted[i : i + limit])) for i in slices
            ]
            yield pa.concat_tables(parts)
            start = end

    def _rows(
        self,
        tx: Transaction,
        tables: Mapping[int, GroupTable],
        piece: pa.Table,
        stats: OperatorStats,
    ) -> None:
        combined = piece.num_rows > self._piece_rows_max and (
            self._processor.combined_schema is not None
        )
        if combined:
            rows = self._combine(piece, tx.times, stats)
        else:
            rows = self._timely(piece, tx.times, stats)
        if not rows.num_rows:
            return
        segments, hashes, keys = self._group(rows)
        groups, bounds, present = self._split(hashes)
        chosen = [tables[int(group)] for group in present]
        self._backend.bring_tables(chosen, bounds, hashes)
        entries = KeyedEntries.find(self._layout, chosen, bounds, hashes, keys)
        try:
            batch = self._batch(entries, rows, segments, tx.times, combined)
        except TooManyBytes:  # small rows of many keys with much state: half of the keys at a time
            if combined or len(hashes) == 1:
                raise
            cut = segments.starts[len(hashes) // 2]
            for some in (segments.order[:cut], segments.order[cut:]):
                self._rows(tx, tables, rows.take(np.sort(some)), stats)
            return
        self._finish(tx, entries, groups, self._calls.call("process", batch), stats)

    def _idle(
        self, tx: Transaction, tables: Mapping[int, GroupTable], stats: OperatorStats
    ) -> None:
        """A batch without rows, for an operator without key columns."""
        rows = self._processor.idle_rows()
        if rows is not None:
            self._rows(tx, tables, rows.add_column(0, HASH, pa.array(_NO_KEY)), stats)

    def _timely(self, rows: pa.Table, times: BatchTimes, stats: OperatorStats) -> pa.Table:
        """Rows as the definition types them, each column one array, without those that are late."""
        schema = self._definition.input_schema
        arrays = [flat(rows.column(HASH)), *columns_of(rows, schema)]
        rows = pa.Table.from_arrays(arrays, names=[HASH, *schema.names])
        kept = timely(rows, self._definition.late, times.late_watermark_ms)
        stats.rows_dropped_late += rows.num_rows - kept.num_rows
        return kept

    def _group(self, rows: pa.Table) -> tuple[Segments, Int64s, list[Any]]:
        hashes = flat(rows.column(HASH)).to_numpy()
        keys = [normalise(flat(rows.column(f.name))) for f in self._definition.key_schema]
        segments, key_hashes = group_rows(hashes, keys, self._keyspace)
        first = segments.order[segments.starts]
        return segments, key_hashes, [key.take(first) for key in keys]

    def _combine(self, rows: pa.Table, times: BatchTimes, stats: OperatorStats) -> pa.Table:
        """The rows of a hot key shrunk slice by slice."""
        schema = self._processor.combined_schema
        assert schema is not None
        done = []
        for start in range(0, rows.num_rows, self._piece_rows_max):
            piece = self._timely(rows.slice(start, self._piece_rows_max), times, stats)
            segments, hashes, keys = self._group(piece)
            count = segments.num_keys
            batch = KeyedBatch(
                num_keys=count,
                key_columns=keys,
                key_schema=self._definition.key_schema,
                is_new=np.ones(count, bool),
                state=self._processor.state_schema.empty_table(),
                rows=piece,
                segments=segments,
                times=times,
            )
            shrunk, of_row = self._calls.call("combine", batch).combined(schema)
            if of_row is not None:
                hashes, keys = hashes[of_row], [key.take(of_row) for key in keys]
            names = [HASH, *self._definition.key_schema.names, *schema.names]
            arrays = [pa.array(hashes), *keys, *shrunk]
            done.append(pa.Table.from_arrays(arrays, names=names))
        return pa.concat_tables(done).combine_chunks()

    def _split(self, hashes: Int64s) -> tuple[npt.NDArray[np.int32], Places, npt.NDArray[np.int32]]:
        """Key group of each key, where groups start (and end), and which groups there are."""
        groups = self._keyspace.group_of(hashes).astype(np.int32)
        cuts = np.flatnonzero(np.diff(groups, prepend=-1))
        return groups, np.append(cuts, len(groups)), groups[cuts]

    def _batch(
        self,
        entries: KeyedEntries,
        rows: pa.Table,
        segments: Segments,
        times: BatchTimes,
        combined: bool = False,
    ) -> KeyedBatch:
        state = pa.Table.from_arrays(entries.state(), schema=nullable(self._layout.state))
        return KeyedBatch(
            num_keys=len(entries.hashes),
            key_columns=entries.keys,
            key_schema=nullable(self._definition.key_schema),
            is_new=entries.is_new,
            state=state,
            rows=rows,
            segments=segments,
            times=times,
            combined=combined,
        )

    # Effects

    def _finish(
        self,
        tx: Transaction,
        entries: KeyedEntries,
        groups: npt.NDArray[np.int32],
        returned: Returned,
        stats: OperatorStats,
    ) -> None:
        """Store, log and emit what the processor returned."""
        update = returned.update()
        drop = np.zeros(len(entries.hashes), bool)
        if update.drop is not None:
            drop = returned.mask("drop", update.drop)
        if update.state is not None:
            columns = returned.state(update.state, self._layout.state)
            wanted = ~drop
            if update.write is not None:
                wanted &= returned.mask("write", update.write)
            stats.rows_updated += self._write(tx, entries, wanted, columns, returned)
        gone = np.flatnonzero(drop & (entries.slots >= 0))
        if len(gone):
            entries.drop(gone)
            stats.rows_removed += len(gone)
            keys = [key.take(gone) for key in entries.keys]
            tx.log(SECTION, self._layout.log_deletions(entries.hashes[gone], keys))
        if update.output is not None:
            columns = returned.columns("output", update.output, self._definition.output_schema)
            num_rows = update.output.num_rows
            of_row = returned.keys_of_rows("output rows", update.output_keys, num_rows)
            if num_rows:
                self._emit(tx, groups if of_row is None else groups[of_row], columns)

    def _write(
        self,
        tx: Transaction,
        entries: KeyedEntries,
        wanted: npt.NDArray[np.bool_],
        columns: list[Any],
        returned: Returned,
    ) -> int:
        hashes, keys = entries.hashes, entries.keys
        at = None
        if not wanted.all():
            at = np.flatnonzero(wanted)
            if not len(at):
                return 0
            hashes, keys = hashes[at], [key.take(at) for key in keys]
            columns = [column.take(at) for column in columns]
        returned.no_nulls(columns, self._layout.state)
        unchanged = entries.write(at, columns)
        tx.log(SECTION, self._layout.log_upserts(hashes, keys, columns, unchanged))
        return len(hashes)

    def _emit(self, tx: Transaction, of_row: npt.NDArray[np.int32], columns: Sequence[Any]) -> None:
        arrays = [pa.array(of_row, pa.int32()), *columns]
        names = [GROUP, *self._definition.output_schema.names]
        tx.emit(pa.Table.from_arrays(arrays, names=names))

    # Expiry

    def _expire(
        self, tx: Transaction, tables: Mapping[int, GroupTable], stats: OperatorStats
    ) -> None:
        limit = self.due_limit(tx.times)
        due = []
        size = 0
        for group in tx.groups:
            table = tables[group]
            if table.expiry_floor > limit:
                continue
            hashes, slots = table.due(limit)
            if len(slots):
                due.append((group, table, hashes, slots))
                size += len(slots)
            if size >= self._piece_rows_max:
                self._expire_some(tx, due, stats)
                due, size = [], 0
        if due:
            self._expire_some(tx, due, stats)

    def _expire_some(
        self, tx: Transaction, due: Sequence[tuple[int, GroupTable, Any, Any]], stats: OperatorStats
    ) -> None:
        hashes = np.concatenate([some for _, _, some, _ in due])
        slots = np.concatenate([some for _, _, _, some in due])
        sizes = [len(some) for _, _, some, _ in due]
        bounds = np.concatenate(([0], np.cumsum(sizes)))
        groups = np.repeat(np.array([group for group, *_ in due], np.int32), sizes)
        tables = [table for _, table, _, _ in due]
        entries = KeyedEntries.at(self._layout, tables, bounds, hashes, slots)
        none = np.empty(0, np.intp)
        rows = self._definition.input_schema.empty_table()
        try:
            batch = self._batch(entries, rows, Segments(none, none), tx.times)
        except TooManyBytes:  # so there are several key groups: one alone is not read by views
            half = len(due) // 2
            for some in (due[:half], due[half:]):
                self._expire_some(tx, some, stats)
            return
        returned = self._calls.call("expire", batch)
        stats.timers_fired += len(hashes)
        self._finish(tx, entries, groups, returned, stats)
