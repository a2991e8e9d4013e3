"""Plans go on from the running request and move little twice; a dry run says what a plan costs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from anabranch.coordinator.planning import (
    COPY_BYTES_PER_SECOND,
    TargetLayout,
    drained,
    forecast,
    moved,
    rebalanced,
    rescaled,
)
from anabranch.migration.plan import moves_between
from anabranch.model.ids import WorkerId
from anabranch.model.routing import initial_routing

THREE = tuple(WorkerId(name) for name in ("w1", "w2", "w3"))

START = TargetLayout(THREE * 8, THREE)

HERE = START.owners


def test_what_was_drained_stays_away() -> None:
    without = drained(START, HERE, "w1")
    assert without.workers == ("w2", "w3")
    assert rescaled(without, HERE, 2, "minimal") == without
    assert rescaled(without, HERE, 3, "minimal").workers == ("w2", "w3", "w4")
    # Once it is over the name is free again.
    ended = TargetLayout(without.owners, without.workers)
    assert rescaled(ended, ended.owners, 3, "minimal").workers == THREE


def test_after_a_drain_and_a_rescale_lanes_meet_the_owners_of_before() -> None:
    without = drained(START, HERE, "w1")
    again = rescaled(TargetLayout(without.owners, without.workers), without.owners, 3, "minimal")
    assert again.owners == HERE


def test_some_key_groups_move_on_top_of_what_runs() -> None:
    more = rescaled(START, HERE, 4, "minimal")
    also = moved(more, [0], "w2")
    assert also.workers == more.workers
    assert also.owners == ("w2", *more.owners[1:])
    assert rebalanced(also, dict.fromkeys(range(24), 0.0)) == also


def test_to_and_fro_before_anything_has_moved() -> None:
    more = rescaled(START, HERE, 5, "minimal")
    assert rescaled(more, HERE, 3, "minimal").owners == HERE
    fewer = rescaled(START, HERE, 2, "minimal")
    again = rescaled(fewer, HERE, 3, "minimal")
    assert again.workers == THREE
    assert set(Counter(again.owners).values()) == {8}
    assert drained(drained(START, HERE, "w3"), HERE, "w2").owners == ("w1",) * 24


@pytest.mark.parametrize(
    ("first", "then", "last"), [(2, 4, 3), (16, 4, 8), (4, 2, 3), (3, 5, 4), (8, 2, 6)]
)
def test_a_rescale_that_takes_the_place_of_another_moves_no_more_than_alone(
    first: int, then: int, last: int
) -> None:
    workers = tuple(WorkerId(f"w{n + 1}") for n in range(first))
    owners = initial_routing(256, workers).owners
    start = TargetLayout(owners, workers)
    alone = rescaled(start, owners, last, "minimal")
    after = rescaled(rescaled(start, owners, then, "minimal"), owners, last, "minimal")
    assert after == alone
    assert len(moves_between(owners, after.owners)) == len(moves_between(owners, alone.owners))


def test_what_was_chosen_is_kept_by_a_rescale() -> None:
    chosen = moved(START, [0, 3], "w2")  # w1 has 6 of 24 now, w2 10
    fewer = rescaled(chosen, HERE, 2, "minimal")
    assert (fewer.owners[0], fewer.owners[3]) == ("w2", "w2")


def test_numbers_may_be_those_of_numpy() -> None:
    assert rescaled(START, HERE, np.int64(2), "minimal").workers == ("w1", "w2")
    assert moved(START, np.array([1, 3]), "w3").owners[:4] == ("w1", "w3", "w3", "w3")


def test_a_standby_owns_nothing() -> None:
    assert TargetLayout(THREE[:2] * 4, THREE).owning == THREE[:2]


MB = 1 << 20

TWO = tuple(WorkerId(name) for name in ("w1", "w2"))

BEFORE = TargetLayout(TWO * 8, TWO)

AFTER = rescaled(BEFORE, BEFORE.owners, 4, "minimal")

BYTES = dict.fromkeys(range(16), MB)


def test_bytes_and_seconds_are_of_what_moves() -> None:
    found = forecast("live", BEFORE, AFTER, BYTES, 2 * MB)
    assert (len(found.moves), found.bytes, found.seconds) == (8, 8 * MB, 4.0)
    assert "8 key groups, 8.0 MiB in memory, about 4.0 s (nothing was done)" in str(found)


def test_a_restart_brings_everything_again() -> None:
    assert forecast("stop-restart", BEFORE, AFTER, BYTES, 2 * MB).bytes == 16 * MB
    assert forecast("stop-restart", BEFORE, BEFORE, BYTES, 2 * MB).bytes == 0


def test_no_rate_is_better_than_what_memory_gives() -> None:
    found = forecast("pause", BEFORE, AFTER, BYTES, 1 << 50)
    assert found.seconds == 8 * MB / COPY_BYTES_PER_SECOND


@pytest.mark.parametrize(
    ("strategy", "options", "batches"),
    [
        ("live", {}, 1),
        ("live", {"wave": 1}, 4),
        ("meces", {"batch": 1}, 4),
        ("megaphone", {"plan": "fluid"}, 8),
        ("drrs", {"subscale": 1, "concurrency": 1}, 8),
        ("drrs", {"subscale": 1, "concurrency": 8}, 8),
        ("replicate", {}, 1),
        ("pause", {}, 0),
        ("stop-restart", {}, 0),
    ],
)
def test_batches_that_a_strategy_waits_for_take_time(
    strategy: str, options: dict[str, Any], batches: int
) -> None:
    """Eight key groups move, to two targets."""
    at_once = forecast(strategy, BEFORE, AFTER, BYTES, 2 * MB, options)
    found = forecast(strategy, BEFORE, AFTER, BYTES, 2 * MB, options, batch_seconds=10.0)
    assert found.seconds - at_once.seconds == 10.0 * batches


def test_large_key_groups_make_more_waves() -> None:
    large = dict.fromkeys(range(16), 32 * MB)
    at_once = forecast("live", BEFORE, AFTER, large, MB, {"wave": 2})
    found = forecast("live", BEFORE, AFTER, large, MB, {"wave": 2}, batch_seconds=10.0)
    assert found.seconds - at_once.seconds == 30.0  # two at first, then one by one
