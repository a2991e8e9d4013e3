"""What an aggregate function does to columns: fold rows, fold states, give the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.errors import ProcessorError
from anabranch.model.keyspace import Int64s
from anabranch.state.columnar.grouping import Segments, pairs
from anabranch.state.columnar.values import Bools, to_arrow, to_numpy

States = Sequence[Any]
"""Arrow arrays, one for each state field of a kernel."""

_LONG_MAX = 2**63 - 1


class Kernel(ABC):
    """One aggregate function for one input type."""

    fields: Sequence[pa.Field]
    """State columns."""
    is_of_last_row = False
    """Whether the result depends on nothing but the last row: not on what came before."""

    @abstractmethod
    def reduce(self, segments: Segments, column: Any) -> States:
        """State of each segment from its rows; `column` is None if the function has no argument."""

    @abstractmethod
    def merge(self, segments: Segments, states: States) -> States:
        """One state a segment from several; a null state is that of no rows."""

    @abstractmethod
    def result(self, states: States) -> Any:
        """The function's value for each state."""

    def combine(self, old: States, new: States) -> States:
        """Merge states one by one; `old` came first."""
        both = [pa.concat_arrays([a, b]) for a, b in zip(old, new, strict=True)]
        return self.merge(pairs(len(new[0])), both)


def filled(array: Any, value: Any) -> npt.NDArray[Any]:
    """Values with something in place of nulls."""
    values, valid = to_numpy(array)
    return values if valid is None else np.where(valid, values, values.dtype.type(value))


def fold(ufunc: np.ufunc, values: npt.NDArray[Any], segments: Segments) -> npt.NDArray[Any]:
    """One value a segment."""
    ordered = values[segments.order]
    if segments.single:
        return ordered
    folded: npt.NDArray[Any] = ufunc.reduceat(ordered, segments.starts)
    return folded


def any_valid(array: Any, segments: Segments) -> Bools | None:
    """Segments with at least one value; None: all."""
    if not array.null_count:
        return None
    return fold(np.logical_or, to_numpy_valid(array), segments)


def to_numpy_valid(array: Any) -> Bools:
    """Validity of an array."""
    valid: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


def overflow(what: str) -> ProcessorError:
    """Spark's error for an ANSI overflow."""
    return ProcessorError(
        f"[ARITHMETIC_OVERFLOW] {what} overflow. Cast the column to a wider type, or set "
        '"spark.sql.ansi.enabled" to "false" before the query is planned, to bypass this error.'
    )


class Count(Kernel):
    """Number of rows, or of true values."""

    fields = (pa.field("count", pa.int64(), nullable=False),)

    def reduce(self, segments: Segments, column: Any) -> States:
        if column is None:
            return [pa.array(segments.counts.astype(np.int64, copy=False))]
        return [pa.array(fold(np.add, to_numpy(column)[0].astype(np.int64), segments))]

    def merge(self, segments: Segments, states: States) -> States:
        return [pa.array(fold(np.add, filled(states[0], 0), segments))]

    def combine(self, old: States, new: States) -> States:
        return [pa.array(filled(old[0], 0) + filled(new[0], 0))]

    def result(self, states: States) -> Any:
        return states[0]


class Sum(Kernel):
    """Sum of longs, doubles or durations."""

    def __init__(self, kind: pa.DataType, ansi: bool) -> None:
        self._kind = kind
        self._checked = not pa.types.is_floating(kind) and (ansi or pa.types.is_duration(kind))
        self.fields = (pa.field("sum", kind),)

    def reduce(self, segments: Segments, column: Any) -> States:
        return self.merge(segments, [column])

    def merge(self, segments: Segments, states: States) -> States:
        values = filled(states[0], 0)
        if self._checked:
            check_sum(values, segments)
        return [
            to_arrow(fold(np.add, values, segments), any_valid(states[0], segments), self._kind)
        ]

    def combine(self, old: States, new: States) -> States:
        a, b = filled(old[0], 0), filled(new[0], 0)
        total = a + b
        if self._checked and bool((((a ^ total) & (b ^ total)) < 0).any()):
            raise overflow("long")
        valid = None
        if old[0].null_count and new[0].null_count:
            valid = to_numpy_valid(old[0]) | to_numpy_valid(new[0])
        return [to_arrow(total, valid, self._kind)]

    def result(self, states: States) -> Any:
        return states[0]


def check_sum(values: Int64s, segments: Segments) -> None:
    """Raise if the sum of a segment is not a long."""
    if not len(values):
        return
    peak = max(int(values.max()), -int(values.min()))
    if peak * int(segments.counts.max()) <= _LONG_MAX:
        return
    low = fold(np.add, values & 0xFFFFFFFF, segments)
    high = fold(np.add, values >> 32, segments) + (low >> 32)
    if bool(((high >= 2**31) | (high < -(2**31))).any()):
        raise overflow("long")


class Average(Kernel):
    """Mean of doubles or durations."""

    def __init__(self, kind: pa.DataType) -> None:
        self._sum = Sum(kind, ansi=True)
        self._count = Count()
        self._kind = kind
        self.fields = (*self._sum.fields, *self._count.fields)

    def reduce(self, segments: Segments, column: Any) -> States:
        counts = self._count.reduce(segments, column.is_valid() if column.null_count else None)
        return [*self._sum.reduce(segments, column), *counts]

    def merge(self, segments: Segments, states: States) -> States:
        return [
            *self._sum.merge(segments, states[:1]),
            *self._count.merge(segments, states[1:]),
        ]

    def combine(self, old: States, new: States) -> States:
        return [
            *self._sum.combine(old[:1], new[:1]),
            *self._count.combine(old[1:], new[1:]),
        ]

    def result(self, states: States) -> Any:
        total, count = filled(states[0], 0), filled(states[1], 0)
        some = count > 0
        mean: npt.NDArray[Any]
        if pa.types.is_floating(self._kind):
            mean = total / np.where(some, count, 1)
        else:
            mean = _divide_half_up(total, np.where(some, count, 1))
        return to_arrow(mean, some, self._kind)


def _divide_half_up(total: Int64s, count: Int64s) -> Int64s:
    """Quotient rounded to the nearest, halves away from zero."""
    size = np.abs(total)
    quotient, rest = np.divmod(size, count)
    quotient += rest >= count - rest
    return np.sign(total) * quotient
