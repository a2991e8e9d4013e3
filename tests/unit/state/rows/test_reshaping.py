"""Stored columns in the types that a processor defines now."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anabranch.state.rows.reshaping import reshaped

BIG = 2**60 + 1


@pytest.mark.parametrize(
    ("values", "kind", "wanted", "expected"),
    [
        ([1, None, -3], pa.int32(), pa.int64(), [1, None, -3]),
        ([1, BIG, None], pa.int64(), pa.float64(), [1.0, float(BIG), None]),
        ([1.5, None], pa.float32(), pa.float64(), [1.5, None]),
        (["x", None], pa.string(), pa.binary(), [b"x", None]),
        ([None, None], pa.null(), pa.list_(pa.int32()), [None, None]),
        (
            [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}],
            pa.struct([("x", pa.int32()), ("y", pa.string())]),
            pa.struct([("z", pa.date32()), ("x", pa.float64())]),
            [{"z": None, "x": 1.0}, None, {"z": None, "x": None}],
        ),
        (
            [[{"x": BIG}], None, [], [None, {"x": 2}]],
            pa.list_(pa.struct([("x", pa.int64())])),
            pa.list_(pa.struct([("x", pa.float64())])),
            [[{"x": float(BIG)}], None, [], [None, {"x": 2.0}]],
        ),
        (
            [[("a", 1)], None, [], [("b", None), ("c", 3)]],
            pa.map_(pa.string(), pa.int32()),
            pa.map_(pa.string(), pa.int64()),
            [[("a", 1)], None, [], [("b", None), ("c", 3)]],
        ),
        ([{"x": 1}, None], pa.struct([("x", pa.int32())]), pa.struct([]), [{}, None]),
    ],
)
def test_reshaped(values: list[Any], kind: Any, wanted: Any, expected: list[Any]) -> None:
    column = pa.array(values, kind)
    for rows in (slice(None), slice(1, None), slice(0, 1), slice(0, 0)):
        found = reshaped(column[rows], wanted)
        found.validate(full=True)
        assert found.type == wanted
        assert found.to_pylist() == expected[rows]


def test_what_fits_is_not_copied() -> None:
    column = pa.array([1, 2])
    assert reshaped(column, pa.int64()) is column
