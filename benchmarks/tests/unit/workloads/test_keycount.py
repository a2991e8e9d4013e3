"""Laws of the key-count stream."""

from __future__ import annotations

import math
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.errors import InvalidArgument
from anabranch_bench.workloads.keycount import KeyCountConfig, KeyCountEvents, KeyCountWorkload

ROWS = 200_000


def keys(config: KeyCountConfig, first: int = 0, end: int = ROWS) -> Any:
    return KeyCountEvents(config).between(first, end).column("k").to_numpy()


def test_even_keys() -> None:
    counts = np.bincount(keys(KeyCountConfig(keys=1000)), minlength=1000)
    assert len(counts) == 1000
    chi_squared = float(np.sum((counts - 200) ** 2 / 200))
    assert abs(chi_squared - 999) < 4.5 * math.sqrt(2 * 999)


def test_distinct_keys() -> None:
    space = 100_000
    found = len(np.unique(keys(KeyCountConfig(keys=space))))
    expected = space * (1 - (1 - 1 / space) ** ROWS)
    assert abs(found - expected) < 4.5 * math.sqrt(expected * 0.14)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_zipf(exponent: float) -> None:
    counts = np.bincount(keys(KeyCountConfig(keys=500, zipf=exponent)), minlength=500)
    weights = np.arange(1, 501) ** -exponent
    expected = ROWS * weights / weights.sum()
    chi_squared = float(np.sum((counts - expected) ** 2 / expected))
    assert abs(chi_squared - 499) < 4.5 * math.sqrt(2 * 499) + 30


def test_preload_brings_every_key_once_with_its_payload() -> None:
    config = KeyCountConfig(keys=100, payload_bytes=13, preload=True)
    workload = KeyCountWorkload(config)
    assert workload.preload_rows == 100
    events = pa.Table.from_batches([workload.events.between(0, 5000)])
    assert events.column("k").to_pylist()[:100] == list(range(100))
    payloads = events.column("payload").to_pylist()
    assert {len(p) for p in payloads[:100]} == {13}
    assert len(set(payloads[:100])) == 100
    assert set(payloads[100:]) == {None}
    expected = workload.expected(events)["counts"].to_pydict()
    assert sum(expected["n"]) == 5000
    assert expected["payload"] == [zlib.crc32(p) for p in payloads[:100]]


@pytest.mark.parametrize("zipf", [0.0, 1.1])
def test_any_cut_gives_the_same_rows(zipf: float) -> None:
    config = KeyCountConfig(keys=50, zipf=zipf, payload_bytes=5, preload=True, seed=4)
    events = KeyCountEvents(config)
    whole = pa.Table.from_batches([events.between(0, 300)])
    pieces = [events.between(a, b) for a, b in ((0, 0), (0, 49), (49, 50), (50, 51), (51, 300))]
    assert pa.Table.from_batches(pieces) == whole
    assert not np.array_equal(
        keys(config, 50, 300), keys(KeyCountConfig(keys=50, zipf=zipf), 50, 300)
    )


@pytest.mark.parametrize(
    "wrong", [{"keys": 0}, {"payload_bytes": 9}, {"zipf": -1.0}, {"zipf": 1.0, "keys": 10**8}]
)
def test_mistakes(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        KeyCountConfig(**wrong)
