"""Operators with state: each against its formula, and the same however batches are cut."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from benchmarks.tests.unit.riotbench.support import Operator
from pyspark.sql import Row

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.riotbench.accumulation import Accumulator
from anabranch_bench.workloads.riotbench.averages import BlockAverage
from anabranch_bench.workloads.riotbench.datasets import CITY
from anabranch_bench.workloads.riotbench.distinct import DistinctApproxCount
from anabranch_bench.workloads.riotbench.estimation import ErrorEstimate
from anabranch_bench.workloads.riotbench.interpolation import Interpolation
from anabranch_bench.workloads.riotbench.joining import JoinFields
from anabranch_bench.workloads.riotbench.kalman import KalmanFilter
from anabranch_bench.workloads.riotbench.regression import WIDTH, SlidingRegression, carried_on

SERIES = ("id", "sensor", "field", "value")


def interpolation(width: int = 5) -> Operator:
    return Operator(Interpolation(width), ["sensor", "field"], SERIES, SERIES)


def average(width: int = 3, keep_rows: bool = False) -> Operator:
    processor = BlockAverage(width, keep_rows)
    return Operator(processor, ["sensor", "field"], SERIES, ("id", "sensor", "average"))


def kalman() -> Operator:
    return Operator(KalmanFilter(), ["sensor", "field"], SERIES, ("id", "sensor", "value"))


def regression(horizon: int = 3) -> Operator:
    processor = SlidingRegression(horizon)
    return Operator(processor, ["sensor", "field"], SERIES, ("id", "sensor", "predictions"))


def distinct() -> Operator:
    return Operator(DistinctApproxCount(), ["stream"], ("id", "stream", "sensor"), ("id", "count"))


def errors() -> Operator:
    columns = ("id", "sensor", "value", "predicted", "average")
    return Operator(ErrorEstimate(), ["sensor"], columns, ("id", "error"))


def line(values: Sequence[float | None], sensor: str = "a") -> list[tuple[Any, ...]]:
    return [(i, sensor, "light", value) for i, value in enumerate(values)]


def last(rows: list[tuple[Any, ...]]) -> list[Any]:
    return [row[-1] for row in rows]


def test_interpolation_takes_the_mean_of_the_last_valid_values() -> None:
    given = [None, 1.0, 2.0, None, 3.0, 4.0, 5.0, 6.0, None, None]
    found = last(interpolation().run(line(given)))
    assert found == [0.0, 1.0, 2.0, 1.5, 3.0, 4.0, 5.0, 6.0, 4.0, 4.0]


def test_interpolation_keeps_nothing_of_a_sender_without_values() -> None:
    operator = interpolation()
    assert last(operator.run(line([None, None]))) == [0.0, 0.0]
    assert operator.entries == 0


def test_interpolation_knows_senders_and_fields_apart() -> None:
    operator = interpolation()
    operator.run([(0, "a", "light", 5.0), (0, "a", "dust", 7.0), (1, "b", "light", 9.0)])
    found = operator.run([(2, "a", "light", None), (3, "a", "dust", None), (4, "b", "dust", None)])
    assert last(found) == [5.0, 7.0, 0.0]


def test_averages_of_blocks() -> None:
    values = [float(v) for v in range(11)]
    found = average(3).run(line(values))
    assert found == [(2, "a", 1.0), (5, "a", 4.0), (8, "a", 7.0)]
    assert 3 * sum(last(found)) + 9.0 + 10.0 == sum(values)


def test_averages_can_travel_with_all_rows() -> None:
    found = average(2, keep_rows=True).run(line([1.0, 3.0, 5.0]))
    assert last(found) == [None, 2.0, None]


def test_kalman_filter_on_a_constant() -> None:
    found = last(kalman().run(line([10.0] * 4)))
    assert found == pytest.approx([9.894892, 9.955839, 9.977589, 9.988099], abs=1e-6)


def test_kalman_gain_has_its_limit() -> None:
    """A step after a long time moves the estimate by the limit of the gain."""
    found = last(kalman().run(line([0.0] * 200 + [1.0])))
    assert found[-1] == pytest.approx(0.459494, abs=1e-6)


def test_regression_is_exact_on_a_line() -> None:
    values = [2.0 + 0.5 * i for i in range(15)]
    found = regression(4).run(line(values))
    assert len(found) == len(values) - WIDTH
    for number, _, predictions in found:
        expected = [2.0 + 0.5 * (number + j) for j in range(1, 5)]
        assert predictions == pytest.approx(expected, rel=1e-12)


def test_regression_equals_a_fitted_line() -> None:
    values = np.random.default_rng(3).normal(size=(4, WIDTH))
    for window, found in zip(values, carried_on(values, 3), strict=True):
        fitted = np.polyval(np.polyfit(np.arange(WIDTH), window, 1), WIDTH + np.arange(3))
        assert found == pytest.approx(fitted, rel=1e-9)


def test_distinct_count_is_right_within_its_error_and_counts_nobody_twice() -> None:
    rows = [(i, "city", f"s{i}") for i in range(5000)]
    operator = distinct()
    counts = last(operator.run(rows))
    assert counts[0] == pytest.approx(1.0, abs=1e-3)
    assert counts[99] == pytest.approx(100.0, rel=0.02)
    assert counts == sorted(counts)
    for n in (788, 2162, 5000):
        assert counts[n - 1] == pytest.approx(n, rel=3 * 1.04 / math.sqrt(1024))
    again = last(operator.run([(i + 5000, "city", f"s{i}") for i in range(5000)]))
    assert set(again) == {counts[-1]}


def test_errors_are_relative_to_the_last_average() -> None:
    rows = [
        (0, "a", 5.0, 4.0, None),
        (1, "a", 7.0, 4.0, 6.0),
        (2, "a", 3.0, 3.0, None),
        (3, "b", 1.0, 0.0, None),
        (4, "a", 1.0, 2.0, 0.0),
    ]
    assert last(errors().run(rows)) == [None, 0.5, 0.0, None, None], "no division by zero"


def test_join_waits_for_all_fields() -> None:
    columns = ("id", "sensor", "field", "at_ms", "meta", "value")
    operator = Operator(JoinFields(CITY), ["id"], columns, ("id", "sensor", "row"))
    fields = [*CITY.observed]
    rows = [(7, "s", field, 99, "s,1.5,2.5", float(i)) for i, field in enumerate(fields)]
    assert operator.run([rows[3], rows[0], (8, "t", "dust", 100, "t,0,0", 1.0)]) == []
    assert operator.entries == 2
    assert operator.run([rows[4], rows[1]]) == []
    assert operator.run([rows[2]]) == [(7, "s", "99,s,1.5,2.5,0,1,2,3,4")]
    assert operator.entries == 1


def cases() -> dict[str, tuple[Callable[[], Operator], list[tuple[Any, ...]]]]:
    chance = random.Random(5)
    sensors = [chance.choice("abcdefg") for _ in range(200)]
    values = [chance.gauss(10, 3) for _ in sensors]
    series = [(i, s, "light", v) for i, (s, v) in enumerate(zip(sensors, values, strict=True))]
    gaps = [(i, s, f, None if i % 3 else v) for i, s, f, v in series]
    predictions = [(i, s, v, v + 1.0, v if i % 4 == 0 else None) for i, s, _, v in series]
    senders = [(i, "city", s) for i, s, _, _ in series]
    return {
        "interpolation": (interpolation, gaps),
        "average": (average, series),
        "kalman": (kalman, series),
        "regression": (regression, series),
        "distinct": (distinct, senders),
        "errors": (errors, predictions),
    }


@pytest.mark.parametrize("name", sorted(cases()))
def test_batches_do_not_matter(name: str) -> None:
    """Rows of a batch come in any order; results are those of one row after the other."""
    make, rows = cases()[name]
    one_by_one = make()
    expected = [found for row in rows for found in one_by_one.run([row])]
    chance = random.Random(6)
    operator, found = make(), []
    at = 0
    while at < len(rows):
        size = chance.randrange(1, 60)
        batch = rows[at : at + size]
        chance.shuffle(batch)
        found += operator.run(batch)
        at += size
    assert found == expected
    assert operator.entries == one_by_one.entries > 0


def test_accumulator_flushes_in_the_order_of_messages() -> None:
    tws_tester = pytest.importorskip("pyspark.sql.streaming.tws_tester", reason="since Spark 4.2")

    class OneKey(Accumulator):
        """The tester has keys of one column only."""

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            return super().handleInputRows(key[0], rows, timerValues)

    tester = tws_tester.TwsTester(OneKey(3))
    key = ("average", 5)

    def rows(*numbers: int) -> list[Row]:
        return [Row(id=n, sensor="s", field="f", at_ms=n, results=[float(n)]) for n in numbers]

    def flushed(found: list[Row]) -> list[tuple[int, int, list[float]]]:
        assert all((r.statistic, r.shard, r.sensor, r.field) == (*key, "s", "f") for r in found)
        return [(r.flush, r.id, r.results) for r in found]

    assert flushed(tester.test(key, rows(1, 0))) == []
    assert flushed(tester.test(key, rows(3, 2))) == [(0, 0, [0.0]), (0, 1, [1.0]), (0, 2, [2.0])]
    found = flushed(tester.test(key, rows(9, 8, 7, 6, 5)))
    assert [(flush, number) for flush, number, _ in found] == [
        (1, 3), (1, 5), (1, 6), (2, 7), (2, 8), (2, 9),
    ]  # fmt: skip
    assert flushed(tester.test(key, rows(10))) == []


def test_windows_need_a_width() -> None:
    with pytest.raises(InvalidArgument, match="at least one value"):
        Interpolation(0)
    with pytest.raises(InvalidArgument, match="at least one value"):
        BlockAverage(0)
