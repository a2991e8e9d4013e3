"""Requests that take each other's place, at any moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.runtime.move import MoveHandle
from tests.integration import counting
from tests.integration.streaming import MovingCluster, Stream

WAIT = 60
SLOW = 20_000
"""Bytes a second: slow enough to be caught half way."""


def at(stream: Stream, move: MoveHandle, progress: float) -> None:
    """Wait until a move is so far, but not at its end."""
    stream.until(lambda: move.progress >= progress)
    assert not move.is_done


@pytest.mark.parametrize("progress", [0.0, 0.2, 0.6])
def test_cancelled_half_way(tmp_path: Path, progress: float) -> None:
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        before = cluster.coordinator.moves.plan()
        move = cluster.rescale(4, bytes_per_second=SLOW, wave=2)
        at(stream, move, progress)
        has_moved = cluster.coordinator.moves.plan().owners != before.owners
        assert has_moved or progress < 0.5
        back = move.cancel()
        assert move.wait(WAIT)
        assert back.wait(WAIT)
        assert "cancelled" in move.report().outcome
        assert cluster.coordinator.moves.plan() == before
        stream.batches(2)


@pytest.mark.parametrize("progress", [0.0, 0.6])
def test_retargeted_half_way_and_back_to_the_beginning(tmp_path: Path, progress: float) -> None:
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        before = cluster.coordinator.moves.plan()
        move = cluster.rescale(4, bytes_per_second=SLOW, wave=2)
        at(stream, move, progress)
        other = move.retarget(3)
        stream.batches(1)
        # Going back means to before both, not to where the first one happened to be.
        assert other.cancel().wait(WAIT)
        assert cluster.coordinator.moves.plan() == before
        assert cluster.rescale(4).retarget(3).wait(WAIT)
        assert len(cluster.workers()) == 3
        stream.batches(2)


def test_cancelling_what_was_replaced_does_not_touch_what_replaced_it(tmp_path: Path) -> None:
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        first = cluster.rescale(4, bytes_per_second=SLOW, wave=2)
        at(stream, first, 0.2)
        second = cluster.rescale(3)
        assert first.cancel() is first
        assert second.wait(WAIT)
        assert second.report().outcome == "done"
        assert len(cluster.workers()) == 3
        stream.batches(1)


def test_sixteen_four_eight_six_without_waiting(tmp_path: Path) -> None:
    with MovingCluster(tmp_path, workers=16) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        moves = []
        for count in (4, 8, 6):
            moves.append(cluster.rescale(count, bytes_per_second=SLOW))
            stream.batches(1)
        assert all(move.wait(WAIT) for move in moves)
        assert moves[-1].report().outcome == "done"
        assert sorted(cluster.workers().values()) == [5, 5, 5, 5, 6, 6]
        stream.batches(2)


@pytest.mark.parametrize("strategy", ["live", "replicate", "rhino"])
def test_replicas_that_break(tmp_path: Path, strategy: str) -> None:
    """Nobody works on a replica that could not be brought up to date: the store has its state."""
    with (
        MovingCluster(tmp_path, definition=counting.Broken()) as cluster,
        Stream(cluster) as stream,
    ):
        stream.batches(2)
        for workers in (3, 4, 2):
            assert cluster.rescale(workers, strategy=strategy).wait(WAIT)
            stream.batches(2)
