"""Large text and bytes as Arrow arrays over the memory of the Python objects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from anabranch.state.large_values import LARGE_BYTES, is_viewable, large_in, view_of


@pytest.mark.parametrize(
    ("value", "kind", "is_copied"),
    [
        (b"\x00\xff" * LARGE_BYTES, pa.binary(), False),
        ("a" * LARGE_BYTES, pa.string(), False),
        ("ä€😀" * LARGE_BYTES, pa.string(), True),
    ],
)
def test_a_large_value_is_looked_at(value: Any, kind: Any, is_copied: bool) -> None:
    before = pa.total_allocated_bytes()
    array = view_of([value], kind)
    assert pa.total_allocated_bytes() - before < 1024
    array.validate(full=True)
    assert array.type == kind
    assert array.to_pylist() == [value]
    again = view_of([value], kind)
    assert (again.buffers()[2].address != array.buffers()[2].address) == is_copied


def test_the_value_lives_as_long_as_its_array() -> None:
    array = view_of(["x" * LARGE_BYTES], pa.string())
    rest = ["y" * LARGE_BYTES for _ in range(20)]  # would take its memory
    assert array.to_pylist() == ["x" * LARGE_BYTES]
    assert rest


@pytest.mark.parametrize("values", [[], [None], ["a"], ["a" * LARGE_BYTES] * 2])
def test_other_values_are_copied(values: list[Any]) -> None:
    assert view_of(values, pa.string()) is None


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        view_of(["\ud800" * LARGE_BYTES], pa.string())


def test_where_the_large_ones_are() -> None:
    large = b"x" * LARGE_BYTES
    assert large_in([]) == []
    assert large_in([b"a", b""]) == []
    assert large_in([b"a", None]) == []
    assert large_in([large, b"a", large]) == [0, 2]
    assert large_in([None, large, None]) == [1]
    assert is_viewable(pa.string())
    assert not is_viewable(pa.int64())
