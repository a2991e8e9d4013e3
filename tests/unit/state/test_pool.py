"""State has memory of its own."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest

from anabranch.state.columnar.arena import Arena
from anabranch.state.pool import BATCHES, IS_APART, STATE

VALUE = b"x" * 1024


@pytest.mark.skipif(not IS_APART, reason="Arrow has one allocator for everything")
def test_state_takes_nothing_from_batches() -> None:
    """Also what merging and compacting leave behind, which is kept for long."""
    gc.collect()
    of_batches, of_state = BATCHES.bytes_allocated(), STATE.bytes_allocated()
    arena = Arena(pa.binary())
    for _ in range(20):
        arena.append(pa.array([VALUE] * 100))
    arena.append(pa.chunked_array([pa.array([VALUE] * 100)] * 2))
    arena.compact(np.arange(0, 2000, 2, dtype=np.int32))
    assert arena.take(np.array([7], np.int32)).to_pylist() == [VALUE]
    assert BATCHES.bytes_allocated() - of_batches < 100_000
    assert STATE.bytes_allocated() - of_state >= 1000 * len(VALUE)
    arena.clear()
    assert STATE.bytes_allocated() == of_state
