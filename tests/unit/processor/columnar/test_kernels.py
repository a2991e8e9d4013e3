"""Aggregate kernels against plain Python."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import ProcessorError
from anabranch.processor.columnar.decimals import DecimalAverage, DecimalSum
from anabranch.processor.columnar.kernels import Average, Count, Kernel, Sum
from anabranch.processor.columnar.selection import Extreme, Nth
from anabranch.state.columnar.grouping import Segments, group_rows


def segments_of(codes: Any) -> Segments:
    return group_rows(np.asarray(codes, np.int64), [], None)[0]


def run(kernel: Kernel, codes: Any, column: Any, parts: int = 3) -> list[Any]:
    """The result for each code, with rows in several parts, combined and merged."""
    codes = np.asarray(codes)
    size = len(codes)
    whole = kernel.reduce(segments_of(codes), column)
    collected, keys = [], []
    for rows in np.array_split(np.arange(size), parts):
        if len(rows):
            some = codes[rows]
            piece = None if column is None else column.take(rows)
            collected.append(kernel.reduce(segments_of(some), piece))
            keys.append(np.unique(some))
    states = [pa.concat_arrays(list(columns)) for columns in zip(*collected, strict=True)]
    merged = kernel.merge(segments_of(np.concatenate(keys)), states)
    result: list[Any] = kernel.result(whole).to_pylist()
    assert repr(kernel.result(merged).to_pylist()) == repr(result)
    nothing = [pa.nulls(len(whole[0]), state.type) for state in whole]
    assert repr(kernel.result(kernel.combine(nothing, whole)).to_pylist()) == repr(result)
    return result


CODES = np.array([0, 1, 0, 2, 1, 0, 3, 3])


def test_count_and_sum() -> None:
    values = pa.array([1, None, 3, None, 5, 6, -7, 7], pa.int64())
    assert run(Count(), CODES, None) == [3, 2, 1, 2]
    assert run(Count(), CODES, values.is_valid()) == [3, 1, 0, 2]
    assert run(Sum(pa.int64(), ansi=True), CODES, values) == [10, 5, None, 0]
    doubles = values.cast(pa.float64())
    assert run(Sum(pa.float64(), ansi=True), CODES, doubles) == [10.0, 5.0, None, 0.0]
    assert run(Average(pa.float64()), CODES, doubles) == [10 / 3, 5.0, None, 0.0]


@pytest.mark.parametrize("parts", [[2**62, 2**62], [-(2**62), -(2**62), -1], [2**63 - 1, 1]])
def test_long_overflow(parts: list[int]) -> None:
    column = pa.array([*parts, 5], pa.int64())
    codes = [0] * len(parts) + [1]
    kernel = Sum(pa.int64(), ansi=True)
    with pytest.raises(ProcessorError, match="ARITHMETIC_OVERFLOW"):
        kernel.reduce(segments_of(codes), column)
    last = [pa.array(parts[-1:], pa.int64())]
    rest = [pa.array([sum(parts[:-1])], pa.int64())]
    with pytest.raises(ProcessorError, match="ARITHMETIC_OVERFLOW"):
        kernel.combine(rest, last)
    wrapped = Sum(pa.int64(), ansi=False).reduce(segments_of(codes), column)[0].to_pylist()
    assert wrapped == [(sum(parts) + 2**63) % 2**64 - 2**63, 5]


def test_large_longs_that_fit() -> None:
    column = pa.array([2**63 - 1, -(2**63), 2**62, -5], pa.int64())
    assert run(Sum(pa.int64(), ansi=True), [0, 0, 1, 1], column, 1) == [-1, 2**62 - 5]


def test_decimal_sum_and_average() -> None:
    rng = np.random.default_rng(4)
    numbers = [
        None if rng.random() < 0.2 else Decimal(int(rng.integers(-(10**17), 10**17))) / 100
        for _ in range(500)
    ]
    codes = rng.integers(0, 20, 500)
    column = pa.array(numbers, pa.decimal128(28, 2))
    groups = [
        [n for n, c in zip(numbers, codes, strict=True) if c == k and n is not None]
        for k in range(20)
    ]
    with localcontext() as context:
        context.prec = 60
        sums = [sum(g, Decimal(0)) for g in groups]
        means = [
            (s / len(g)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
            for s, g in zip(sums, groups, strict=True)
        ]
    assert run(DecimalSum(pa.decimal128(28, 2), True), codes, column) == sums
    average = DecimalAverage(pa.decimal128(28, 2), pa.decimal128(22, 6), True)
    assert run(average, codes, column) == means


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("count", [2, 40])
def test_decimal_overflow(sign: int, count: int) -> None:
    column = pa.array([Decimal(sign * (10**38 - 1))] * count, pa.decimal128(38, 0))
    with pytest.raises(ProcessorError, match="ARITHMETIC_OVERFLOW"):
        DecimalSum(pa.decimal128(38, 0), True).reduce(segments_of([0] * count), column)
    kernel = DecimalSum(pa.decimal128(38, 0), False)
    lost = kernel.reduce(segments_of([0] * count), column)
    assert kernel.result(lost).to_pylist() == [None]
    one = [pa.array([Decimal(1)], pa.decimal128(38, 0)), pa.array([False])]
    assert kernel.result(kernel.combine(lost, one)).to_pylist() == [None]


def test_extremes() -> None:
    nan = float("nan")
    column = pa.array([1.0, nan, -2.0, None, 3.0, nan, nan, nan], pa.float64())
    low = run(Extreme(pa.float64(), greatest=False), CODES, column)
    high = run(Extreme(pa.float64(), greatest=True), CODES, column)
    assert repr(low) == "[-2.0, 3.0, None, nan]"
    assert repr(high) == "[nan, nan, None, nan]"
    texts = pa.array(["b", "", None, None, "zz", "a", "é", "z"], pa.string())
    assert run(Extreme(pa.string(), greatest=False), CODES, texts) == ["a", "", None, "z"]
    assert run(Extreme(pa.string(), greatest=True), CODES, texts) == ["b", "zz", None, "é"]
    bools = pa.array([True, False, None, None, True, True, False, False])
    assert run(Extreme(pa.bool_(), greatest=False), CODES, bools) == [True, False, None, False]
    lists = pa.array([[2], [1], [1, 5], None, [1, None], [3], [], None], pa.list_(pa.int32()))
    assert run(Extreme(lists.type, greatest=False), CODES, lists) == [[1, 5], [1], None, []]


def test_first_and_last() -> None:
    column = pa.array([None, "b", "c", None, "e", None, None, "h"], pa.string())
    assert run(Nth(pa.string(), False, False), CODES, column) == [None, "b", None, None]
    assert run(Nth(pa.string(), False, True), CODES, column) == ["c", "b", None, "h"]
    assert run(Nth(pa.string(), True, False), CODES, column) == [None, "e", None, "h"]
    assert run(Nth(pa.string(), True, True), CODES, column) == ["c", "e", None, "h"]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("seen", [(3, 3), (3, 0), (0, 3), (0, 0), (1, 3), (3, 2), (2, 0), (0, 1)])
def test_first_and_last_of_two_states(last: bool, seen: tuple[int, int]) -> None:
    """Whichever side has been seen, for all keys, some or none; a state may be missing."""
    kernel = Nth(pa.string(), last, ignore_nulls=False)
    sides: list[list[Any]] = []
    for name, count in zip(("old", "new"), seen, strict=True):
        texts = [f"{name} {i}" if i < count and i != 1 else None for i in range(3)]
        unseen = None if name == "old" else False  # a new key has no state at all
        flags = [i < count or unseen for i in range(3)]
        sides.append([pa.array(texts, pa.string()), pa.array(flags, pa.bool_())])
    old, new = sides
    found = kernel.combine(old, new)
    plain = Kernel.combine(kernel, old, new)
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in plain]


def test_first_passes_on_what_it_was_given() -> None:
    """A value that stays is neither copied nor, when it is stored, compared."""
    old = [pa.array(["x" * 50, "y" * 50]), pa.array([True, True])]
    new = [pa.array(["no", None]), pa.array([True, False])]
    found = Nth(pa.string(), last=False, ignore_nulls=True).combine(old, new)[0]
    assert [b and b.address for b in found.buffers()] == [b and b.address for b in old[0].buffers()]
