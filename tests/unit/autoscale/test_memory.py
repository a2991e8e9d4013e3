"""What is remembered, for how long, and what it does to later decisions."""

from __future__ import annotations

import pytest

from anabranch.autoscale.memory import (
    CALM_INTERVALS,
    NOTHING,
    PATIENCE_MAX,
    REMEMBER_SECONDS,
    REMEMBER_SECONDS_MAX,
    RETRY_SECONDS_MAX,
    ScalerMemory,
    ScalerStep,
)


def test_the_highest_wish_of_an_interval() -> None:
    memory = NOTHING
    for at, good in ((0, 5), (10, 3), (20, 4), (30, 2)):
        memory = memory.saw(at, good, 100)
    assert memory.highest(-10) == 5
    assert memory.highest(5) == 4
    assert memory.highest(1000) == 2
    assert memory.saw(101, 2, 100).highest(1) == 4
    assert memory.since == 0


def test_a_rising_load() -> None:
    memory = NOTHING.saw(0, 2, 100).saw(10, 3, 100)
    assert memory.is_rising()
    assert not memory.saw(20, 2, 100).is_rising()


def regret(memory: ScalerMemory, at: float) -> ScalerMemory:
    return memory.stepped_down(ScalerStep(at, 5, 3), 10).stepped_up(ScalerStep(at + 5, 3, 5), 10)


def test_regret_makes_patient_and_quiet_hours_less_so() -> None:
    memory = NOTHING
    for n in range(6):
        memory = regret(memory, 20.0 * n)
    assert memory.patience == PATIENCE_MAX
    soon = memory.stepped_down(ScalerStep(110, 5, 3), 10)
    assert soon.patience == PATIENCE_MAX
    later = memory.stepped_down(ScalerStep(110 + 10 * CALM_INTERVALS, 5, 3), 10)
    assert later.patience == PATIENCE_MAX // 2


def test_a_step_up_long_after_a_step_down_is_no_regret() -> None:
    down = NOTHING.stepped_down(ScalerStep(0, 5, 3), 10)
    assert down.came_down(30, 10)
    assert not down.came_down(50, 10)
    assert down.stepped_up(ScalerStep(50, 3, 4), 10).patience == 1


def test_the_number_from_which_steps_came_down() -> None:
    memory = NOTHING.stepped_down(ScalerStep(0, 8, 5), 10).stepped_down(ScalerStep(20, 5, 3), 10)
    assert memory.high == 8


def test_what_brought_nothing_is_remembered_longer_each_time() -> None:
    memory = NOTHING.took_back(ScalerStep(0, 2, 4), 100)
    assert memory.failed is not None
    assert (memory.failed.least, memory.failed.until) == (2, 100 + REMEMBER_SECONDS)
    for _ in range(9):
        memory = memory.took_back(ScalerStep(0, 2, 4), 100)
    assert memory.failed is not None
    assert memory.failed.until == 100 + REMEMBER_SECONDS_MAX


def test_failures_back_off() -> None:
    memory, waits = NOTHING, []
    for _ in range(8):
        memory = memory.not_carried_out(0)
        waits.append(memory.retry_at)
    assert waits == [10, 20, 40, 80, 160, 320, RETRY_SECONDS_MAX, RETRY_SECONDS_MAX]
    assert memory.carried_out(1, 1).failures == 0


def test_measured_moves_correct_forecasts() -> None:
    memory = NOTHING.carried_out(10, 30)
    assert memory.correction == pytest.approx(2)
    assert NOTHING.carried_out(0, 1000).correction == 10
