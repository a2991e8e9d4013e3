"""Equality and order of Arrow values of every kind."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from anabranch.state.columnar.compare import equal, normalise, ranks

NAN = float("nan")
_STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])

ORDERED: list[tuple[Any, list[Any]]] = [
    (pa.int64(), [None, -5, 0, 7]),
    (pa.int8(), [None, -5, 0, 7]),
    (pa.bool_(), [None, False, True]),
    (pa.float64(), [None, float("-inf"), -2.5, -1e-300, 0.0, 3.0, float("inf"), NAN]),
    (pa.float32(), [None, -2.5, 0.0, 3.0, NAN]),
    (pa.string(), [None, "", "B", "a", "aa", "é"]),
    (pa.binary(), [None, b"", b"\x00", b"\x00\x01", b"\xff"]),
    (pa.decimal128(38, 4), [None, Decimal("-99999.5"), Decimal("0.0001"), Decimal(10**30)]),
    (pa.date32(), [None, datetime.date(1969, 1, 1), datetime.date(2020, 1, 1)]),
    (
        pa.timestamp("us", "UTC"),
        [
            None,
            datetime.datetime(1960, 1, 1, tzinfo=datetime.timezone.utc),
            datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
        ],
    ),
    (pa.list_(pa.int32()), [None, [], [None], [1], [1, None], [1, 2], [2]]),
    (pa.list_(pa.list_(pa.string())), [None, [], [[]], [["a"]], [["a"], ["b"]], [["b"]]]),
    (
        _STRUCT,
        [None, {"a": None, "b": "z"}, {"a": 1, "b": None}, {"a": 1, "b": "x"}, {"a": 2, "b": ""}],
    ),
    (pa.list_(_STRUCT), [None, [], [{"a": 1, "b": "x"}], [{"a": 1, "b": "y"}]]),
]


@pytest.mark.parametrize(("kind", "values"), ORDERED, ids=lambda x: str(x)[:20])
def test_equality_and_order(kind: Any, values: list[Any]) -> None:
    rng = np.random.default_rng(5)
    left = rng.integers(0, len(values), 300)
    right = rng.integers(0, len(values), 300)
    a = pa.array([values[i] for i in left], kind)
    b = pa.array([values[i] for i in right], kind)
    assert equal(a, b).tolist() == (left == right).tolist()
    # Slices have offsets into shared buffers.
    assert equal(a.slice(50, 200), b.slice(50, 200)).tolist() == (left == right)[50:250].tolist()
    assert equal(a, a).all()
    # The same buffers, other values.
    shifted = (left[:-1] == left[1:]).tolist()
    assert equal(a.slice(0, 299), a.slice(1)).tolist() == shifted
    assert ranks(a).tolist() == np.unique(left, return_inverse=True)[1].tolist()
    assert ranks(a.slice(9, 99)).tolist() == _dense(left[9:108])


def _dense(codes: Any) -> list[int]:
    # Rank 0 belongs to null even when there is none.
    found = np.unique(codes, return_inverse=True)[1]
    return list(found if 0 in codes else found + 1)


def test_maps_are_equal_entry_by_entry() -> None:
    kind = pa.map_(pa.string(), pa.int32())
    a = pa.array([[("a", 1)], [("a", 1), ("b", None)], None, []], kind)
    b = pa.array([[("a", 1)], [("a", 1), ("b", 2)], None, None], kind)
    assert equal(a, b).tolist() == [True, False, True, False]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_one_nan_and_one_zero(kind: Any) -> None:
    odd = np.array([0x7FF8000000000001, 0x7FF0000000000001], np.uint64).view(np.float64)
    with np.errstate(invalid="ignore"):
        values = np.concatenate(([-0.0, 0.0, 1.0], odd)).astype(kind.to_pandas_dtype())
    flat = normalise(pa.array(values))
    bits = np.frombuffer(flat.buffers()[1], f"u{values.itemsize}")
    assert len(np.unique(bits)) == 3
    nested = pa.array([[-0.0], [0.0], None, [NAN, -0.0]], pa.list_(kind))
    assert equal(normalise(nested), pa.array([[0.0], [0.0], None, [NAN, 0.0]], nested.type)).all()
    rows = pa.array([{"x": -0.0}, None, {"x": None}], pa.struct([("x", kind)]))
    expected = pa.array([{"x": 0.0}, None, {"x": None}], rows.type)
    assert equal(normalise(rows), expected).all()
