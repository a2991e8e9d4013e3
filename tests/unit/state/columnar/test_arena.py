"""Values of variable width are found wherever they are, and null where they are not."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.columnar.arena import Arena, gather

TEXTS = st.lists(st.text(max_size=4) | st.text(min_size=9, max_size=16) | st.none(), max_size=9)
KINDS = st.sampled_from([pa.string(), pa.large_string()])
"""Of the second kind values are gathered chunk by chunk, as those of all other types."""


@given(st.lists(st.lists(TEXTS, max_size=5), max_size=5), KINDS, st.randoms(use_true_random=False))
def test_rows_of_several_arenas_come_in_the_order_asked_for(
    contents: list[list[list[str | None]]], kind: pa.DataType, random: Random
) -> None:
    """Also from arenas of several chunks, of none, and rows that are not there."""
    wanted, expected = [], []
    for chunks in contents:
        arena = Arena(kind)
        rows_of: list[int] = []
        texts: list[str | None] = []
        for chunk in chunks:
            rows_of += arena.append(pa.array(chunk, kind)).tolist()
            texts += chunk
        assert [row < 0 for row in rows_of] == [text is None for text in texts]
        assert arena.rows == sum(text is not None for text in texts)
        if random.random() < 0.3:
            kept = [row for row in rows_of if row >= 0 and random.random() < 0.5]
            arena.compact(np.array(kept, np.int32))
            texts = [texts[rows_of.index(row)] for row in kept]
            rows_of = list(range(len(kept)))
        asked = [random.randrange(-1, len(texts)) for _ in range(random.randrange(7))]
        found = [texts[i] if i >= 0 else None for i in asked]
        rows = np.array([rows_of[i] if i >= 0 else -1 for i in asked], np.int32)
        assert arena.take(rows).to_pylist() == found
        wanted.append((arena, rows))
        expected += found
    together = gather(kind, wanted)
    together.validate(full=True)
    assert together.type == kind
    assert together.to_pylist() == expected
