"""Verdicts must find every kind of difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from anabranch_bench.workloads.contract import Output
from anabranch_bench.workloads.verify import compare, compare_batches, fold

APPENDED, UPDATED, ABOUT = Output(), Output(keys=("k",)), Output(keys=("k",), tolerance=1e-9)


def table(**columns: Any) -> Any:
    return pa.table(columns)


def test_last_value_of_each_key() -> None:
    batches = [
        table(k=[1, 2], v=[1, 1]),
        table(k=[2], v=[5]),
        table(k=[], v=[]),
        table(k=[3], v=[7]),
    ]
    batches[2] = batches[2].cast(batches[0].schema)
    found = fold(batches, UPDATED).sort_by("k")
    assert found.to_pydict() == {"k": [1, 2, 3], "v": [1, 5, 7]}
    assert fold(batches, APPENDED).num_rows == 4


def test_keys_may_be_null() -> None:
    found = fold(
        [table(k=[None, 1], v=[1, 2]), table(k=pa.array([None], pa.int64()), v=[3])], UPDATED
    )
    assert sorted(found.column("v").to_pylist()) == [2, 3]


def test_large_keys_stay_apart_beside_null() -> None:
    """As floating-point numbers they would be one."""
    batches = [table(k=[2**60, 2**60 + 1, None], v=[1, 2, 3])]
    assert fold(batches, UPDATED).num_rows == 3
    assert compare_batches("out", batches[0], batches, UPDATED).is_right


@pytest.mark.parametrize("second", [5, 1])
def test_a_key_twice_in_a_batch_is_wrong_whatever_it_says(second: int) -> None:
    """Whichever row comes last, the answer would be right by luck."""
    batches = [table(k=[2, 1, 2, 2], v=[1, 1, second, 5]), table(k=[1], v=[3])]
    expected = table(k=[1, 2], v=[3, 5])
    verdict = compare_batches("out", expected, batches, UPDATED)
    assert verdict.wrong_rows == 2
    assert verdict.differences == ("3 rows in one batch for {'k': 2}",)
    assert "WRONG" in str(verdict)


def test_a_key_in_two_batches_is_an_update() -> None:
    batches = [table(k=[1, 2], v=[1, 1]), table(k=[2], v=[5]), table(k=[1, 2], v=[3, 6])]
    assert compare_batches("out", table(k=[1, 2], v=[3, 6]), batches, UPDATED).is_right
    assert not compare_batches("out", table(k=[1, 2], v=[3, 5]), batches, UPDATED).is_right


def test_appended_rows_may_repeat() -> None:
    batches = [table(k=[1, 1], v=[1, 1])]
    assert compare_batches("out", batches[0], batches, APPENDED).is_right


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ({"k": [2, 1, 1], "v": ["b", "a", "a"]}, 0),
        ({"k": [1, 2], "v": ["a", "b"]}, 1),
        ({"k": [1, 1, 1, 2], "v": ["a", "a", "a", "b"]}, 1),
        ({"k": [1, 1, 2], "v": ["a", "a", "c"]}, 2),
        ({"k": [1, 1, 2], "v": ["a", "a", None]}, 2),
        ({"k": [], "v": []}, 3),
    ],
)
def test_multisets(found: Mapping[str, Any], wrong: int) -> None:
    expected = table(k=[1, 1, 2], v=["a", "a", "b"])
    schema = expected.schema
    verdict = compare("out", expected, pa.table(found, schema=schema), APPENDED)
    assert (verdict.wrong_rows, verdict.is_right) == (wrong, wrong == 0)
    assert bool(verdict.differences) == (wrong > 0)
    assert ("WRONG" in str(verdict)) == (wrong > 0)


@pytest.mark.parametrize(
    ("found", "wrong"), [([1.0, 2.0], 0), ([1.0, 2.0 + 1e-10], 0), ([1.0, 2.001], 1)]
)
def test_tolerance(found: list[float], wrong: int) -> None:
    verdict = compare("out", table(k=[1, 2], v=[1.0, 2.0]), table(k=[1, 2], v=found), ABOUT)
    assert verdict.wrong_rows == wrong


@pytest.mark.parametrize("keys", [[1, 3], [1], [1, 2, 2]])
def test_tolerance_is_not_for_keys(keys: list[int]) -> None:
    found = table(k=keys, v=[1.0] * len(keys))
    assert not compare("out", table(k=[1, 2], v=[1.0, 1.0]), found, ABOUT).is_right


def test_without_a_tolerance_floats_are_exact() -> None:
    assert not compare("out", table(k=[1], v=[0.3]), table(k=[1], v=[0.1 + 0.2]), UPDATED).is_right


def test_json() -> None:
    verdict = compare("out", table(k=[1]), table(k=[2]), APPENDED)
    said = verdict.to_json()
    assert said["right"] is False
    assert said["wrong_rows"] == 2
    assert any("missing" in d for d in said["differences"])
