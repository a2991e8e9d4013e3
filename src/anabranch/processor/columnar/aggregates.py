"""Grouped aggregation, also by time windows, as a columnar processor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.processor.columnar.api import ColumnarProcessor, KeyedBatch, Update
from anabranch.processor.columnar.kernels import Kernel, States
from anabranch.processor.columnar.selection import Nth
from anabranch.state.columnar.grouping import Segments
from anabranch.state.columnar.values import flat

WINDOW_START = "__window_start"
WINDOW_END = "__window_end"


@dataclass(frozen=True)
class Measure:
    """One aggregate of the result: its name, its kernel, its input column (None: no argument)."""

    name: str
    kernel: Kernel
    column: str | None

    @property
    def fields(self) -> list[pa.Field]:
        """State columns, named after the result."""
        return [pa.field(f"{self.name}.{f.name}", f.type, f.nullable) for f in self.kernel.fields]

    @property
    def is_ordered(self) -> bool:
        """Whether it matters which row comes first."""
        return isinstance(self.kernel, Nth)

    def reduced(self, segments: Segments, rows: pa.Table, order: npt.NDArray[Any]) -> States:
        """One state a segment, of rows in another order."""
        column = self.input(rows)
        return self.kernel.reduce(segments, None if column is None else column.take(order))

    def results(self, states: States) -> dict[str, Any]:
        """What leaves the operator, by name."""
        return {self.name: self.kernel.result(states)}

    def input(self, rows: pa.Table) -> Any:
        """The input column of the rows."""
        return None if self.column is None else flat(rows.column(self.column))

    def states(self, table: pa.Table) -> States:
        """This measure's state columns out of a table with all of them."""
        return [flat(table.column(f.name)) for f in self.fields]


class AggregateProcessor(ColumnarProcessor):
    """Aggregates of each key; start and end of a time window are the last key columns."""

    def __init__(
        self,
        measures: Sequence[Measure],
        output_schema: pa.Schema,
        *,
        windowed: bool,
        append: bool,
        expiry: str | None,
    ) -> None:
        self._measures = list(measures)
        self._output_schema = output_schema
        self._windowed = windowed
        self._append = append
        self.expiry = expiry
        self._state_schema = pa.schema([f for m in self._measures for f in m.fields])
        self.combined_schema = self._state_schema

    @property
    def state_schema(self) -> pa.Schema:
        return self._state_schema

    @property
    def measures(self) -> Sequence[Measure]:
        """The aggregates, in the order of the result."""
        return self._measures

    def process(self, batch: KeyedBatch) -> Update:
        state: list[Any] = []
        for measure in self._measures:
            if batch.combined:
                new = measure.kernel.merge(batch.segments, measure.states(batch.rows))
            else:
                new = measure.kernel.reduce(batch.segments, measure.input(batch.rows))
            if not batch.is_new.all():
                new = measure.kernel.combine(measure.states(batch.state), new)
            state.extend(new)
        table = self._table(state)
        if self._append:
            return Update(state=table)
        return Update(state=table, output=self._output(batch.key_columns, table))

    def combine(self, batch: KeyedBatch) -> tuple[pa.Table, None]:
        state = [
            column
            for measure in self._measures
            for column in measure.kernel.reduce(batch.segments, measure.input(batch.rows))
        ]
        return self._table(state), None

    def expire(self, batch: KeyedBatch) -> Update:
        drop = np.ones(batch.num_keys, bool)
        if not self._append:
            return Update(drop=drop)
        return Update(drop=drop, output=self._output(batch.key_columns, batch.state))

    def show(self, state: pa.Table) -> pa.Table:
        """The results."""
        return pa.table({m.name: m.kernel.result(m.states(state)) for m in self._measures})

    def refused_columns(self, added: Collection[str]) -> list[str]:
        """An aggregate over rows that were not kept cannot be known, unless only the last count."""
        names = set(added)
        return [
            f"aggregate {measure.name!r} was added, but rows of earlier batches are not kept to "
            "compute it from (only last() can be added, in update mode): put it into an operator "
            "of its own name, which starts empty"
            for measure in self._measures
            if any(field.name in names for field in measure.fields)
            and (self._append or not measure.kernel.is_of_last_row)
        ]

    def describe(self) -> dict[str, Any]:
        return {"operation": "aggregate", "windowed": self._windowed}

    def _table(self, state: Sequence[Any]) -> pa.Table:
        return pa.Table.from_arrays(list(state), names=self._state_schema.names)

    def _output(self, keys: Sequence[Any], state: pa.Table) -> pa.Table:
        columns = list(keys)
        if self._windowed:
            kind = self._output_schema.field(len(columns) - 2).type
            columns[-2:] = [pa.StructArray.from_arrays(columns[-2:], fields=list(kind))]
        columns += [m.kernel.result(m.states(state)) for m in self._measures]
        return pa.Table.from_arrays(columns, names=self._output_schema.names)
