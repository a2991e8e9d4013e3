"""How many rows of a key user code gets at a time."""

from __future__ import annotations

import pytest
from tests.unit.processor.rows.processors import Sizing, SizingFrames
from tests.unit.processor.rows.sizes import KV, service, sizes

from anabranch.processor.rows.frame_limits import BYTES, ROWS


@pytest.mark.parametrize(
    ("settings", "third"),
    [
        ({}, [12]),
        ({ROWS: "5"}, [5, 5, 2]),
        ({ROWS: "12"}, [12]),
        ({ROWS: "0"}, [12]),
        ({ROWS: "-1"}, [12]),
        ({BYTES: "64"}, [4, 4, 4]),  # 16 bytes a row
        ({BYTES: "65"}, [5, 5, 2]),
        ({BYTES: "1"}, [1] * 12),
        ({BYTES: "1k"}, [12]),
        ({BYTES: str(2**31 - 1)}, [12]),
        ({BYTES: "64b", ROWS: "3"}, [3, 3, 3, 3]),
        ({BYTES: "64b", ROWS: "5"}, [4, 4, 4]),
    ],
)
def test_frames_have_at_most_so_many_rows(settings: dict[str, str], third: list[int]) -> None:
    worker = service(SizingFrames())
    found = sizes(worker, **settings)
    assert found[3] == third
    assert {key: sum(some) for key, some in found.items()} == {1: 4, 2: 8, 3: 12}


def test_rows_come_in_one_call_but_in_the_first_batch_after_initial_state() -> None:
    plain = {1: [4], 2: [8], 3: [12]}
    assert sizes(service(Sizing()), **{ROWS: "5"}) == plain
    worker = service(Sizing(), KV)
    first = [(1, 0), (2, 0)]
    assert sizes(worker, first, **{ROWS: "5"}) == {1: [4], 2: [5, 3], 3: [5, 5, 2]}
    assert sizes(worker, **{ROWS: "5"}) == plain
    frames = service(SizingFrames(), KV)
    assert sizes(frames, first, **{ROWS: "5"}) == {1: [4], 2: [5, 3], 3: [5, 5, 2]}
