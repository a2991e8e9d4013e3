"""Aggregation by session windows: the open sessions of a key are its state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import Int64s
from anabranch.processor.columnar.aggregates import Measure
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.state.columnar.compare import list_parts
from anabranch.state.columnar.grouping import Places, Segments
from anabranch.state.columnar.values import Bools, flat, to_arrow, to_numpy

SESSION_START = "__session_start"
SESSION_END = "__session_end"
_SESSIONS = "sessions"
_NEXT_END = "next_end"


@dataclass(frozen=True)
class Sessions:
    """Sessions of many keys with their aggregate states, sorted by key and start."""

    keys: Places
    starts: Int64s
    ends: Int64s
    states: Sequence[Sequence[Any]]
    """For each measure its state columns."""
    fresh: Bools
    """Sessions that have rows of this batch."""

    def __len__(self) -> int:
        return len(self.keys)


class SessionProcessor(ColumnarProcessor):
    """Aggregates of each key's sessions. Rows extend sessions and join them."""

    def __init__(
        self,
        measures: Sequence[Measure],
        output_schema: pa.Schema,
        *,
        append: bool,
        expires: bool,
    ) -> None:
        self._measures = list(measures)
        self._ordered = any(measure.is_ordered for measure in measures)
        """Whether it matters which row comes first: then rows and sessions are joined in the order
        of their starts, as in Spark, and not rows among themselves first."""
        self._output_schema = output_schema
        self._append = append
        self.expiry = _NEXT_END if expires else None
        self._time = output_schema.field(len(output_schema) - self._width(measures) - 1).type
        self._moment = self._time.field(0).type
        fields = [f for m in self._measures for f in m.fields]
        self._fields = [
            pa.field("start", self._moment),
            pa.field("end", self._moment),
            *(pa.field(f.name, f.type) for f in fields),
        ]
        self._state_schema = pa.schema(
            [
                pa.field(_SESSIONS, pa.list_(pa.struct(self._fields))),
                pa.field(_NEXT_END, self._moment, nullable=False),
            ]
        )
        self.combined_schema = pa.schema(self._fields)
        self._names = self.combined_schema.names

    @staticmethod
    def _width(measures: Sequence[Measure]) -> int:
        """Columns that the measures have in the result."""
        return len(measures)

    @property
    def state_schema(self) -> pa.Schema:
        return self._state_schema

    @property
    def measures(self) -> Sequence[Measure]:
        """The aggregates, in the order of the result."""
        return self._measures

    def describe(self) -> dict[str, Any]:
        return {"operation": "sessions"}

    def process(self, batch: KeyedBatch) -> Update:
        if batch.combined:
            new = self._from_combined(batch)
        else:
            new = self._from_rows(batch, join=not self._ordered)
        sessions = self._merged(self._stored(batch), new)
        output = None
        output_keys = None
        if not self._append:
            fresh = np.flatnonzero(sessions.fresh)
            output, output_keys = self._output(batch, sessions, fresh), sessions.keys[fresh]
        state = self._state(sessions, batch.num_keys)
        return Update(state=state, output=output, output_keys=output_keys)

    def combine(self, batch: KeyedBatch) -> tuple[pa.Table, Places]:
        sessions = self._from_rows(batch, join=True)
        return pa.Table.from_arrays(self._columns(sessions), self._names), sessions.keys

    def expire(self, batch: KeyedBatch) -> Update:
        sessions = self._stored(batch)
        open_ = sessions.ends > batch.times.watermark_ms * 1000
        closed = np.flatnonzero(~open_)
        rest = _some(sessions, np.flatnonzero(open_))
        keep = np.zeros(batch.num_keys, bool)
        keep[rest.keys] = True
        return Update(
            state=self._state(rest, batch.num_keys),
            drop=~keep,
            output=self._output(batch, sessions, closed) if self._append else None,
            output_keys=sessions.keys[closed] if self._append else None,
        )

    def show(self, state: pa.Table) -> pa.Table:
        """The results of each key's open sessions, as one list."""
        column = flat(state.column(_SESSIONS))
        offsets, values = list_parts(column)
        keys = np.repeat(np.arange(len(column)), np.diff(offsets))
        sessions = self._unpack(keys, values.flatten(), np.zeros(len(keys), bool))
        results: dict[str, Any] = {}
        for measure, states in zip(self._measures, sessions.states, strict=True):
            results |= measure.results(states)
        bounds = [to_arrow(x, None, self._moment) for x in (sessions.starts, sessions.ends)]
        names = ["start", "end", *results]
        rows = pa.StructArray.from_arrays([*bounds, *results.values()], names)
        starts = pa.array(np.asarray(offsets, np.int32))
        return pa.table({_SESSIONS: pa.ListArray.from_arrays(starts, rows)})

    # Making sessions

    def _from_rows(self, batch: KeyedBatch, join: bool) -> Sessions:
        """Sessions of the batch's rows, joined among themselves or one for each row."""
        keys = batch.key_of_row()
        starts = to_numpy(flat(batch.rows.column(SESSION_START)))[0]
        ends = to_numpy(flat(batch.rows.column(SESSION_END)))[0]
        order = np.lexsort((starts, keys))
        keys, starts, ends = keys[order], starts[order], ends[order]
        each = np.arange(len(keys))
        segments, last = _joined(keys, starts, ends) if join else (Segments(each, each), ends)
        states = [measure.reduced(segments, batch.rows, order) for measure in self._measures]
        at = segments.starts
        return Sessions(keys[at], starts[at], last, states, np.ones(len(at), bool))

    def _from_combined(self, batch: KeyedBatch) -> Sessions:
        columns = [flat(batch.rows.column(name)) for name in self._names]
        keys = batch.key_of_row()
        return self._join(self._unpack(keys, columns, np.ones(len(keys), bool)))

    def _merged(self, old: Sessions, new: Sessions) -> Sessions:
        """Old and new sessions, those that overlap or touch made one."""
        if not len(old) and not self._ordered:
            return new
        both = Sessions(
            np.concatenate((old.keys, new.keys)),
            np.concatenate((old.starts, new.starts)),
            np.concatenate((old.ends, new.ends)),
            [
                [pa.concat_arrays([x, y]) for x, y in zip(a, b, strict=True)]
                for a, b in zip(old.states, new.states, strict=True)
            ],
            np.concatenate((old.fresh, new.fresh)),
        )
        return self._join(both)

    def _join(self, unsorted: Sessions) -> Sessions:
        """Sort sessions and join those that overlap or touch."""
        given = _some(unsorted, np.lexsort((unsorted.starts, unsorted.keys)))
        segments, last = _joined(given.keys, given.starts, given.ends)
        at = segments.starts
        states = [
            measure.kernel.merge(segments, columns)
            for measure, columns in zip(self._measures, given.states, strict=True)
        ]
        touched = np.logical_or.reduceat(given.fresh, at)
        return Sessions(given.keys[at], given.starts[at], last, states, touched)

    # State and output

    def _stored(self, batch: KeyedBatch) -> Sessions:
        column = flat(batch.state.column(_SESSIONS))
        offsets, values = list_parts(column)
        keys = np.repeat(np.arange(len(column)), np.diff(offsets))
        return self._unpack(keys, values.flatten(), np.zeros(len(keys), bool))

    def _unpack(self, keys: Places, columns: Sequence[Any], fresh: Bools) -> Sessions:
        starts, ends = to_numpy(columns[0])[0], to_numpy(columns[1])[0]
        states, at = [], 2
        for measure in self._measures:
            size = len(measure.kernel.fields)
            states.append(columns[at : at + size])
            at += size
        return Sessions(keys, starts, ends, states, fresh)

    def _columns(self, sessions: Sessions) -> list[Any]:
        return [
            to_arrow(sessions.starts, None, self._moment),
            to_arrow(sessions.ends, None, self._moment),
            *(column for columns in sessions.states for column in columns),
        ]

    def _state(self, sessions: Sessions, num_keys: int) -> pa.Table:
        counts = np.bincount(sessions.keys, minlength=num_keys)
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        values = pa.StructArray.from_arrays(self._columns(sessions), fields=self._fields)
        lists = pa.ListArray.from_arrays(pa.array(offsets), values)
        next_end = np.full(num_keys, np.iinfo(np.int64).max)
        np.minimum.at(next_end, sessions.keys, sessions.ends)
        lists = lists.cast(self._state_schema.field(0).type)
        arrays = [lists, to_arrow(next_end, None, self._moment)]
        return pa.Table.from_arrays(arrays, names=self._state_schema.names)

    def _output(self, batch: KeyedBatch, sessions: Sessions, at: npt.NDArray[Any]) -> pa.Table:
        some = _some(sessions, at)
        bounds = [to_arrow(x, None, self._moment) for x in (some.starts, some.ends)]
        columns = [key.take(some.keys) for key in batch.key_columns]
        columns.append(pa.StructArray.from_arrays(bounds, fields=list(self._time)))
        for measure, states in zip(self._measures, some.states, strict=True):
            columns += measure.results(states).values()
        return pa.Table.from_arrays(columns, names=self._output_schema.names)


def _joined(keys: Places, starts: Int64s, ends: Int64s) -> tuple[Segments, Int64s]:
    """Segments of sessions (sorted by key and start) that overlap or touch, and the end of each."""
    size = len(keys)
    # A running maximum that starts again at each key: later keys have larger codes.
    distinct, ranks = np.unique(ends, return_inverse=True)
    reach = np.maximum.accumulate(keys * np.int64(size + 1) + ranks)
    reached = distinct[reach - keys * np.int64(size + 1)] if size else ends
    is_first = np.ones(size, bool)
    is_first[1:] = (keys[1:] != keys[:-1]) | (starts[1:] > reached[:-1])
    at = np.flatnonzero(is_first)
    last = np.append(at[1:], size)[: len(at)] - 1
    return Segments(np.arange(size), at), reached[last]


def _some(sessions: Sessions, at: npt.NDArray[Any]) -> Sessions:
    return Sessions(
        sessions.keys[at],
        sessions.starts[at],
        sessions.ends[at],
        [[column.take(at) for column in columns] for columns in sessions.states],
        sessions.fresh[at],
    )
