"""Moves off and onto hosts that are lost meanwhile, or come back; bytes by host."""

from __future__ import annotations

import pytest
from tests.protocol.test_reconfiguration import OP, W1, W2, W3, Fleet

from anabranch.model.ids import Epoch, HostId, Lane
from anabranch.protocol.coordinator import (
    GrantLane,
    HostJoined,
    HostLost,
    HostsAwaited,
    LaneBegan,
    OrderDone,
)
from anabranch.protocol.move_parts import ACROSS_HOSTS, ON_HOST

H1, H2 = HostId("h1"), HostId("h2")
DRAINED = (W1, W3, W1, W3)
"""Owners when w3 has taken what w2 had."""


def joined(host: HostId, capacity: int | None = None) -> HostJoined:
    return HostJoined(host, capacity, {})


def two_hosts(capacity: int | None = None) -> Fleet:
    """One with w1, one with w2."""
    fleet = Fleet(joined(H1, capacity), joined(H2, capacity))
    assert fleet.machine.statistics()["places"] == {W1: H1, W2: H2}
    return fleet


def drain(fleet: Fleet, strategy: str = "live") -> Fleet:
    return fleet.request(strategy, DRAINED, (W1, W3), drained_hosts=frozenset({H2}))


def begin(fleet: Fleet) -> GrantLane | None:
    """A batch whose only lane needs all workers."""
    fleet.grants.clear()
    fleet(LaneBegan(1, OP, "q", Epoch(0), Lane(0), 1))
    return fleet.grants[0] if fleet.grants else None


def test_a_host_is_drained() -> None:
    fleet = drain(two_hosts())
    assert fleet.log[0] == "start w3"
    fleet.idle()
    assert fleet.ended == [(1, "")]
    assert "stop w2" in fleet.log
    assert fleet.machine.statistics()["places"] == {W1: H1, W3: H1}
    assert fleet.machine.routing.owners == DRAINED


STRATEGIES = [
    "live",
    "lazy",
    "pause",
    "replicate",
    "megaphone",
    "rhino",
    "order-unaware",
    "meces",
    "drrs",
    "stop-restart",
]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("capacity", [2, 3])
def test_a_host_that_is_lost_during_its_drain_holds_no_batch_back(
    strategy: str, capacity: int
) -> None:
    """With room for w2 elsewhere, and without."""
    fleet = two_hosts(capacity)
    assert begin(fleet) is not None
    fleet.held = {"copy w3", "grant w3", "import w3"}
    drain(fleet, strategy)
    assert not fleet.is_over
    fleet(HostLost(H2, "No beat."))
    assert fleet.machine.fleet.is_waiting(W2) == (capacity == 2 and strategy != "stop-restart")
    # The lanes of the batch ask again; the move goes on without the batch's end if it has to.
    fleet.held = set()
    waiting, fleet.waiting = fleet.waiting, []
    for order in waiting:
        fleet(OrderDone(order.number))
    assert begin(fleet) is not None or fleet.grants


def test_a_standby_of_a_lost_host_waits() -> None:
    fleet = two_hosts(2)
    assert begin(fleet) is not None
    fleet.request("standby", DRAINED, (W1, W2, W3))
    fleet(HostLost(H2, "No beat."))
    assert fleet.machine.fleet.is_waiting(W2)
    assert not fleet.is_over
    fleet(joined(H2))
    assert fleet.machine.statistics()["places"][W2] == H2


def test_a_move_onto_a_host_that_does_not_come_back_gives_up() -> None:
    fleet = two_hosts(1)
    fleet.request("live")
    assert fleet.machine.fleet.is_waiting(W3)
    fleet(HostLost(H2, "No beat."))
    fleet(HostsAwaited("Nobody has come for 60 s."))
    assert fleet.ended == [(1, "No host has room for w2, w3: Nobody has come for 60 s.")]
    fleet(HostsAwaited("Nobody has come for 60 s."))  # no move runs
    fleet(joined(H2, 2))
    assert fleet.request("live").idle().ended[-1] == (2, "")


def test_a_move_that_needs_no_other_host_goes_on() -> None:
    fleet = two_hosts()
    begin(fleet)
    fleet.request("live")
    fleet(HostsAwaited("Nobody has come for 60 s."))
    assert not fleet.is_over


def test_bytes_are_counted_by_host() -> None:
    fleet = two_hosts(2)
    begin(fleet)
    fleet.held = {"copy w3"}
    fleet.request("live", (W3, W3, W1, W2))  # w3 is beside w1, or beside w2
    place = fleet.machine.statistics()["places"][W3]
    held = {order.order.peer: order for order in fleet.waiting}
    run = fleet.machine.moves.current
    assert run is not None
    sent = 0
    while fleet.waiting:
        order = fleet.waiting.pop(0)
        sent += 1
        fleet(OrderDone(order.number, {"bytes": 1000 * sent}))
    near = W1 if place == H1 else W2
    assert near in held
    assert run.counters[ON_HOST] > 0
    assert run.counters[ON_HOST] + run.counters[ACROSS_HOSTS] == run.counters["bytes"]
