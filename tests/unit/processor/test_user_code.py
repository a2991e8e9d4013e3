"""Accumulators of a processor, as its engine counts them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import accumulators
from pyspark.accumulators import INT_ACCUMULATOR_PARAM, Accumulator
from tests.unit.processor.rows.processors import Sizing, SizingFrames
from tests.unit.processor.rows.sizes import KV, service

from anabranch.errors import ProcessorError
from anabranch.processor.tally import add_to_accumulators

AID = 1_000_002


@pytest.fixture
def total() -> Iterator[Accumulator[int]]:
    yield Accumulator(AID, 0, INT_ACCUMULATOR_PARAM)
    accumulators._accumulatorRegistry.pop(AID, None)


@pytest.mark.parametrize("kind", [Sizing, SizingFrames])
def test_accumulators_count_with_the_key_group(total: Accumulator[int], kind: type[Sizing]) -> None:
    worker = service(kind(total), KV)
    worker.batch([(key, 0) for key in range(40)], initial=[(key, 0) for key in (3, 4)])
    tally = worker.transaction.tally
    assert 1 < len(tally.settled) <= 8
    for group in range(8):
        add_to_accumulators(tally.message([group]))
    assert total.value == 2040
    with pytest.raises(ProcessorError, match="a bad key"):
        worker.batch([(key, 0) for key in range(-1, 40)])
    worker.batch([(1, 0)])  # nothing is left of what failed
    add_to_accumulators(worker.transaction.tally.message(range(8)))
    assert total.value == 2041
