"""Aggregates that choose one of the values: least, greatest, first, last; for every type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.processor.columnar.kernels import (
    Kernel,
    States,
    any_valid,
    filled,
    fold,
    to_numpy_valid,
)
from anabranch.state.columnar.compare import ranks
from anabranch.state.columnar.grouping import Segments
from anabranch.state.columnar.values import storage_dtype, to_arrow, to_numpy


class Extreme(Kernel):
    """The least or the greatest value; NaN is greater than all others."""

    def __init__(self, kind: pa.DataType, greatest: bool) -> None:
        self._kind = kind
        self._greatest = greatest
        self.fields = (pa.field("max" if greatest else "min", kind),)

    def reduce(self, segments: Segments, column: Any) -> States:
        return self.merge(segments, [column])

    def merge(self, segments: Segments, states: States) -> States:
        column = states[0]
        dtype = storage_dtype(self._kind)
        ufunc: np.ufunc
        if dtype is None or dtype.kind in "Vb":
            return [self._by_rank(segments, column)]
        if dtype.kind == "f":
            # fmin passes over NaN, maximum keeps it: NaN is the greatest.
            ufunc = np.maximum if self._greatest else np.fmin
            values = filled(column, -np.inf if self._greatest else np.nan)
        else:
            limits = np.iinfo(dtype)
            ufunc = np.maximum if self._greatest else np.minimum
            values = filled(column, limits.min if self._greatest else limits.max)
        found = fold(ufunc, values, segments)
        return [to_arrow(found, any_valid(column, segments), self._kind)]

    def _by_rank(self, segments: Segments, column: Any) -> Any:
        order = ranks(column)
        some_row = np.full(int(order.max(initial=0)) + 2, -1, np.int64)
        some_row[order] = np.arange(len(order))
        if self._greatest:
            best = fold(np.maximum, order, segments)
        else:
            none = len(some_row) - 1
            best = fold(np.minimum, np.where(order == 0, none, order), segments)
        rows = np.where(best == 0, -1, some_row[best])
        return column.take(pa.array(rows, mask=rows < 0))

    def result(self, states: States) -> Any:
        return states[0]


class Nth(Kernel):
    """The first or the last value in the order in which rows came."""

    def __init__(self, kind: pa.DataType, last: bool, ignore_nulls: bool) -> None:
        self._last = last
        self._ignore_nulls = ignore_nulls
        self.is_of_last_row = last and not ignore_nulls
        self.fields = (
            pa.field("last" if last else "first", kind),
            pa.field("seen", pa.bool_(), nullable=False),
        )

    def reduce(self, segments: Segments, column: Any) -> States:
        if self._ignore_nulls:
            return self._choose(segments, column, to_numpy_valid(column))
        return self._choose(segments, column, np.ones(len(column), bool))

    def merge(self, segments: Segments, states: States) -> States:
        return self._choose(segments, states[0], to_numpy(states[1])[0])

    def combine(self, old: States, new: States) -> States:
        # Mostly one side has all: its values, which may be long, are passed on as they are.
        wanted, others = (new, old) if self._last else (old, new)
        is_wanted = filled(wanted[1], False)
        if is_wanted.all():
            return wanted
        if not is_wanted.any():
            return [others[0], pa.array(filled(others[1], False))]
        return super().combine(old, new)

    def _choose(self, segments: Segments, column: Any, candidates: Any) -> States:
        segments = segments.stable()
        order, size = segments.order, segments.num_rows
        places = np.arange(size)
        able = candidates[order]
        if self._last:
            chosen = np.where(able, places, -1)
            chosen = np.maximum.reduceat(chosen, segments.starts) if size else chosen
            seen = chosen >= 0
        else:
            chosen = np.where(able, places, size)
            chosen = np.minimum.reduceat(chosen, segments.starts) if size else chosen
            seen = chosen < size
        rows = order[np.where(seen, chosen, 0)] if size else chosen
        return [column.take(pa.array(rows, mask=~seen)), pa.array(seen)]

    def result(self, states: States) -> Any:
        return states[0]
