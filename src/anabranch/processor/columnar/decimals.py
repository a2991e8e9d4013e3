"""Sums and means of 128-bit decimals, by vectors."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.model.keyspace import Int64s
from anabranch.processor.columnar.kernels import (
    Count,
    Kernel,
    States,
    any_valid,
    fold,
    overflow,
    to_numpy_valid,
)
from anabranch.state.columnar.grouping import Segments
from anabranch.state.columnar.values import Bools, to_arrow, to_numpy

_MASK = 0xFFFFFFFF


def _limbs(column: Any) -> list[Int64s]:
    """Four 32-bit digits of each value, least first; the last has the sign; null is zero."""
    raw, valid = to_numpy(column)
    halves = raw.view(np.int64).reshape(len(column), 2)
    if valid is not None:
        halves = np.where(valid[:, None], halves, 0)
    low, high = halves[:, 0], halves[:, 1]
    return [low & _MASK, (low >> 32) & _MASK, high & _MASK, high >> 32]


def _joined(limbs: list[Int64s], precision: int) -> tuple[npt.NDArray[np.void], Bools]:
    """128-bit values of sums of limbs, and which do not fit the precision."""
    digits, carry = [], np.zeros(len(limbs[0]), np.int64)
    for limb in limbs[:3]:
        total = limb + carry
        digits.append(total & _MASK)
        carry = total >> 32
    top = limbs[3] + carry
    wide = (top >= 2**31) | (top < -(2**31))
    low = digits[0].astype(np.uint64) | (digits[1].astype(np.uint64) << np.uint64(32))
    high = (top << 32) | digits[2]
    bound = 10**precision
    too_large = wide | _at_least(high, low, bound) | ~_at_least(high, low, 1 - bound)
    halves = np.stack((low.view(np.int64), high), axis=1)
    return np.ascontiguousarray(halves).view("V16").reshape(-1), too_large


def _at_least(high: Int64s, low: npt.NDArray[np.uint64], bound: int) -> Bools:
    bound_high, bound_low = bound >> 64, np.uint64(bound & (2**64 - 1))
    return np.asarray((high > bound_high) | ((high == bound_high) & (low >= bound_low)))


class DecimalSum(Kernel):
    """Sum of decimals; a sum that does not fit is an error (ANSI) or null for ever."""

    def __init__(self, kind: pa.DataType, ansi: bool) -> None:
        self._kind = kind
        self._ansi = ansi
        self.fields = (
            pa.field("sum", kind),
            pa.field("overflow", pa.bool_(), nullable=False),
        )

    def reduce(self, segments: Segments, column: Any) -> States:
        return self.merge(segments, [column, pa.array(np.zeros(len(column), bool))])

    def merge(self, segments: Segments, states: States) -> States:
        sums = [fold(np.add, limb, segments) for limb in _limbs(states[0])]
        raw, too_large = _joined(sums, self._kind.precision)
        if self._ansi and bool(too_large.any()):
            raise overflow("decimal sum")
        lost = fold(np.logical_or, to_numpy(states[1])[0], segments) | too_large
        valid = any_valid(states[0], segments)
        if lost.any():
            valid = ~lost if valid is None else valid & ~lost
        return [to_arrow(raw, valid, self._kind), pa.array(lost)]

    def result(self, states: States) -> Any:
        return states[0]


class DecimalAverage(Kernel):
    """Mean of decimals with four more digits, halves rounded away from zero."""

    def __init__(self, sum_kind: pa.DataType, result_kind: pa.DataType, ansi: bool) -> None:
        self._sum = DecimalSum(sum_kind, ansi)
        self._count = Count()
        self._result_kind = result_kind
        self._ansi = ansi
        self.fields = (*self._sum.fields, *self._count.fields)

    def reduce(self, segments: Segments, column: Any) -> States:
        counts = self._count.reduce(segments, column.is_valid() if column.null_count else None)
        return [*self._sum.reduce(segments, column), *counts]

    def merge(self, segments: Segments, states: States) -> States:
        return [
            *self._sum.merge(segments, states[:2]),
            *self._count.merge(segments, states[2:]),
        ]

    def result(self, states: States) -> Any:
        total, count = states[0], to_numpy(states[2])[0]
        kind = self._result_kind
        divisor = pa.array(np.where(count > 0, count, 1)).cast(pa.decimal128(19, 0))
        # Arrow divides to 20 more digits and cuts the rest: rounding once more is exact.
        wide = total.cast(pa.decimal256(self._sum.fields[0].type.precision, total.type.scale))
        mean = pc.divide(wide, divisor.cast(pa.decimal256(19, 0)))
        mean = pc.round(mean, ndigits=kind.scale, round_mode="half_towards_infinity")
        mean = mean.cast(pa.decimal256(76, kind.scale))
        bound = pa.scalar(Decimal(10 ** (kind.precision - kind.scale)), mean.type)
        fits = pc.less(pc.abs(mean), bound)
        if self._ansi and pc.any(pc.invert(fits)).as_py():
            raise overflow("decimal average")
        keep = to_numpy_valid(total) & (count > 0) & fits.fill_null(False).to_numpy(False)
        mean = pc.if_else(pa.array(keep), mean, pa.scalar(None, mean.type))
        return mean.cast(kind)
