"""States merged by expressions: neighbours first, in the order of the rows."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.processor.columnar.support import MemoryWorker

from anabranch.model.keyspace import HASH
from anabranch.processor.columnar.definition import ColumnarDefinition
from anabranch.processor.columnar.expressions import CallExpression, FieldExpression
from anabranch.processor.columnar.merging import ExpressionKernel, MergeProcessor
from anabranch.state.columnar.grouping import Segments, group_rows

LEFT, RIGHT = FieldExpression(True, 0), FieldExpression(False, 0)
FIRST = ExpressionKernel(
    [pa.field("first", pa.string())], [CallExpression("coalesce", (LEFT, RIGHT), pa.string())]
)
SUM = ExpressionKernel(
    [pa.field("sum", pa.int64())], [CallExpression("add", (LEFT, RIGHT), pa.int64())]
)


def segments_of(keys: list[int]) -> Segments:
    hashes = np.array(keys, np.int64)
    return group_rows(hashes, [pa.array(keys)], None)[0]


@pytest.mark.parametrize("seed", range(20))
def test_as_one_after_the_other(seed: int) -> None:
    chance = random.Random(seed)
    keys = [chance.randrange(9) for _ in range(chance.randrange(1, 200))]
    names = [chance.choice([None, str(at)]) for at in range(len(keys))]
    numbers = [chance.randrange(100) for _ in keys]
    segments = segments_of(keys)
    (first,) = FIRST.merge(segments, [pa.array(names, pa.string())])
    (total,) = SUM.merge(segments, [pa.array(numbers)])
    for at, key in enumerate(sorted(set(keys))):
        own = [place for place, each in enumerate(keys) if each == key]
        given = [names[place] for place in own if names[place] is not None]
        assert first[at].as_py() == (given[0] if given else None)
        assert total[at].as_py() == sum(numbers[place] for place in own)


def test_no_rows() -> None:
    none = np.empty(0, np.intp)
    assert len(SUM.merge(Segments(none, none), [pa.array([], pa.int64())])[0]) == 0


def test_without_keys_each_batch_has_a_row() -> None:
    """Also one without rows, as in Spark."""
    schema = pa.schema([pa.field("0_sum", pa.int64())])
    processor = MergeProcessor(
        [SUM], [["0_sum"]], schema, fingerprint=[], append=False, expiry=None, idle={"0_sum": 0}
    )
    own = MemoryWorker(ColumnarDefinition(processor, pa.schema([]), schema, schema))
    none = pa.table({HASH: pa.array([], pa.int64()), "0_sum": pa.array([], pa.int64())})
    some = pa.table({HASH: pa.array([0, 0]), "0_sum": pa.array([3, 4])})
    shown = [own.run(rows).column("0_sum").to_pylist() for rows in (none, some, none)]
    assert shown == [[0], [7], [7]]


def test_keys_without_functions_are_put_out_whenever_they_come() -> None:
    keys = pa.schema([pa.field("k", pa.int64())])
    processor = MergeProcessor([], [], keys, fingerprint=[], append=False, expiry=None)
    own = MemoryWorker(ColumnarDefinition(processor, keys, keys, keys))
    rows = pa.table({HASH: pa.array([5, 5]), "k": pa.array([1, 1])})
    assert [own.run(rows).column("k").to_pylist() for _ in range(2)] == [[1], [1]]
