"""Requests that take each other's place, at any moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from anabranch.runtime.move import MoveHandle
from anabranch.runtime.planning import Plan
from tests.integration import counting
from tests.integration.streaming import MovingCluster, Stream

WAIT = 60
SLOW = 20_000
"""Bytes a second: slow enough to be caught half way."""


@dataclass
class OnTheWay:
    """A slow move to four workers while a stream runs."""

    cluster: MovingCluster
    stream: Stream
    before: Plan
    move: MoveHandle

    @property
    def plan(self) -> Plan:
        """Who owns what now."""
        return self.cluster.coordinator.moves.plan()


@contextmanager
def on_the_way(folder: Path, progress: float) -> Iterator[OnTheWay]:
    """A move that is so far, but not at its end; the stream must go on after whatever is done."""
    with MovingCluster(folder) as cluster, Stream(cluster) as stream:
        stream.batches(2)
        before = cluster.coordinator.moves.plan()
        move = cluster.rescale(4, bytes_per_second=SLOW, wave=2)
        stream.until(lambda: move.progress >= progress)
        assert not move.is_done
        yield OnTheWay(cluster, stream, before, move)
        stream.batches(2)


@pytest.mark.parametrize("progress", [0.0, 0.2, 0.6])
def test_cancelled_half_way(tmp_path: Path, progress: float) -> None:
    with on_the_way(tmp_path, progress) as way:
        assert way.plan.owners != way.before.owners or progress < 0.5
        back = way.move.cancel()
        assert way.move.wait(WAIT)
        assert progress <= way.move.progress < 1
        assert back.wait(WAIT)
        assert "cancelled" in way.move.report().outcome
        assert way.plan == way.before


@pytest.mark.parametrize("progress", [0.0, 0.6])
def test_retargeted_half_way_and_back_to_the_beginning(tmp_path: Path, progress: float) -> None:
    with on_the_way(tmp_path, progress) as way:
        other = way.move.retarget(3)
        way.stream.batches(1)
        # Going back means to before both, not to where the first one happened to be.
        assert other.cancel().wait(WAIT)
        assert way.plan == way.before
        assert way.cluster.rescale(4).retarget(3).wait(WAIT)
        assert len(way.cluster.workers()) == 3


def test_cancelling_what_was_replaced_does_not_touch_what_replaced_it(tmp_path: Path) -> None:
    with on_the_way(tmp_path, 0.2) as way:
        second = way.cluster.rescale(3)
        assert way.move.cancel() is way.move
        assert second.wait(WAIT)
        assert second.report().outcome == "done"
        assert len(way.cluster.workers()) == 3


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
