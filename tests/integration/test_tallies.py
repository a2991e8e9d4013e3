"""What user code adds to accumulators travels with the outputs, and counts exactly as they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import accumulators
from pyspark.accumulators import INT_ACCUMULATOR_PARAM, Accumulator
from pyspark.sql.streaming import StatefulProcessor
from tests.integration.pair import ALL, KEYS, MOVED, Pair, keys_of
from tests.unit.processor.rows.support import define

from anabranch.errors import ProcessorError
from anabranch.processor.rows.definition import RowOperatorDefinition
from anabranch.processor.tally import add_to_accumulators

AID = 1_000_003


class Counting(StatefulProcessor):
    """Counts rows, in state and in an accumulator; fails while a file is there."""

    def __init__(self, total: Accumulator[int], trap: Path) -> None:
        self._total = total
        self._trap = trap

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "n long")

    def close(self) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = (self._count.get() or (0,))[0] + sum(1 for _ in rows)
        self._count.update((count,))
        self._total += 1
        yield key[0], count
        if self._trap.exists() and key[0] == KEYS[-1]:
            raise ValueError("not this one")


@pytest.fixture
def total() -> Iterator[Accumulator[int]]:
    yield Accumulator(AID, 0, INT_ACCUMULATOR_PARAM)
    accumulators._accumulatorRegistry.pop(AID, None)


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    return tmp_path / "trap"


@pytest.fixture
def definition(total: Accumulator[int], trap: Path) -> RowOperatorDefinition:
    return define(Counting(total, trap), "k long", ["k"], "k long, n long")


def counted(total: Accumulator[int], tallies: bytes) -> int:
    """What a lane's answer adds."""
    before = total.value
    add_to_accumulators(tallies)
    return total.value - before


def test_answers_count_what_they_hold(
    tmp_path: Path, total: Accumulator[int], definition: RowOperatorDefinition
) -> None:
    with Pair(tmp_path / "state", definition) as pair:
        pair.w1.exchange(0, ALL, 1)
        assert counted(total, pair.w1.tallies) == len(KEYS)
        # The task runs again and gets the cached answer: Spark drops what the first one counted.
        pair.w1.exchange(0, ALL, 1, attempt=2)
        assert counted(total, pair.w1.tallies) == len(KEYS)
        # Only some key groups are missing: what belongs to the others counts elsewhere.
        some, _ = pair.w1.exchange(0, [MOVED], 1, attempt=3)
        assert counted(total, pair.w1.tallies) == len(some) == len(keys_of(MOVED))


def test_an_undone_transaction_counts_nothing(
    tmp_path: Path, total: Accumulator[int], definition: RowOperatorDefinition, trap: Path
) -> None:
    with Pair(tmp_path / "state", definition) as pair:
        trap.touch()
        with pytest.raises(ProcessorError, match="not this one"):
            pair.w1.exchange(0, ALL, 1)
        trap.unlink()
        pair.w1.exchange(0, ALL, 1)
        assert counted(total, pair.w1.tallies) == len(KEYS)


def test_rows_that_are_passed_on_count_once(
    tmp_path: Path, total: Accumulator[int], definition: RowOperatorDefinition
) -> None:
    with Pair(tmp_path / "state", definition) as pair:
        pair.w1.exchange(0, ALL, 1)
        pair.order(pair.w2, "copy", 2)
        # A replica brings itself forward: nobody uses what it puts out, or counts it.
        pair.w2.exchange(1, [MOVED], 1, shadow=True)
        pair.w2.wait(busy=False)
        assert pair.w2.tallies == b""
        pair.w1.exchange(1, ALL, 1)
        pair.flip()
        counts, _ = pair.w1.exchange(2, ALL, 1)  # the lane began before the flip
        assert set(counts.values()) == {3}
        assert counted(total, pair.w1.tallies) == len(KEYS)
