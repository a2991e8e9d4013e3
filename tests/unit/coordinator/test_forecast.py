"""What a dry run says."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.coordinator.planning import COPY_BYTES_PER_SECOND, TargetLayout, forecast, rescaled
from anabranch.model.ids import WorkerId

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
