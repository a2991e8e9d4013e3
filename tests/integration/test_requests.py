"""Requests that take each other's place, at any moment."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration import counting
from tests.integration.harness import KEYSPACE, rows_of
from tests.integration.streaming import MovingCluster, Stream

from anabranch.coordinator.move_handle import MoveHandle
from anabranch.coordinator.move_runner import MoveRunner
from anabranch.coordinator.planning import TargetLayout, rescaled
from anabranch.model.ids import WorkerId
from anabranch.model.keyspace import HASH

WAIT = 60
SLOW = 20_000
"""Bytes a second: slow enough to be caught half way."""


@dataclass
class OnTheWay:
    """A slow move to four workers while a stream runs."""

    cluster: MovingCluster
    stream: Stream
    before: TargetLayout
    move: MoveHandle

    @property
    def plan(self) -> TargetLayout:
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


def test_retargeted_as_it_was_asked_for(tmp_path: Path) -> None:
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(1)
        first = cluster.rescale(4, strategy="pause", assignment="range")
        second = first.retarget(3)
        assert second.wait(WAIT)
        assert second.strategy == "pause"
        owners = cluster.coordinator.moves.plan().owners
        assert list(owners) == sorted(owners)  # contiguous: w1, then w2, then w3
        # Also of a move that has ended.
        assert second.retarget(4).wait(WAIT)
        owners = cluster.coordinator.moves.plan().owners
        assert list(owners) == sorted(owners)
        assert set(owners) == {"w1", "w2", "w3", "w4"}
        stream.batches(2)


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


def test_requests_add_up(tmp_path: Path) -> None:
    """Each goes on from what the one before would have come to, however far that is."""
    with MovingCluster(tmp_path, workers=3) as cluster:
        of_key = KEYSPACE.group_of(rows_of(range(1000)).column(HASH).to_numpy())
        keys = np.unique(of_key, return_index=True)[1].tolist()
        assert cluster.run_batch(0, keys) == dict.fromkeys(keys, 1)  # each key group has one
        never: dict[str, Any] = {"bytes_per_second": 1}
        group = cluster.coordinator.moves.plan().owners.index(WorkerId("w1"))
        moves = [cluster.move([group], to="w3", **never), cluster.drain("w1", **never)]
        moves += [cluster.rebalance(**never), cluster.rescale(3, **never)]
        moves += [moves[-1].retarget(2), cluster.rescale(2)]  # the last one at full speed
        assert all(move.wait(WAIT) for move in moves)
        assert [move.report().outcome == "done" for move in moves] == [False] * 5 + [True]
        plan = cluster.coordinator.moves.plan()
        assert plan.workers == ("w2", "w3")
        assert plan.owners[group] == "w3"
        assert cluster.run_batch(1, keys) == dict.fromkeys(keys, 2)


def test_requests_of_several_threads_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = MoveRunner.move

    def plan_slowly(self: MoveRunner, groups: Any, to: Any) -> TargetLayout:
        planned = plan(self, groups, to)
        time.sleep(0.05)  # others ask meanwhile
        return planned

    monkeypatch.setattr(MoveRunner, "move", plan_slowly)
    with MovingCluster(tmp_path) as cluster, Stream(cluster) as stream:
        stream.batches(1)
        owners = cluster.coordinator.moves.plan().owners
        groups = [group for group, owner in enumerate(owners) if owner == "w1"][:6]
        with ThreadPoolExecutor(len(groups)) as threads:
            moves = list(threads.map(lambda group: cluster.move([group], to="w2"), groups))
        assert all(move.wait(WAIT) for move in moves)
        owners = cluster.coordinator.moves.plan().owners
        assert [owners[group] for group in groups] == ["w2"] * len(groups)
        stream.batches(1)


@pytest.mark.parametrize("progress", [0.0, 0.6])
def test_some_key_groups_on_top_of_a_rescale(tmp_path: Path, progress: float) -> None:
    with on_the_way(tmp_path, progress) as way:
        wanted = rescaled(way.before, way.before.owners, 4, "minimal").owners
        group = wanted.index(WorkerId("w4"))
        assert way.cluster.move([group], to="w1").wait(WAIT)
        expected = (*wanted[:group], WorkerId("w1"), *wanted[group + 1 :])
        assert way.plan == TargetLayout(expected, tuple(map(WorkerId, ("w1", "w2", "w3", "w4"))))
