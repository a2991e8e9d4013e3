"""Spark's approx_count_distinct: HyperLogLog++ registers as state, Spark's tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import Int64s
from anabranch.processor.columnar.kernels import Kernel, States
from anabranch.state.columnar.grouping import Segments
from anabranch.state.columnar.values import to_arrow, to_numpy

Registers = npt.NDArray[np.uint8]

_NEIGHBOURS = 6
_BLOCK_BYTES = 1 << 22
_TABLES_FROM, _TABLES_TO = 4, 18


@dataclass(frozen=True)
class Correction:
    """Spark's tables for one precision: raw estimates, biases, linear-counting threshold."""

    estimates: tuple[float, ...] = ()
    biases: tuple[float, ...] = ()
    threshold: float = 0.0


def precision_of(rsd: float) -> int:
    """Bits of the hash that choose the register, for a relative standard deviation."""
    return math.ceil(2.0 * math.log(1.106 / rsd) / math.log(2.0))


class DistinctCount(Kernel):
    """Estimate of the number of distinct values, from their 64-bit hashes."""

    def __init__(self, precision: int, correction: Correction) -> None:
        self._precision = precision
        self._size = 1 << precision
        self._correction = correction
        self._kind = pa.binary(self._size)
        self.fields = (pa.field("registers", self._kind, nullable=False),)

    def reduce(self, segments: Segments, column: Any) -> States:
        hashes, valid = to_numpy(column)
        keys = segments.key_of_row()
        if valid is not None:
            hashes, keys = hashes[valid], keys[valid]
        registers = np.zeros(segments.num_keys * self._size, np.uint8)
        places, ranks = self._observe(hashes)
        # The largest rank of a place is the last one in this order.
        codes = np.sort((keys * self._size + places) * 64 + ranks)
        places = codes >> 6
        last = np.ones(len(codes), bool)
        np.not_equal(places[1:], places[:-1], out=last[:-1])
        registers[places[last]] = codes[last] & 63
        return [self._arrow(registers)]

    def _observe(self, hashes: Int64s) -> tuple[Int64s, Int64s]:
        """Register and rank (leading zeros of the rest, plus one) of each hash."""
        bits = hashes.view(np.uint64)
        places = (bits >> np.uint64(64 - self._precision)).astype(np.int64)
        rest = (bits << np.uint64(self._precision)) | np.uint64(1 << (self._precision - 1))
        high = (rest >> np.uint64(32)).astype(np.float64)
        low = (rest & np.uint64(0xFFFFFFFF)).astype(np.float64)
        length = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1])
        return places, (65 - length).astype(np.int64)

    def merge(self, segments: Segments, states: States) -> States:
        rows = self._registers(states[0])[segments.order]
        if not segments.single:
            rows = np.maximum.reduceat(rows, segments.starts, axis=0)
        return [self._arrow(rows)]

    def combine(self, old: States, new: States) -> States:
        return [self._arrow(np.maximum(self._registers(old[0]), self._registers(new[0])))]

    def result(self, states: States) -> Any:
        registers = self._registers(states[0])
        block = max(1, _BLOCK_BYTES // (8 * self._size))
        parts = [self._estimate(registers[i : i + block]) for i in range(0, len(registers), block)]
        return pa.array(np.concatenate(parts) if parts else np.empty(0, np.int64))

    def _registers(self, column: Any) -> Registers:
        raw, valid = to_numpy(column)
        rows: Registers = raw.view(np.uint8).reshape(len(column), self._size)
        return rows if valid is None else np.where(valid[:, None], rows, np.uint8(0))

    def _arrow(self, registers: Registers) -> Any:
        flat = np.ascontiguousarray(registers).reshape(-1).view(f"V{self._size}")
        return to_arrow(flat, None, self._kind)

    def _estimate(self, registers: Registers) -> Int64s:
        size, precision = self._size, self._precision
        weights = np.exp2(-np.arange(256, dtype=np.float64))
        raw = _alpha(precision) * size * size / weights[registers].sum(axis=1)
        empty = np.count_nonzero(registers == 0, axis=1).astype(np.float64)
        corrected = raw
        tables = _TABLES_FROM <= precision <= _TABLES_TO and bool(self._correction.estimates)
        if tables:
            corrected = np.where(raw < 5.0 * size, raw - self._bias(raw), raw)
        linear = size * np.log(size / np.maximum(empty, 1.0))
        small = raw <= 2.5 * size
        if tables:
            small |= linear <= self._correction.threshold
        estimate = np.where((empty > 0) & small, linear, corrected)
        rounded: Int64s = np.floor(estimate + 0.5).astype(np.int64)
        return rounded

    def _bias(self, raw: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Mean bias of the nearest known estimates."""
        known = np.array(self._correction.estimates)
        biases = np.array(self._correction.biases)
        low = np.maximum(np.searchsorted(known, raw) - _NEIGHBOURS + 1, 0)
        while True:
            high = low + _NEIGHBOURS
            inside = high < len(known)
            above = known[np.minimum(high, len(known) - 1)]
            below = known[np.minimum(low, len(known) - 1)]
            move = inside & ((raw - above) ** 2 < (raw - below) ** 2)
            if not move.any():
                break
            low = low + move
        high = np.minimum(low + _NEIGHBOURS, len(known))
        sums = np.concatenate(([0.0], np.cumsum(biases)))
        mean: npt.NDArray[np.float64] = (sums[high] - sums[low]) / np.maximum(high - low, 1)
        return mean


def _alpha(precision: int) -> float:
    fixed = {4: 0.673, 5: 0.697, 6: 0.709}
    return fixed.get(precision, 0.7213 / (1.0 + 1.079 / (1 << precision)))
