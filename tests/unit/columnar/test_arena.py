"""Values of variable width are found wherever they are."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.state.columnar.arena import Arena, gather

TEXTS = st.lists(st.text(max_size=4) | st.none(), max_size=9)


@given(st.lists(st.lists(TEXTS, max_size=5), max_size=5), st.randoms(use_true_random=False))
def test_rows_of_several_arenas_come_in_the_order_asked_for(
    contents: list[list[list[str | None]]], random: Random
) -> None:
    """Also from arenas of several chunks, of none, and rows that are not there."""
    wanted, expected = [], []
    for chunks in contents:
        arena = Arena(pa.string())
        texts: list[str | None] = []
        for chunk in chunks:
            assert arena.append(pa.array(chunk, pa.string())) == len(texts)
            texts += chunk
        rows = [random.randrange(-1, len(texts)) for _ in range(random.randrange(7))]
        found = [texts[row] if row >= 0 else None for row in rows]
        assert arena.take(np.array(rows, np.int32)).to_pylist() == found
        wanted.append((arena, np.array(rows, np.int32)))
        expected += found
    together = gather(pa.string(), wanted)
    together.validate(full=True)
    assert together.type == pa.string()
    assert together.to_pylist() == expected
