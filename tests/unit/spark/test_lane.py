"""A worker that refuses a lane: asked once more where it is, then the task says why."""

from __future__ import annotations

import pytest

from anabranch.errors import AccessRefused, ServiceUnavailable
from anabranch.model.ids import Epoch, Lane
from anabranch.model.keyspace import KeySpace
from anabranch.spark.lane import LaneConfig, LaneRun, LaneTask
from anabranch.transport.auth import Credentials
from anabranch.transport.client import Exchange


@pytest.fixture
def lane() -> LaneRun:
    config = LaneConfig("127.0.0.1:1", Credentials("token"), "o", 1, KeySpace(4, 4), 1)
    return LaneRun(config, LaneTask("q", Epoch(0), Lane(0), 1))


def attempt(lane: LaneRun, error: ServiceUnavailable) -> None:
    def step() -> Exchange:
        raise error

    lane._guard({}, 0, step)


def test_it_is_asked_again_once(lane: LaneRun) -> None:
    attempt(lane, AccessRefused("Worker w1 at 10.0.0.1:5 refuses"))
    attempt(lane, AccessRefused("Worker w1 at 10.0.0.2:5 refuses"))  # another process by now
    with pytest.raises(AccessRefused, match=r"10\.0\.0\.1"):
        attempt(lane, AccessRefused("Worker w1 at 10.0.0.1:5 refuses"))


def test_others_are_asked_again_as_always(lane: LaneRun) -> None:
    for _ in range(5):
        attempt(lane, ServiceUnavailable("gone"))
