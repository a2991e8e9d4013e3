"""Every invariant of hosts breaks on a fleet that was bent on purpose, and on no other."""

from __future__ import annotations

import pytest

from anabranch.model.ids import HostId, WorkerId
from anabranch.protocol import host_invariants
from anabranch.protocol.coordinator_messages import (
    Effect,
    HostJoined,
    HostLost,
    StartWorker,
    StopWorker,
)
from anabranch.protocol.fleet import Fleet, WorkerPhase
from anabranch.protocol.invariants import InvariantBroken

W1, W2, W3 = (WorkerId(f"w{n}") for n in range(1, 4))
H1, H2 = HostId("h1"), HostId("h2")


def fleet() -> tuple[Fleet, list[Effect]]:
    """w1 and w3 on h1, w2 on h2, and there is room."""
    found = Fleet()
    for host in (H1, H2):
        found.joined(HostJoined(host, 3, {}))
    effects = found.start((W1, W2, W3))
    host_invariants.check_hosts(found)
    host_invariants.check_placed(found, {}, effects)
    return found, effects


def test_hosts_run_no_more_than_they_can() -> None:
    found, _ = fleet()
    found.workers[W2].host = H1
    host_invariants.check_hosts(found)
    found.hosts[H1] = type(found.hosts[H1])(2)
    with pytest.raises(InvariantBroken, match="within_capacity"):
        host_invariants.check_hosts(found)


def test_no_worker_runs_on_a_host_that_is_not_there() -> None:
    found, _ = fleet()
    del found.hosts[H2]
    with pytest.raises(InvariantBroken, match="within_capacity"):
        host_invariants.check_hosts(found)


def test_workers_wait_only_if_there_is_no_room() -> None:
    found, _ = fleet()
    found.workers[W2].phase = WorkerPhase.WAITING
    with pytest.raises(InvariantBroken, match="waits_for_room"):
        host_invariants.check_hosts(found)
    found.is_gathering = True
    host_invariants.check_hosts(found)


def test_workers_are_spread() -> None:
    found, effects = fleet()
    found.workers[W2].host = H1
    with pytest.raises(InvariantBroken, match="spread_first"):
        host_invariants.check_placed(found, {}, effects)
    placed = [e for e in effects if isinstance(e, StartWorker) and e.worker == W2]
    preferred = host_invariants.WorkerPlace(H1, frozenset({H1}))
    host_invariants.check_placed(found, {W2: preferred}, placed)
    found.workers[W2].wish = H1
    host_invariants.check_placed(found, {}, placed)
    del found.workers[W2]
    host_invariants.check_placed(found, {}, placed)  # started and stopped at once
    host_invariants.check_placed(found, {}, [StopWorker(W1, 0)])


def test_nobody_starts_on_a_drained_host() -> None:
    found, effects = fleet()
    found.drain([H2])
    with pytest.raises(InvariantBroken, match="placed_on_usable"):
        host_invariants.check_placed(found, {}, effects)


@pytest.mark.parametrize("event", [HostJoined(H2, 2, {}), HostLost(H2, "Its power is gone.")])
def test_hosts_that_come_and_go_touch_only_their_own_workers(event: HostJoined | HostLost) -> None:
    found, _ = fleet()
    before = host_invariants.places_of(found)
    assert before[W2] == host_invariants.WorkerPlace(H2, frozenset({H2}))
    host_invariants.check_moved_least(event, before, [StopWorker(W2, 0), StartWorker(W2, 1, H1)])
    with pytest.raises(InvariantBroken, match="moved_least"):
        host_invariants.check_moved_least(event, before, [StopWorker(W1, 0)])
