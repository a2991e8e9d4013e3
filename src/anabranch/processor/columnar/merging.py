"""Aggregates of any function that can be merged: Spark makes and reads the states, workers merge.

A row arrives as the states of one row each, made by Spark before the shuffle. What leaves are keys
and states; Spark computes the results from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.processor.columnar.aggregates import Measure
from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.processor.columnar.expressions import Expression, evaluate, rows_of
from anabranch.processor.columnar.kernels import Kernel, States
from anabranch.processor.columnar.sessions import SessionProcessor
from anabranch.state.columnar.grouping import Segments
from anabranch.state.columnar.values import flat

SEEN = "seen"
"""The one state column of an aggregate without functions."""


class ExpressionKernel(Kernel):
    """A function of Spark, by its own merge expressions."""

    def __init__(self, fields: Sequence[pa.Field], merges: Sequence[Expression]) -> None:
        self.fields = list(fields)
        self._merges = list(merges)

    def reduce(self, segments: Segments, column: Any) -> States:
        raise NotImplementedError("rows arrive as states")

    def merge(self, segments: Segments, states: States) -> States:
        """Neighbours first, in their order, until one is left of each segment."""
        segments = segments.stable()
        columns = [rows_of(column, segments.order) for column in states]
        counts = segments.counts.copy()
        while len(counts) and int(counts.max()) > 1:
            columns, counts = self._halved(columns, counts)
        return columns

    def combine(self, old: States, new: States) -> States:
        return [evaluate(each, old, new) for each in self._merges]

    def result(self, states: States) -> Any:
        raise NotImplementedError("Spark computes the results")

    def _halved(self, columns: Sequence[Any], counts: Any) -> tuple[list[Any], Any]:
        starts = np.cumsum(counts) - counts
        place = np.arange(int(counts.sum())) - np.repeat(starts, counts)
        left = np.flatnonzero(place % 2 == 0)
        has_right = place[left] + 1 < np.repeat(counts, (counts + 1) // 2)
        first, alone = left[has_right], left[~has_right]
        merged = self.combine(
            [rows_of(column, first) for column in columns],
            [rows_of(column, first + 1) for column in columns],
        )
        if not len(alone):
            return list(merged), (counts + 1) // 2
        back = np.argsort(np.concatenate((first, alone)), kind="stable")
        joined = [
            rows_of(pa.concat_arrays([flat(new), rows_of(old, alone)]), back)
            for new, old in zip(merged, columns, strict=True)
        ]
        return joined, (counts + 1) // 2


class StateMeasure(Measure):
    """An aggregate whose rows arrive as states, and leave as states."""

    def __init__(self, kernel: Kernel, names: Sequence[str]) -> None:
        super().__init__(names[0], kernel, None)
        object.__setattr__(self, "names", list(names))

    names: list[str]

    @property
    def fields(self) -> list[pa.Field]:
        pairs = zip(self.names, self.kernel.fields, strict=True)
        return [pa.field(name, field.type, field.nullable) for name, field in pairs]

    @property
    def is_ordered(self) -> bool:
        """Who knows what an expression does."""
        return isinstance(self.kernel, ExpressionKernel)

    def reduced(self, segments: Segments, rows: pa.Table, order: Any) -> States:
        return self.kernel.merge(segments, [rows_of(each, order) for each in self.states(rows)])

    def results(self, states: States) -> dict[str, Any]:
        return dict(zip(self.names, states, strict=True))


class MergedSessions(SessionProcessor):
    """Sessions with such aggregates."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        names: Sequence[Sequence[str]],
        output_schema: pa.Schema,
        fingerprint: Sequence[str],
    ) -> None:
        measures = [StateMeasure(*each) for each in zip(kernels, names, strict=True)]
        super().__init__(measures, output_schema, append=True, expires=True)
        self._fingerprint = list(fingerprint)

    @staticmethod
    def _width(measures: Sequence[Measure]) -> int:
        return sum(len(measure.kernel.fields) for measure in measures)

    def describe(self) -> dict[str, Any]:
        return {"operation": "sessions", "expressions": self._fingerprint}


class MergeProcessor(ColumnarProcessor):
    """Aggregates whose states are all merged by kernels; see the module."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        names: Sequence[Sequence[str]],
        output_schema: pa.Schema,
        *,
        fingerprint: Sequence[str],
        append: bool,
        expiry: str | None,
        idle: Mapping[str, Any] | None = None,
    ) -> None:
        """`names` are those of each kernel's state columns; `idle` are the states of no rows."""
        self._kernels = list(kernels)
        self._names = [list(each) for each in names]
        self._output_schema = output_schema
        self._fingerprint = list(fingerprint)
        self._append = append
        self.expiry = expiry
        fields = [
            pa.field(name, field.type, field.nullable)
            for kernel, own in zip(self._kernels, self._names, strict=True)
            for name, field in zip(own, kernel.fields, strict=True)
        ]
        self._state_schema = pa.schema(fields or [pa.field(SEEN, pa.bool_(), nullable=False)])
        self.combined_schema = pa.schema(fields) if fields else None
        self._idle = None if idle is None else dict(idle)

    @property
    def state_schema(self) -> pa.Schema:
        return self._state_schema

    def process(self, batch: KeyedBatch) -> Update:
        state = self._merged(batch)
        known = np.flatnonzero(~batch.is_new)
        if len(known) and self._kernels:
            state = self._with_known(batch, state, known)
        table = self._table(state, batch.num_keys)
        if self._append:
            return Update(state=table)
        return Update(state=table, output=self._output(batch, table))

    def combine(self, batch: KeyedBatch) -> tuple[pa.Table, None]:
        return self._table(self._merged(batch), batch.num_keys), None

    def expire(self, batch: KeyedBatch) -> Update:
        drop = np.ones(batch.num_keys, bool)
        return Update(drop=drop, output=self._output(batch, batch.state) if self._append else None)

    def idle_rows(self) -> pa.Table | None:
        if self._idle is None:
            return None
        schema = self._state_schema
        return pa.Table.from_pydict({f.name: [self._idle[f.name]] for f in schema}, schema=schema)

    def refused_columns(self, added: Any) -> list[str]:
        """An aggregate over rows that were not kept cannot be known."""
        return [
            f"the state column {name!r} was added, but rows of earlier batches are not kept to "
            "compute it from: start the query with a new checkpoint"
            for name in added
        ]

    def describe(self) -> dict[str, Any]:
        return {
            "operation": "aggregate",
            "expressions": self._fingerprint,
            "append": self._append,
        }

    def _merged(self, batch: KeyedBatch) -> list[Any]:
        """The states of the batch's rows, one a key."""
        found: list[Any] = []
        for kernel, names in zip(self._kernels, self._names, strict=True):
            states = [flat(batch.rows.column(name)) for name in names]
            found += kernel.merge(batch.segments, states)
        return found

    def _with_known(self, batch: KeyedBatch, new: list[Any], known: Any) -> list[Any]:
        """Merged with stored states, for keys that have some."""
        back = np.argsort(np.concatenate((known, np.flatnonzero(batch.is_new))), kind="stable")
        fresh = np.flatnonzero(batch.is_new)
        found: list[Any] = []
        for kernel, names in zip(self._kernels, self._names, strict=True):
            own = new[len(found) : len(found) + len(names)]
            old = [rows_of(flat(batch.state.column(name)), known) for name in names]
            merged = kernel.combine(old, [rows_of(column, known) for column in own])
            found += [
                rows_of(pa.concat_arrays([flat(a).cast(b.type), rows_of(b, fresh)]), back)
                for a, b in zip(merged, own, strict=True)
            ]
        return found

    def _table(self, state: Sequence[Any], num_keys: int) -> pa.Table:
        columns = state or [pa.array(np.ones(num_keys, bool))]
        return pa.Table.from_arrays(list(columns), names=self._state_schema.names)

    def _output(self, batch: KeyedBatch, state: pa.Table) -> pa.Table:
        columns = [*batch.key_columns, *(state.columns if self._kernels else ())]
        return pa.Table.from_arrays(columns, names=self._output_schema.names)
