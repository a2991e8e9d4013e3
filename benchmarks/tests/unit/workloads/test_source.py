"""Schedule and pieces of a stream."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_bench.workloads.keycount import KeyCountConfig, KeyCountEvents
from anabranch_bench.workloads.source import Steady, cut, read_places


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(1, 7))
def test_pieces_cover_the_batch(first: int, size: int, parts: int) -> None:
    pieces = cut(first, first + size, parts)
    assert [row for p in pieces for row in range(p.first, p.end)] == list(
        range(first, first + size)
    )
    assert len(pieces) <= parts


def test_steady_pace() -> None:
    pace = Steady(rate=100)
    assert pace.end_of_batch(0, 50.0) == 1
    assert pace.end_of_batch(1, 50.5) == 51
    assert pace.end_of_batch(51, 50.5) == 51
    assert pace.end_of_batch(51, 51.0) == 101


def test_catching_up_is_bounded_and_complete() -> None:
    pace = Steady(rate=100, catch_up_seconds=2)
    pace.end_of_batch(0, 0.0)
    row, batches = 1, []
    for _ in range(6):
        end = pace.end_of_batch(row, 10.0)
        batches.append(end - row)
        row = end
    assert batches == [200, 200, 200, 200, 200, 0]
    assert row == 1001


def test_a_restart_goes_on_where_it_was() -> None:
    pace = Steady(rate=100)
    assert pace.end_of_batch(5000, 1000.0) == 5001, "the time in between is not made up for"
    assert pace.end_of_batch(5001, 1001.0) == 5101


def test_a_stream_with_an_end() -> None:
    pace = Steady(rate=100, rows=30)
    pace.end_of_batch(0, 0.0)
    assert pace.end_of_batch(1, 5.0) == 30
    assert pace.end_of_batch(30, 9.0) == 30


@pytest.mark.parametrize("rows", [1, 32_768, 100_000])
def test_slices_are_the_whole(rows: int) -> None:
    events = KeyCountEvents(KeyCountConfig(keys=10))
    (places,) = cut(0, rows, 1)
    batches = list(read_places(events, places))
    assert pa.Table.from_batches(batches) == pa.Table.from_batches([events.between(0, rows)])
    assert len(batches) == -(-rows // 32_768)
