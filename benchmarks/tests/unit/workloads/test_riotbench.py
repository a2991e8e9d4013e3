"""RIoTBench's tasks. With state: each against its formula, however batches are cut; and without."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.tests.unit.workloads.riotbench.support import Operator
from pyspark.sql import Row

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.riotbench.accumulation import Accumulator
from anabranch_bench.workloads.riotbench.annotation import Annotate, ToSenml
from anabranch_bench.workloads.riotbench.averages import BlockAverage
from anabranch_bench.workloads.riotbench.bloom import (
    BloomFilter,
    make_filter,
    open_filter,
    stable_hash,
)
from anabranch_bench.workloads.riotbench.datasets import CITY, DATASETS, GRID
from anabranch_bench.workloads.riotbench.distinct import DistinctApproxCount
from anabranch_bench.workloads.riotbench.estimation import ErrorEstimate
from anabranch_bench.workloads.riotbench.interpolation import Interpolation, ZeroFill
from anabranch_bench.workloads.riotbench.joining import JoinFields
from anabranch_bench.workloads.riotbench.kalman import KalmanFilter
from anabranch_bench.workloads.riotbench.observations import (
    ParseFeatures,
    ParseFields,
    ParseSeries,
    RangeFilter,
    as_matrix,
)
from anabranch_bench.workloads.riotbench.oracle.messages import plain, read
from anabranch_bench.workloads.riotbench.regression import WIDTH, SlidingRegression, carried_on
from anabranch_bench.workloads.riotbench.senml import csv_to_senml, parse_senml
from anabranch_bench.workloads.riotbench.streams import find_messages
from anabranch_bench.workloads.riotbench.table import InsertRows, RowTable

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


# -- without state: SenML, range filter, Bloom filter, annotation, table --

ALL = sorted(DATASETS)


def table_of(name: str, count: int = 200) -> pa.Table:
    return pa.Table.from_batches([find_messages(name).between(0, count)])


def texts(*messages: str) -> Any:
    return pa.array(messages, pa.string())


def observations(fields: list[str], values: list[float | None], sensor: str = "a") -> pa.Table:
    return pa.table(
        {
            "sensor": [sensor] * len(fields),
            "field": fields,
            "value": pa.array(values, pa.float64()),
        }
    )


@pytest.mark.parametrize("name", ALL)
def test_parser_and_oracle_read_the_same(name: str) -> None:
    dataset, events = DATASETS[name], table_of(name)
    rows = ParseFields(dataset)(events).to_pylist()
    messages = list(read(dataset, events))
    assert len(rows) == len(messages) * len(dataset.observed)
    for number, message in enumerate(messages):
        own = rows[number * len(dataset.observed) : (number + 1) * len(dataset.observed)]
        assert {r["field"]: r["value"] for r in own} == {
            f: message.number(f) for f in dataset.observed
        }
        meta = ",".join(message.texts[name] for name in dataset.meta)
        for row in own:
            assert (row["id"], row["at_ms"]) == (message.id, message.at_ms)
            assert (row["sensor"], row["meta"]) == (message.sensor, meta)


@pytest.mark.parametrize("name", ALL)
def test_features(name: str) -> None:
    dataset, events = DATASETS[name], table_of(name)
    rows = ParseFeatures(dataset)(events)
    found = as_matrix(rows.column("features"), len(dataset.features)).tolist()
    assert found == [m.features(dataset) for m in read(dataset, events)]


def test_entries_in_any_order_and_missing_values() -> None:
    one = '{"bt":5,"e":[{"n":"energyconsumed","u":"kWh","v":"2.5"},{"n":"meterid","sv":"m1"}]}'
    two = '{"e":[{"n":"meterid","u":"string","sv":"m2"},{"n":"other","v":"1"}],"bt":6}'
    parsed = parse_senml(GRID, texts(one, two))
    assert parsed.sensor.to_pylist() == ["m1", "m2"]
    assert parsed.at_ms.tolist() == [5, 6]
    assert parsed.values[0, 0] == 2.5
    assert np.isnan(parsed.values[1, 0])
    events = pa.table({"id": [0, 1], "message": texts(one, two)})
    assert ParseFields(GRID)(events).column("value").to_pylist() == [2.5, None]
    assert ParseSeries(GRID)(events).column("id").to_pylist() == [0]
    assert ParseFeatures(GRID)(events).column("id").to_pylist() == [0]


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        "",
        '{"bt":1}',
        '{"e":[{"n":"meterid","sv":"m"}]}',
        '{"bt":"noon","e":[{"n":"meterid","sv":"m"}]}',
        '{"bt":1,"e":[{"n":"energyconsumed","v":"1"}]}',
        '{"bt":1,"e":[{"n":"meterid","sv":"m"},{"n":"energyconsumed","v":"lots"}]}',
        '{"bt":1,"e":[{"n":"meterid","sv":"m,n"}]}',
    ],
)
def test_what_is_not_senml(message: str) -> None:
    with pytest.raises(InvalidArgument, match="Not SenML"):
        parse_senml(GRID, texts(message))


@pytest.mark.parametrize("name", ALL)
def test_csv_to_senml_and_back(name: str) -> None:
    dataset = DATASETS[name]
    row = ",".join(str(i) for i, _ in enumerate(dataset.columns))
    names = (*dataset.columns, *dataset.annotations)
    annotated = row + "," + ",".join("x" for _ in dataset.annotations)
    parsed = parse_senml(dataset, csv_to_senml(dataset, texts(annotated), names))
    places = {column: i for i, column in enumerate(dataset.columns)}
    assert parsed.at_ms.tolist() == [places["timestamp"]]
    assert parsed.values[0].tolist() == [places[column] for column in dataset.observed]
    assert parsed.meta[0].as_py() == ",".join(str(places[column]) for column in dataset.meta)


def test_numbers_as_texts_are_the_oracles() -> None:
    chance = np.random.default_rng(1)
    numbers = np.concatenate(
        [
            [0.0, 0.1, 8.0, 52.0, 1e-5, 123456.75],
            chance.normal(0, 1000, 5000) / 7,
            chance.random(50),
        ]
    )
    shown = pa.array(numbers).cast(pa.string()).to_pylist()
    assert shown == [plain(number) for number in numbers.tolist()]


def test_range_filter() -> None:
    low, high = CITY.ranges["humidity"]
    values = [low, high, low - 0.01, high + 0.01, None]
    rows = observations(["humidity"] * 5, values)
    found = RangeFilter(CITY)(rows).column("value").to_pylist()
    assert found == [low, high, None, None, None], "bounds are valid"
    free = observations(["surcharge", "fare_amount"], [-1e9, -1e9])
    assert RangeFilter(DATASETS["taxi"])(free).column("value").to_pylist() == [-1e9, None]


def test_bloom_filter_never_rejects_a_member_and_seldom_accepts_others() -> None:
    members = [f"sensor{i}" for i in range(2162)]
    saved = make_filter(members)
    contained = open_filter(saved)
    assert all(name in contained for name in members)
    strangers = sum(f"other{i}" in contained for i in range(100_000))
    assert strangers <= 2000
    assert len(saved) < 10_000


def test_bloom_filter_nulls_values_of_strangers() -> None:
    task = BloomFilter(make_filter(["a", "b"]))
    rows = pa.concat_tables(
        [observations(["light"], [1.0], "a"), observations(["light"], [2.0], "stranger")]
    )
    assert task(rows).column("value").to_pylist() == [1.0, None]
    assert stable_hash("a") == int.from_bytes(
        bytes.fromhex("27c35e6e9373877f29e562464e46497e"), "little", signed=True
    ), "the same in every process and version"


def test_zero_fill() -> None:
    rows = observations(["light", "dust"], [None, 2.0])
    assert ZeroFill()(rows).column("value").to_pylist() == [0.0, 2.0]


def test_annotation() -> None:
    known = find_messages("city", sensors=3).known
    ids = [*known.ids.to_pylist(), "stranger"]
    rows = pa.table({"id": range(4), "sensor": ids, "row": ["x,y"] * 4})
    found = Annotate(known)(rows).column("row").to_pylist()
    location, kind = known.annotations
    assert found[:3] == [f"x,y,{location[i]},{kind[i]}" for i in range(3)]
    assert found[3] == "x,y,,"


def test_rows_become_messages() -> None:
    rows = pa.table({"id": [4], "sensor": ["m"], "row": ["m,77,2.5,region1,day"]})
    assert ToSenml(GRID)(rows).to_pylist() == [
        {
            "id": 4,
            "message": '{"e":[{"u":"string","n":"meterid","sv":"m"},'
            '{"u":"kWh","n":"energyconsumed","v":"2.5"},'
            '{"u":"string","n":"region","sv":"region1"},'
            '{"u":"string","n":"tariff","sv":"day"}],"bt":77}',
        }
    ]


def test_table_replaces_rows_and_finds_ranges(tmp_path: Path) -> None:
    table = RowTable(str(tmp_path / "rows.sqlite"))
    rows = pa.table(
        {
            "id": list(range(250)),
            "sensor": ["m"] * 250,
            "row": [f"m,{1000 + i},{i}" for i in range(250)],
        }
    )
    for _ in range(2):
        assert InsertRows(table, GRID)(rows) is rows
    assert table.between(1000, 1003) == ["m,1000,0", "m,1001,1", "m,1002,2"]
    assert len(table.between(0, 10_000)) == 250
    assert table.between(2000, 3000) == []
