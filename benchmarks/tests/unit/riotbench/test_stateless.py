"""Tasks without state: SenML, range filter, Bloom filter, annotation, table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.riotbench.annotation import Annotate, ToSenml
from anabranch_bench.workloads.riotbench.bloom import (
    BloomFilter,
    make_filter,
    open_filter,
    stable_hash,
)
from anabranch_bench.workloads.riotbench.datasets import CITY, DATASETS, GRID
from anabranch_bench.workloads.riotbench.interpolation import ZeroFill
from anabranch_bench.workloads.riotbench.observations import (
    ParseFeatures,
    ParseFields,
    ParseSeries,
    RangeFilter,
    as_matrix,
)
from anabranch_bench.workloads.riotbench.oracle.messages import plain, read
from anabranch_bench.workloads.riotbench.senml import csv_to_senml, parse_senml
from anabranch_bench.workloads.riotbench.streams import find_messages
from anabranch_bench.workloads.riotbench.table import InsertRows, RowTable

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
