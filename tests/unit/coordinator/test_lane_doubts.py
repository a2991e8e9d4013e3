"""What a lane does not reach is tried by the coordinator before anything is decided."""

from __future__ import annotations

import pytest

from anabranch.coordinator import lane_doubts
from anabranch.coordinator.lane_doubts import LaneDoubts
from anabranch.errors import CallTimedOut
from anabranch.model.ids import WorkerId
from anabranch.protocol.coordinator_messages import Unreached
from anabranch.transport.messages.control import Ping
from anabranch.transport.messages.kinds import Nothing

W1 = WorkerId("w1")
MISSED = Unreached(W1, 3)


class ScriptedPool:
    """One worker; each ping comes to what the script says."""

    def __init__(self, *pings: bool, incarnation: int = 3) -> None:
        self.pings = list(pings)
        self.incarnation = incarnation
        self.asked = 0

    def peers(self) -> dict[WorkerId, ScriptedPool]:
        return {W1: self}

    def address(self, worker: WorkerId, incarnation: int) -> str | None:
        return "h:1" if incarnation == self.incarnation else None

    def call(self, request: Ping, timeout_seconds: float) -> Nothing:
        self.asked += 1
        if self.asked == len(self.pings):
            self.incarnation += not self.pings[-1]  # it is replaced
        if not self.pings[self.asked - 1]:
            raise CallTimedOut("no answer")
        return Nothing()


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_doubts, "AGAIN_SECONDS", 0.0)


def confirmed(pool: ScriptedPool) -> tuple[Unreached, ...]:
    return LaneDoubts(pool).confirmed([MISSED])  # type: ignore[arg-type]


def test_only_the_lane_misses_it() -> None:
    assert confirmed(ScriptedPool(True)) == (MISSED,)


def test_it_is_gone_already() -> None:
    pool = ScriptedPool(incarnation=4)
    assert confirmed(pool) == ()
    assert not pool.asked


def test_it_answers_late_so_it_was_busy() -> None:
    pool = ScriptedPool(False, False, True)
    assert confirmed(pool) == ()
    assert pool.asked == 3


def test_it_is_replaced_while_the_lane_waits() -> None:
    pool = ScriptedPool(False, False)
    assert confirmed(pool) == ()
    assert pool.asked == 2


def test_nobody_waits_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_doubts, "WAIT_SECONDS_MAX", 0.0)
    assert confirmed(ScriptedPool(True)) == ()
