"""Accumulators in a worker: by key group, in any thread, and never the driver's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import accumulators
from pyspark.accumulators import INT_ACCUMULATOR_PARAM, Accumulator, AddingAccumulatorParam

from anabranch.processor.tally import Tally, add_to_accumulators, counting
from anabranch.processor.user_code import packed, unpacked

AID = 1_000_001


@pytest.fixture
def driver() -> Iterator[Accumulator[int]]:
    """The original, in the driver."""
    yield Accumulator(AID, 5, INT_ACCUMULATOR_PARAM)
    accumulators._accumulatorRegistry.pop(AID, None)


@pytest.fixture
def worker(driver: Accumulator[int]) -> Any:
    """As user code in a worker has it."""
    return unpacked(packed(driver))


def test_the_drivers_own_is_left_alone(driver: Accumulator[int], worker: Any) -> None:
    with counting(Tally()):
        worker += 3
    assert worker is not driver
    assert isinstance(worker, Accumulator)
    assert accumulators._accumulatorRegistry[AID] is driver
    assert driver.value == 5
    with pytest.raises(RuntimeError, match="VALUE_NOT_ACCESSIBLE"):
        _ = worker.value


def test_each_key_group_has_its_own(driver: Accumulator[int], worker: Any) -> None:
    with counting(Tally()) as tally:
        worker += 1
        tally.settle(3)
        tally.settle(4)  # nothing was added for it
        worker.add(10)
        worker.add(10)
        tally.settle(5)
        worker.add(100)
        tally.settle(3)
    assert sorted(tally.settled) == [3, 5]
    add_to_accumulators(tally.message([3]) + tally.message([4]))
    assert driver.value == 5 + 101
    add_to_accumulators(tally.message([3, 4, 5]))
    assert driver.value == 5 + 101 + 121


def test_a_zero_that_is_changed_in_place(driver: Accumulator[int]) -> None:
    original: Any = Accumulator(AID, [], AddingAccumulatorParam([]))
    worker = unpacked(packed(original))
    with counting(Tally()) as tally:
        for group in range(3):
            worker += [group]
            tally.settle(group)
    add_to_accumulators(tally.message([0, 2]))
    assert original.value == [0, 2]


def test_values_of_a_class_of_the_program() -> None:
    class Peak:
        def __init__(self, height: int) -> None:
            self.height = height

    class Highest(accumulators.AccumulatorParam[Any]):
        def zero(self, value: Any) -> Any:
            return Peak(0)

        def addInPlace(self, value1: Any, value2: Any) -> Any:
            return max(value1, value2, key=lambda peak: peak.height)

    original = Accumulator(AID, Peak(0), Highest())
    try:
        worker = unpacked(packed(original))
        with counting(Tally()) as tally:
            for height in (3, 8, 5):
                worker.add(Peak(height))
            tally.settle(0)
        add_to_accumulators(tally.message([0]))
        assert original.value.height == 8
    finally:
        accumulators._accumulatorRegistry.pop(AID, None)


def test_threads_count_for_their_own_transaction(worker: Any) -> None:
    tallies = [Tally(), Tally()]
    both = threading.Barrier(2)

    def run(tally: Tally) -> None:
        with counting(tally):
            both.wait(20)
            for _ in range(1000):
                worker.add(1)
            helper = threading.Thread(target=worker.add, args=(1,))  # made by user code
            both.wait(20)
            helper.start()
            helper.join()
            both.wait(20)
        tally.settle(0)

    threads = [threading.Thread(target=run, args=(tally,)) for tally in tallies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = [_sum(tally) for tally in tallies]
    assert min(counted) >= 1000
    assert sum(counted) == 2002


def _sum(tally: Tally) -> int:
    before = accumulators._accumulatorRegistry[AID]._value
    add_to_accumulators(tally.message([0]))
    counted: int = accumulators._accumulatorRegistry[AID]._value - before
    return counted
