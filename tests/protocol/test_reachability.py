"""Lanes do not reach a worker that the coordinator reaches: it is replaced, or there is a relay."""

from __future__ import annotations

import pytest
from tests.protocol.starting import bring_up

from anabranch.errors import ServiceUnavailable
from anabranch.model.ids import Epoch, HostId, Lane, WorkerId
from anabranch.model.routing import initial_routing
from anabranch.protocol import invariants, reachability
from anabranch.protocol.coordinator import (
    CoordinatorMachine,
    Effect,
    GrantLane,
    HostJoined,
    LaneBegan,
    LaneFinished,
    ManifestWritten,
    OperatorRegistered,
    RefuseRequest,
    StartWorker,
    StopWorker,
    Unreached,
    WorkerDown,
    WriteManifest,
)
from anabranch.protocol.epochs import LaneReport, TransactionReport

OP = "counts"
W1, W2, W3 = (WorkerId(f"w{n}") for n in range(1, 4))
H1, H2, H3, HA, HB = (HostId(name) for name in ("h1", "h2", "h3", "a", "b"))


class Coordinator:
    """A machine whose workers are up, each on a host of its own; its lanes run on hosts a and b."""

    def __init__(self, capacity: int = 2, hosts: tuple[HostId, ...] = (H1, H2, H3)) -> None:
        workers = [WorkerId(f"w{n}") for n in range(1, len(hosts) + 1)]
        joined = [HostJoined(host, capacity, {}) for host in hosts]
        self.lanes = len(workers)
        self.machine, _ = CoordinatorMachine.create(initial_routing(self.lanes, workers), joined)
        self.machine.handle(OperatorRegistered(OP, "q", first=Epoch(0)))
        self.epoch = Epoch(0)
        for worker in workers:
            bring_up(self.machine.handle, worker)

    def begin(self, host: HostId | None, *unreached: Unreached, lane: int = 0) -> list[Effect]:
        """Lane n belongs to worker n + 1."""
        event = LaneBegan(1, OP, "q", self.epoch, Lane(lane), self.lanes, host, unreached)
        effects = self.machine.handle(event)
        invariants.check_coordinator(self.machine)
        for effect in effects:
            if isinstance(effect, GrantLane):
                invariants.check_grant(self.machine, effect)
        return effects

    def relays(self, host: HostId | None, *unreached: Unreached, lane: int = 0) -> object:
        (grant,) = self.begin(host, *unreached, lane=lane)
        assert isinstance(grant, GrantLane)
        assert grant.incarnations.keys() == {*grant.owners, *grant.relays.values()}
        return grant.relays

    def commit(self) -> None:
        for lane in range(self.lanes):
            self.begin(None, lane=lane)
            report = LaneReport((TransactionReport(f"w{lane + 1}", (lane,), None),))
            finished = LaneFinished(1, OP, self.epoch, Lane(lane), self.lanes, report)
            effects = self.machine.handle(finished)
        assert any(isinstance(effect, WriteManifest) for effect in effects)
        self.machine.handle(ManifestWritten(OP, self.epoch))
        self.epoch = Epoch(self.epoch + 1)


def missed(worker: WorkerId, incarnation: int = 0, relay: WorkerId | None = None) -> Unreached:
    return Unreached(worker, incarnation, relay)


def test_a_lane_that_reaches_all_needs_no_relay() -> None:
    assert Coordinator().relays(HA) == {}
    assert Coordinator().relays(None, missed(W1)) == {}


def test_a_worker_that_few_hosts_miss_is_reached_through_a_relay() -> None:
    found = Coordinator()
    found.begin(HB, lane=1)
    assert found.relays(HA, missed(W1)) == {W1: W2}
    assert found.relays(HA) == {W1: W2}, "the next batch does not try in vain again"
    assert found.relays(HB) == {}
    assert found.machine.workers[W1].incarnation == 0


def test_a_relay_is_neither_beside_the_lane_nor_beside_the_worker() -> None:
    found = Coordinator()
    for host in (HA, HB):
        found.begin(host, lane=1)
    assert found.relays(H2, missed(W1)) == {W1: W3}
    assert found.begin(H2, missed(W1, relay=W3))[0] == StopWorker(W1, 0)


def test_relays_that_do_not_help_are_not_tried_again() -> None:
    found = Coordinator(capacity=1)
    found.begin(HB, lane=1)
    assert found.relays(HA, missed(W1)) == {W1: W2}
    assert found.relays(HA, missed(W1, relay=W2)) == {W1: W3}
    (refusal,) = found.begin(HA, missed(W1, relay=W3))
    assert isinstance(refusal, RefuseRequest)
    assert isinstance(refusal.error, ServiceUnavailable)
    assert "host a do not reach w1 on host h1" in str(refusal.error)
    assert found.relays(HA) == {}, "the next attempt tries everything again"


def test_workers_that_are_missed_too_are_no_relays() -> None:
    found = Coordinator(capacity=1)
    found.begin(HB, lane=1)
    assert found.relays(HA, missed(W1), missed(W2)) == {W1: W3}


def test_a_worker_that_most_hosts_miss_goes_elsewhere() -> None:
    found = Coordinator()
    found.begin(HB, lane=1)
    found.begin(HA, missed(W1))
    stop, start = found.begin(HB, missed(W1))
    assert stop == StopWorker(W1, 0)
    assert isinstance(start, StartWorker)
    assert start.host in (H2, H3)
    bring_up(found.machine.handle, W1, 1)
    assert found.relays(HA) == {}, "that was said of the process before"
    assert found.relays(HA, missed(W1)) == {}


def test_a_worker_that_most_hosts_miss_stays_if_no_other_host_has_room() -> None:
    found = Coordinator(capacity=1)
    assert found.relays(HA, missed(W1)) == {W1: W2}
    assert found.relays(HB, missed(W1)) == {W1: W2}


def test_a_worker_without_a_relay_goes_elsewhere() -> None:
    found = Coordinator(hosts=(H1,))
    found.machine.handle(HostJoined(H2, 1, {}))
    found.begin(HB)
    assert found.begin(HA, missed(W1)) == [StopWorker(W1, 0), StartWorker(W1, 1, H2)]


def test_a_host_that_misses_everybody_does_not_move_workers_for_ever() -> None:
    found = Coordinator(hosts=(H1, H2))
    workers, moves = found.machine.workers, 0
    for _ in range(9):
        effects = found.begin(HA, *(missed(w, workers[w].incarnation) for w in workers))
        for name in workers:
            bring_up(found.machine.handle, name, workers[name].incarnation)
        moves += sum(isinstance(effect, StopWorker) for effect in effects)
    assert moves == 2
    found.commit()
    assert any(
        isinstance(e, StopWorker) for e in found.begin(HA, missed(W1, workers[W1].incarnation))
    )


def test_hosts_without_lanes_lately_have_no_vote() -> None:
    found = Coordinator()
    found.begin(HB, lane=1)
    for _ in range(reachability.LATELY_COMMITS + 1):
        found.commit()
    assert StopWorker(W1, 0) in found.begin(HA, missed(W1))


def test_it_is_tried_directly_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reachability, "FORGET_COMMITS", 2)
    found = Coordinator()
    found.begin(HB, lane=1)
    assert found.relays(HA, missed(W1)) == {W1: W2}
    found.commit()
    assert found.relays(HA) == {W1: W2}
    found.commit()
    assert found.relays(HA) == {}


def test_relays_are_up() -> None:
    found = Coordinator()
    grant = GrantLane(1, 1, {W1: (0,)}, {W1: 0}, None, relays={W1: W1})
    with pytest.raises(invariants.InvariantBroken, match="relay_is_up"):
        invariants.check_grant(found.machine, grant)


def test_workers_that_are_missed_together_leave_together() -> None:
    effects = Coordinator().begin(HA, missed(W2), missed(W3))
    places = {e.worker: e.host for e in effects if isinstance(e, StartWorker)}
    assert places == {W2: H3, W3: H2}, "one by one, w2 would go to h1, and h3 would be empty"


def test_a_lane_is_not_granted_what_the_complaint_of_another_one_replaces() -> None:
    found = Coordinator(hosts=(H1, H2))
    found.machine.handle(WorkerDown(W2, 0))
    assert found.begin(HB, lane=1) == []
    assert found.begin(HA, missed(W1), lane=1)[0] == StopWorker(W1, 0)
    grants = bring_up(found.machine.handle, W2, 1)
    assert all(isinstance(effect, GrantLane) for effect in grants), grants
    assert len(grants) == 2
