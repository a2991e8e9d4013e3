"""Hosts that join and are lost: their workers start elsewhere, or wait."""

from __future__ import annotations

import pytest
from tests.protocol.starting import bring_up

from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import Epoch, HostId, Lane, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.protocol.coordinator import (
    STARTS_MAX,
    CoordinatorMachine,
    Effect,
    Event,
    GrantLane,
    HostJoined,
    HostLost,
    HostsAwaited,
    LaneBegan,
    MoveRequested,
    OperatorRegistered,
    RefuseRequest,
    StartWorker,
    StopWorker,
    WorkerDown,
    WorkerPhase,
)
from anabranch.protocol.invariants import check_coordinator

OP = "counts"
W1, W2, W3, W4 = (WorkerId(f"w{n}") for n in range(1, 5))
H1, H2, H3 = HostId("h1"), HostId("h2"), HostId("h3")


def joined(host: HostId, capacity: int | None = 2, others_follow: bool = False) -> HostJoined:
    return HostJoined(host, capacity, {}, others_follow)


class Coordinator:
    """Feeds a machine with workers w1, w2, ...; checks invariants after every event."""

    def __init__(self, *hosts: HostJoined, workers: int = 2) -> None:
        names = [WorkerId(f"w{n}") for n in range(1, workers + 1)]
        self.machine, self.starts = CoordinatorMachine.create(initial_routing(4, names), hosts)
        self(OperatorRegistered(OP, "q", first=Epoch(0)))

    def __call__(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event)
        check_coordinator(self.machine)
        return effects

    def up(self, *workers: WorkerId) -> list[Effect]:
        effects: list[Effect] = []
        for worker in workers:
            effects += bring_up(self, worker, self.machine.workers[worker].incarnation)
        return effects

    def begin(self, lane: int = 0, lanes: int = 2, request: int = 1) -> list[Effect]:
        return self(LaneBegan(request, OP, "q", Epoch(0), Lane(lane), lanes))

    def fail_to_start(self, worker: WorkerId, times: int = STARTS_MAX) -> list[Effect]:
        effects: list[Effect] = []
        for _ in range(times):
            incarnation = self.machine.workers[worker].incarnation
            effects = self(WorkerDown(worker, incarnation, "No memory."))
        return effects

    def phase(self, worker: WorkerId) -> WorkerPhase:
        return self.machine.workers[worker].phase

    @property
    def places(self) -> dict[str, str | None]:
        places: dict[str, str | None] = self.machine.statistics()["places"]
        return places


def test_workers_are_spread_over_the_hosts_that_are_there() -> None:
    found = Coordinator(joined(H1), joined(H2), workers=3)
    assert found.starts == [StartWorker(W1, 0, H1), StartWorker(W2, 0, H2), StartWorker(W3, 0, H1)]


def test_workers_wait_until_a_host_joins() -> None:
    found = Coordinator()
    assert found.starts == []
    assert found.phase(W1) is WorkerPhase.WAITING
    assert found.begin() == []
    assert found(WorkerDown(W1, 0)) == []  # there is no process
    assert found(joined(H1, 1)) == [StartWorker(W1, 0, H1)]
    (effect,) = [e for e in found.up(W1) if isinstance(e, GrantLane)]
    assert effect.owners == {W1: (0, 2)}
    assert found(joined(H2)) == [StartWorker(W2, 0, H2)]


def test_workers_are_spread_over_hosts_that_join_together() -> None:
    found = Coordinator()
    assert found(joined(H1, None, others_follow=True)) == []
    starts = found(joined(H2, None))
    assert starts == [StartWorker(W1, 0, H1), StartWorker(W2, 0, H2)]


def test_workers_of_a_lost_host_start_elsewhere() -> None:
    found = Coordinator(joined(H1), joined(H2), workers=3)
    found.up(W1)
    effects = found(HostLost(H1, "No beat."))
    assert effects == [StopWorker(W1, 0), StopWorker(W3, 0), StartWorker(W1, 1, H2)]
    assert found.phase(W3) is WorkerPhase.WAITING
    assert found.machine.workers[W1].failed_starts == 0
    assert "h1 is lost: No beat." in found.machine.workers[W3].reason
    assert found(HostLost(H1, "said twice")) == []
    assert found(WorkerDown(W3, 0)) == []  # late news
    assert found.places == {"w1": "h2", "w2": "h2", "w3": None}


def test_plans_see_hosts_and_places() -> None:
    found = Coordinator(joined(H1), joined(H2, 1), workers=4)
    found(HostLost(H2, "No beat."))
    found.machine.fleet.drain([H3])
    now = found.machine.fleet.now()
    assert list(now.hosts) == [H1]
    assert now.drained == {H3}
    assert now.lost == {H2: "No beat."}
    assert now.at == {W1: H1, W3: H1}  # the others wait


def test_a_host_that_returns_takes_who_waits_and_nobody_else() -> None:
    found = Coordinator(joined(H1), joined(H2), workers=3)
    found(HostLost(H1, "No beat."))
    assert found(joined(H1)) == [StartWorker(W3, 1, H1)]
    assert found.places == {"w1": "h2", "w2": "h2", "w3": "h1"}


def test_a_host_that_joins_again_has_lost_its_workers() -> None:
    found = Coordinator(joined(H1), joined(H2))
    assert found(joined(H1)) == [StopWorker(W1, 0), StartWorker(W1, 1, H1)]


def test_a_process_that_ends_is_replaced_on_its_host() -> None:
    found = Coordinator(joined(H1), joined(H2))
    found.up(W1, W2)
    assert found(WorkerDown(W2, 0)) == [StartWorker(W2, 1, H2)]


def test_room_that_becomes_free_is_used() -> None:
    fleet = Coordinator(joined(H1, 1)).machine.fleet
    assert fleet.waiting() == (W2,)
    assert fleet.stop(W1) == [StopWorker(W1, 0), StartWorker(W2, 0, H1)]
    fleet.start([W1])
    assert fleet.stop(W1) == []  # it has no process
    fleet.start([W1])
    assert fleet.restart([W1]) == [StopWorker(W2, 0), StartWorker(W1, 3, H1)]


def test_another_host_is_tried_before_a_worker_is_given_up() -> None:
    found = Coordinator(joined(H1), joined(H2))
    assert found.fail_to_start(W1) == [StartWorker(W1, STARTS_MAX, H2)]
    assert found.fail_to_start(W1) == []
    assert found.phase(W1) is WorkerPhase.FAILED
    assert found.places["w1"] is None
    # A host on which it was not tried, and one that was lost since, are other chances.
    assert found(joined(H3)) == [StartWorker(W1, 2 * STARTS_MAX, H3)]
    assert found.fail_to_start(W1) == []
    assert found(HostLost(H3, "No beat.")) == [StartWorker(W1, 3 * STARTS_MAX, H1)]


def test_a_host_on_which_nothing_starts_does_not_count_once_it_is_lost() -> None:
    found = Coordinator(joined(H1, 2))
    found.fail_to_start(W1)
    assert found.phase(W1) is WorkerPhase.FAILED
    found(HostLost(H1, "Its agent has ended."))
    assert found.phase(W1) is WorkerPhase.WAITING
    assert StartWorker(W1, STARTS_MAX, H1) in found(joined(H1))


def test_room_of_a_worker_that_is_given_up_goes_to_others() -> None:
    found = Coordinator(joined(H1, 1))
    assert found.fail_to_start(W1) == [StartWorker(W2, 0, H1)]


def test_lanes_hear_that_no_host_has_room() -> None:
    found = Coordinator(joined(H1, 1), joined(H2, 1))
    found.up(W1)
    found(HostLost(H2, "No beat."))
    assert found.begin(1) == []
    found(HostsAwaited("Nobody has come for 60 s."))
    found.machine.fleet.drain([H1])
    assert found.begin(1, request=2) == []  # those that come later wait again
    (refused,) = found(HostsAwaited("Nobody has come for 60 s."))
    assert isinstance(refused, RefuseRequest)
    assert isinstance(refused.error, ServiceUnavailable)
    text = str(refused.error)
    for part in ("w2", "60 s", "h1 runs 1 workers of 1 and is drained", "h2 is lost (No beat)"):
        assert part in text


def test_lanes_that_wait_for_a_start_do_not_hear_of_hosts() -> None:
    found = Coordinator(joined(H1, 1))
    assert found.begin(0) == []
    assert found.begin(1, request=2) == []
    (refused,) = found(HostsAwaited("No host."))
    assert isinstance(refused, RefuseRequest)
    assert refused.request == 2


def test_without_any_host_the_error_says_so() -> None:
    found = Coordinator()
    found.begin(0)
    (refused,) = found(HostsAwaited("No host."))
    assert isinstance(refused, RefuseRequest)
    assert "none has joined" in str(refused.error)


@pytest.mark.parametrize("wish", [H2, H3])
def test_a_wish_is_met_if_it_can_be(wish: HostId) -> None:
    found = Coordinator(joined(H1, 3), joined(H2, 3))
    found.up(W1, W2)
    request = MoveRequested(1, (W1, W2, W3, W3), (W1, W2, W3), "live", hosts={W3: wish})
    assert found(request) == [StartWorker(W3, 0, H2 if wish == H2 else H1)]
    found.up(W3)
    if wish == H2:  # lost with its wish, it goes elsewhere
        assert StartWorker(W3, 1, H1) in found(HostLost(H2, "No beat."))


def test_a_drained_host_takes_no_workers_until_it_is_asked_for_again() -> None:
    found = Coordinator(joined(H1), joined(H2))
    found.up(W1, W2)
    drain = MoveRequested(1, (W1, W3, W1, W3), (W1, W3), "live", drained_hosts=frozenset({H2}))
    assert found(drain) == [StartWorker(W3, 0, H1)]
    assert found(WorkerDown(W2, 0)) == []  # its former host is drained, the other one is full
    assert found(HostLost(H2, "No beat.")) == []
    assert found(joined(H2)) == []
    back = MoveRequested(2, (W1, W2) * 2, (W1, W2), "live")
    assert StartWorker(W2, 1, H2) in found(back)
