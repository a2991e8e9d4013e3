"""What a user sees of a reconfiguration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.coordinator.move_handle import STOPPED, MoveHandle, Progress
from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import WorkerId


class Batches:
    """Batches as (start, end); the coordinator knows those that have ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[float, float]] = []

    def between(self, since: float, until: float) -> tuple[Mapping[str, Any], ...]:
        return tuple(
            {"epoch": n, "load_ms": 100 * n}
            for n, (start, end) in enumerate(self.ended)
            if end >= since and start <= until
        )


def handle(batches: Batches) -> MoveHandle:
    workers = (WorkerId("w1"),)
    made = MoveHandle(
        1,
        "live",
        workers,
        workers,
        lambda move: (Progress(4, 0, 0, 4), {}),
        batches.between,
        lambda move, cause: move,
        lambda workers, cause: made,
    )
    return made


def test_the_batch_that_runs_at_the_end_is_reported_when_it_has_ended() -> None:
    batches = Batches()
    move = handle(batches)
    now = move.started
    batches.ended.append((now - 2, now - 1))  # before the move
    batches.ended.append((now - 1, now + 1))
    move.ended("", {})
    assert [batch["epoch"] for batch in move.report().batches] == [1]
    batches.ended.append((now, now + 2))  # ran when the move ended
    batches.ended.append((now + 1000, now + 1001))  # not the move's business
    assert [batch["epoch"] for batch in move.report().batches] == [1, 2]
    assert move.report().pause_seconds == 0.2


def test_batches_that_were_held_back_have_paused() -> None:
    move = handle(Batches())
    move.ended("", {"gated_ms": 1472, "begins_held": 2})
    assert move.report().pause_seconds == 1.472
    assert "longest pause     1472 ms" in str(move.report())
    nobody = handle(Batches())
    nobody.ended("", {"gated_ms": 1472})
    assert nobody.report().pause_seconds == 0


def test_a_report_says_what_moved_at_once() -> None:
    move = handle(Batches())
    move.ended("", {"idle_groups": 85, "idle_rounds": 2, "waves": 1})
    assert "moved at once     85 key groups in 2 rounds: no batch ran" in str(move.report())
    assert "idle_" not in str(move.report())
    busy = handle(Batches())
    busy.ended("", {"waves": 1})
    assert "at once" not in str(busy.report())


def test_how_far_it_came_is_not_forgotten() -> None:
    cancelled = handle(Batches())
    cancelled.ended("It was cancelled.", {}, Progress(4, 0, 0, 1))
    assert cancelled.progress == 0.25
    done = handle(Batches())
    done.ended("", {}, Progress(4, 0, 0, 0))
    assert done.progress == 1.0


def test_a_report_does_not_forget() -> None:
    batches = Batches()
    move = handle(batches)
    batches.ended.append((move.started, move.started))
    move.ended("", {})
    batches.ended.clear()  # only the last ones are kept
    assert len(move.report().batches) == 1


def test_whoever_waits_hears_that_the_service_was_stopped() -> None:
    move = handle(Batches())
    move.ended(STOPPED, {}, Progress(4, 0, 0, 1))
    with pytest.raises(ServiceUnavailable, match=r"stopped at 25% .* \(live\)"):
        move.wait()
