"""Workers on hosts: the checker finds every mutation within a bounded number of seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from anabranch.model.ids import AgentId, HostId, WorkerId
from anabranch.protocol import placement
from anabranch.protocol.coordinator import CoordinatorMachine
from anabranch.protocol.coordinator_messages import (
    Effect,
    HostJoined,
    HostLost,
    LaneBegan,
    StopWorker,
)
from anabranch.protocol.fleet import RUNNING, Fleet, WorkerView
from anabranch.protocol.leases import Claim, Claims, OwnLease
from anabranch.protocol.reachability import Reachability
from anabranch.simulation import worker as simulated
from anabranch.simulation.in_flight import PendingCall, SimulatedCalls
from anabranch.simulation.registry import SimulatedRegistry
from anabranch.simulation.runner import run_seeds
from anabranch.simulation.watch import SimulatedWatch

SEEDS_MAX = 300
Patch = Callable[[pytest.MonkeyPatch], None]


# --- placement ------------------------------------------------------------------------------------


def capacity_does_not_matter(patch: pytest.MonkeyPatch) -> None:
    """A host takes as many workers as are asked for."""
    patch.setattr(placement, "_room", lambda host, view, count: True)


def hosts_are_filled_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Workers go where most are already."""
    patch.setattr(placement, "_rank", lambda host, view, count: (-count[host], host))


def drained_hosts_take_workers(patch: pytest.MonkeyPatch) -> None:
    """A host that shall be empty is filled again."""
    patch.setattr(Fleet, "usable", lambda self: self.hosts)


def a_loss_moves_everybody(patch: pytest.MonkeyPatch) -> None:
    """All workers are placed anew when a host is lost."""
    lost = Fleet.host_lost

    def anew(self: Fleet, event: HostLost) -> list[Effect]:
        stopped = _stop_all(self)
        return [*stopped, *lost(self, event)]

    patch.setattr(Fleet, "host_lost", anew)


def a_return_moves_everybody(patch: pytest.MonkeyPatch) -> None:
    """All workers are placed anew when a host comes back."""
    joined = Fleet.joined

    def anew(self: Fleet, event: HostJoined) -> list[Effect]:
        stopped = _stop_all(self)
        return [*stopped, *joined(self, event)]

    patch.setattr(Fleet, "joined", anew)


def _stop_all(found: Fleet) -> list[Effect]:
    effects: list[Effect] = []
    for worker, view in found.workers.items():
        if view.phase in RUNNING:
            effects.append(StopWorker(worker, view.incarnation))
            found._replace(view)
    return effects


def nobody_looks_for_room(patch: pytest.MonkeyPatch) -> None:
    """Workers that wait do not hear of hosts that join."""
    joined, place = Fleet.joined, Fleet._place

    def deaf(self: Fleet, event: HostJoined) -> list[Effect]:
        patch.setattr(Fleet, "_place", lambda self: [])
        effects = joined(self, event)
        patch.setattr(Fleet, "_place", place)
        return effects

    patch.setattr(Fleet, "joined", deaf)


# --- loss -----------------------------------------------------------------------------------------


def workers_of_lost_hosts_stay_up(patch: pytest.MonkeyPatch) -> None:
    """The host is struck from the list, and lanes still go to its workers."""

    def lose(self: Fleet, host: HostId, reason: str) -> list[Effect]:
        del self.hosts[host]
        self.lost[host] = reason
        return []

    patch.setattr(Fleet, "_lose", lose)


def losses_are_not_heard(patch: pytest.MonkeyPatch) -> None:
    """Nothing happens when a host is lost."""
    patch.setattr(Fleet, "host_lost", lambda self, event: [])


def a_loss_is_a_failed_start(patch: pytest.MonkeyPatch) -> None:
    """Workers whose hosts are lost again and again are given up."""
    replace = Fleet._replace

    def failed(self: Fleet, view: WorkerView) -> None:
        view.failed_starts += 1
        replace(self, view)

    patch.setattr(Fleet, "_replace", failed)


def zombies_write_over(patch: pytest.MonkeyPatch) -> None:
    """Changelogs of a process have the names of those that its predecessor writes."""
    init = simulated.WorkerProcess.__init__

    def same_name(self: simulated.WorkerProcess, *args: Any) -> None:
        init(self, *args)
        self.name = self.worker

    patch.setattr(simulated.WorkerProcess, "__init__", same_name)


# --- claims and leases ----------------------------------------------------------------------------


def agents_never_fence(patch: pytest.MonkeyPatch) -> None:
    """An agent that nobody answers keeps its workers."""
    patch.setattr(OwnLease, "is_over", lambda self, now: False)


def leases_run_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    """An agent takes the moment at which it hears of a beat for the one at which it sent it."""
    acknowledged = OwnLease.acknowledged
    patch.setattr(OwnLease, "acknowledged", lambda self, sent, now: acknowledged(self, now, now))


def silent_agents_count(patch: pytest.MonkeyPatch) -> None:
    """A host whose agent is not heard is not given up."""
    patch.setattr(Claims, "_flaw", lambda self, claim, now: None)


def agents_that_do_not_count_are_heard(patch: pytest.MonkeyPatch) -> None:
    """An agent that was replaced goes on as if it were not."""
    heard = Claims.heard

    def anybody(self: Claims, agent: AgentId, now: float) -> bool:
        heard(self, agent, now)
        return True

    patch.setattr(Claims, "heard", anybody)


def a_second_agent_is_welcome(patch: pytest.MonkeyPatch) -> None:
    """An agent takes the place of one that is well."""
    patch.setattr(Claims, "_is_silent", lambda self, claim, now: True)


def agents_come_back_under_their_name(patch: pytest.MonkeyPatch) -> None:
    """An agent that was given up joins again as if nothing had been."""
    join = Claims.join

    def forgetful(self: Claims, host: HostId, agent: AgentId, now: float) -> Any:
        self._given_up.discard(agent)
        return join(self, host, agent, now)

    patch.setattr(Claims, "join", forgetful)


def late_answers_revive(patch: pytest.MonkeyPatch) -> None:
    """A lease that is over goes on when an answer comes late."""

    def renewed(self: OwnLease, sent: float, now: float) -> None:
        self.renewed, self._is_over = max(self.renewed, sent), False

    patch.setattr(OwnLease, "acknowledged", renewed)


def broken_streams_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    """A host is lost only by silence, however long nobody there hears orders."""
    flaw = Claims._flaw

    def without(self: Claims, claim: Claim, now: float) -> str | None:
        left, claim.left = claim.left, None
        try:
            return flaw(self, claim, now)
        finally:
            claim.left = left

    patch.setattr(Claims, "_flaw", without)


# --- nothing waits for ever -----------------------------------------------------------------------


def deaths_are_not_pushed(patch: pytest.MonkeyPatch) -> None:
    """Lanes and workers do not hear which processes are gone."""
    patch.setattr(SimulatedWatch, "gone", lambda self, processes: None)


def addresses_stay_gone(patch: pytest.MonkeyPatch) -> None:
    """Nobody hears that somebody listens again at an address at which nobody was."""
    tell = SimulatedWatch._tell

    def only_gone(self: SimulatedWatch, gone: tuple[str, ...], here: tuple[str, ...]) -> None:
        if gone:
            tell(self, gone, ())

    patch.setattr(SimulatedWatch, "_tell", only_gone)


def silence_is_endured(patch: pytest.MonkeyPatch) -> None:
    """A call without a sign of life is waited for."""

    def look(self: SimulatedCalls, call: PendingCall) -> None:
        if call in self._calls.get(call.caller, ()) and not self.hosts.is_closed:
            self._look_later(call)

    patch.setattr(SimulatedCalls, "_look", look)


def starts_are_awaited_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A start that is not answered has no end."""
    patch.setattr(SimulatedRegistry, "_expect_answer", lambda self, start: None)


def lost_orders_are_not_repeated(patch: pytest.MonkeyPatch) -> None:
    """What an order stream lost when it broke is not said again."""
    patch.setattr(SimulatedRegistry, "_order_again", lambda self, agent: None)


def missing_hosts_are_awaited(patch: pytest.MonkeyPatch) -> None:
    """Nobody is placed until as many hosts have joined as were expected, however long it takes."""
    patch.setattr(SimulatedRegistry, "_gathered", lambda self: None)


def calls_are_made_once(patch: pytest.MonkeyPatch) -> None:
    """A lane that hears nothing of the coordinator does not call again."""
    patch.setattr("anabranch.simulation.lane.SimulatedLane._silent", lambda *args: None)


# --- cuts that are not symmetric ------------------------------------------------------------------


def nobody_hears_what_lanes_miss(patch: pytest.MonkeyPatch) -> None:
    """Lanes are sent to a worker again and again that they do not reach."""
    patch.setattr(Reachability, "heard", lambda self, event, fleet: [])


def relays_may_be_the_worker_itself(patch: pytest.MonkeyPatch) -> None:
    """A lane is told to reach a worker through that worker."""
    patch.setattr(Reachability, "_relay", lambda self, host, worker, fleet: worker)


def nobody_votes(patch: pytest.MonkeyPatch) -> None:
    """A worker that most hosts miss stays where it is, as long as there is a relay."""
    patch.setattr(Reachability, "_most_miss", lambda self, worker, fleet: False)


def moves_have_no_limit(patch: pytest.MonkeyPatch) -> None:
    """A host that misses everybody has one worker after the other moved."""
    is_lost = Reachability._is_lost

    def without(self: Reachability, host: HostId, worker: WorkerId, fleet: Fleet) -> bool:
        moved, self.moved = self.moved, Counter()
        try:
            return is_lost(self, host, worker, fleet)
        finally:
            self.moved = moved

    patch.setattr(Reachability, "_is_lost", without)


def complaints_are_heard_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """A parked lane is granted a worker that the next parked lane's complaint replaces.

    The simulation has found this one.
    """
    replace, began = CoordinatorMachine._replace_unreached, CoordinatorMachine._lane_began

    def with_complaint(self: CoordinatorMachine, event: LaneBegan) -> list[Effect]:
        return replace(self, event) + began(self, event)

    patch.setattr(CoordinatorMachine, "_lane_began", with_complaint)
    patch.setattr(CoordinatorMachine, "_replace_unreached", lambda self, event: [])


def missed_workers_move_one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Each worker that lanes miss is placed before the next one has left.

    The simulation has found this one.
    """
    leave = Fleet.leave_hosts

    def one_by_one(self: Fleet, workers: Iterable[WorkerId]) -> list[Effect]:
        return [effect for worker in workers for effect in leave(self, [worker])]

    patch.setattr(Fleet, "leave_hosts", one_by_one)


MUTATIONS: list[Patch] = [
    nobody_hears_what_lanes_miss,
    relays_may_be_the_worker_itself,
    capacity_does_not_matter,
    hosts_are_filled_one_by_one,
    drained_hosts_take_workers,
    a_loss_moves_everybody,
    a_return_moves_everybody,
    nobody_looks_for_room,
    workers_of_lost_hosts_stay_up,
    losses_are_not_heard,
    a_loss_is_a_failed_start,
    zombies_write_over,
    agents_never_fence,
    leases_run_from_the_answer,
    silent_agents_count,
    a_second_agent_is_welcome,
    agents_come_back_under_their_name,
    late_answers_revive,
    broken_streams_do_not_matter,
    nobody_votes,
    agents_that_do_not_count_are_heard,
    deaths_are_not_pushed,
    addresses_stay_gone,
    silence_is_endured,
    starts_are_awaited_for_ever,
    missing_hosts_are_awaited,
    calls_are_made_once,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_found(mutation: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    summary = run_seeds(range(SEEDS_MAX), hosts=True)
    assert not summary.is_ok, f"{mutation.__name__} was not found in {SEEDS_MAX} seeds"


# A relay that did not help is not named again: tests/protocol/test_reachability.py has this rule.
RARE: list[tuple[Patch, int]] = [
    (lost_orders_are_not_repeated, 32),
    (moves_have_no_limit, 932),
    (complaints_are_heard_one_by_one, 2646),
    (missed_workers_move_one_by_one, 3060),
]


@pytest.mark.parametrize(
    ("mutation", "seed"), RARE, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_rare_mutation_is_found_in_its_seed(
    mutation: Patch, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_seeds([seed], hosts=True).is_ok
    mutation(monkeypatch)
    assert not run_seeds([seed], hosts=True).is_ok
