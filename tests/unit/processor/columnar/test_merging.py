"""States merged by expressions: neighbours first, in the order of the rows."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from anabranch.processor.columnar.expressions import CallExpression, FieldExpression
from anabranch.processor.columnar.merging import ExpressionKernel
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
