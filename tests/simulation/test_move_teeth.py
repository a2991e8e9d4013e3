"""The checker finds every mutation of moves within a bounded number of seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anabranch.errors import ProtocolViolation
from anabranch.migration.steps import AskIdle, Outcome
from anabranch.model.ids import KeyGroup
from anabranch.model.routing import Routing
from anabranch.protocol import invariants, residency
from anabranch.protocol import worker as data
from anabranch.protocol import worker as worker_machine
from anabranch.protocol.arrivals import Arrivals
from anabranch.protocol.coordinator import CoordinatorMachine
from anabranch.protocol.coordinator_messages import (
    BatchesIdle,
    Effect,
    LaneBegan,
    SendOrder,
    StartWorker,
    WorkerDown,
    WorkerStarted,
)
from anabranch.protocol.fleet import Fleet
from anabranch.protocol.move_context import MoveContext
from anabranch.protocol.move_parts import StrategyTask
from anabranch.protocol.move_run import MoveRun
from anabranch.protocol.ownership import Ownership
from anabranch.protocol.transactions import HeldGroup, Tx
from anabranch.protocol.worker import WorkerMachine
from anabranch.simulation import source as source_side
from anabranch.simulation.launcher import DriverLauncher
from anabranch.simulation.parcels import bin_of
from anabranch.simulation.runner import run_seeds
from anabranch.simulation.source import Source
from anabranch.simulation.target import Target
from anabranch.simulation.worker import WorkerProcess

SEEDS_MAX = 2_500
Patch = Callable[[pytest.MonkeyPatch], None]


# --- the three checks that no strategy can leave out ----------------------------------------------


def state_of_any_epoch_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A source answers without a look at the epoch that is wanted."""
    parcel = Source._parcel
    patch.setattr(Source, "_parcel", lambda s, t, want: parcel(s, t, replace(want, any_epoch=True)))


def source_stays_owner(patch: pytest.MonkeyPatch) -> None:
    """A source gives its state away and goes on with it."""

    def fetch(self: Source, call: Any, wants: Any) -> None:
        self.process.when_idle([w.group for w in wants], lambda: self._answer(call, wants))

    patch.setattr(Source, "fetch", fetch)
    patch.setattr(Source, "_refuses", lambda self, group: False)


def versions_do_not_matter(patch: pytest.MonkeyPatch) -> None:
    """A late release takes key groups away that were granted again since."""
    release = Ownership.release
    patch.setattr(Ownership, "release", lambda s, e: release(s, replace(e, version=10**6)))


def source_answers_while_it_works(patch: pytest.MonkeyPatch) -> None:
    """State is given away in the middle of a transaction."""
    patch.setattr(WorkerProcess, "when_idle", lambda self, groups, action: action())


# --- parts, deltas, shadows -----------------------------------------------------------------------


def parts_pass_for_the_whole(patch: pytest.MonkeyPatch) -> None:
    """A key group with missing bins is not marked."""
    fetched = residency.fetched

    def whole(machine: WorkerMachine, tx: Tx, event: data.GroupsFetched) -> None:
        parts = tuple(replace(part, is_whole=True) for part in event.parts)
        fetched(machine, tx, replace(event, parts=parts))

    patch.setattr(worker_machine, "fetched", whole)


def due_timers_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The source sends only what rows need."""
    patch.setattr(source_side, "_due", lambda state, want: frozenset())


def fetched_keys_are_overwritten(patch: pytest.MonkeyPatch) -> None:
    """A bin that arrives brings old state of keys that came before it."""
    patch.setattr(Target, "lacks", lambda self, group, key, missing: bin_of(key) in missing)


def deltas_are_lost(patch: pytest.MonkeyPatch) -> None:
    """A source does not keep what changes while it is copied."""
    patch.setattr(Source, "changed", lambda self, group, epoch, changes: None)


def shadows_start_anywhere(patch: pytest.MonkeyPatch) -> None:
    """A shadow transaction runs on a replica of any epoch."""

    def anywhere(self: WorkerMachine, tx: Tx) -> list[data.Effect]:
        held = self.held[tx.opened.operator]
        tx.fresh = tuple(g for g in tx.opened.groups if g in held and not self.owners.is_owner(g))
        if not tx.fresh:
            return self._end(tx)
        tx.phase = data.TxPhase.APPLYING
        return [data.ApplyTransaction(tx.opened.tx, tx.fresh)]

    patch.setattr(WorkerMachine, "_start_shadow", anywhere)


# --- owners ---------------------------------------------------------------------------------------


def nothing_is_forwarded(patch: pytest.MonkeyPatch) -> None:
    """Rows of key groups that have moved away are dropped."""

    def drop(self: WorkerMachine, tx: Tx, groups: list[KeyGroup]) -> list[data.Effect]:
        tx.forwarded = tuple(groups)
        return []

    patch.setattr(WorkerMachine, "_forward", drop)


def owners_change_before_the_grant(patch: pytest.MonkeyPatch) -> None:
    """Lanes are sent to targets that have not answered."""
    grant = MoveRun._grant

    def at_once(self: MoveRun, task: StrategyTask) -> list[Effect]:
        effects = grant(self, task)
        for order in list(task.waiting):
            self.orders.pop(order)
        task.waiting.clear()
        return effects + self._change(task)

    patch.setattr(MoveRun, "_grant", at_once)
    patch.setattr(MoveRun, "_acked_by", lambda self, task, move: 0)


def answers_of_dead_targets_count(patch: pytest.MonkeyPatch) -> None:
    """A target that died after it had answered is not asked again."""
    patch.setattr(MoveRun, "_acked_by", lambda self, task, move: task.acked.get(move))


def starting_sources_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """A worker whose first grant is under way does not learn what moves away meanwhile."""
    patch.setattr(Fleet, "incarnation_told", Fleet.incarnation_up)


def first_grants_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """A process is up as soon as it was sent what it owns."""
    started = CoordinatorMachine._worker_started

    def up_at_once(self: CoordinatorMachine, event: WorkerStarted) -> list[Effect]:
        effects = started(self, event)
        if effects:
            self.fleet.up(event.worker)
        return [*effects, *self.retry_parked(), *self.moves.poll()]

    patch.setattr(CoordinatorMachine, "_worker_started", up_at_once)


def first_grants_have_the_routing_of_the_start(patch: pytest.MonkeyPatch) -> None:
    """A process is told what it owned when it was ordered, not when it has started."""
    known: dict[tuple[int, str, int], Routing] = {}
    start, started = DriverLauncher._start, CoordinatorMachine._worker_started

    def remember(self: DriverLauncher, effect: StartWorker) -> None:
        machine = self.coordinator.machine
        known[id(machine), effect.worker, effect.incarnation] = machine.routing
        start(self, effect)

    def told_late(self: CoordinatorMachine, event: WorkerStarted) -> list[Effect]:
        routing = self.routing
        self.routing = known[id(self), event.worker, event.incarnation]
        try:
            return started(self, event)
        finally:
            self.routing = routing

    patch.setattr(DriverLauncher, "_start", remember)
    patch.setattr(CoordinatorMachine, "_worker_started", told_late)


def first_grants_have_the_newest_version(patch: pytest.MonkeyPatch) -> None:
    """A release that overtakes the first grant of a process is older than the grant."""
    started = CoordinatorMachine._worker_started

    def newest(self: CoordinatorMachine, event: WorkerStarted) -> list[Effect]:
        return [
            replace(effect, order=replace(effect.order, version=10**6))
            for effect in started(self, event)
            if isinstance(effect, SendOrder)
        ]

    patch.setattr(CoordinatorMachine, "_worker_started", newest)
    patch.setattr(invariants, "check_first_grant", lambda machine, sent: None)


def failed_first_grants_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A process whose first grant failed is never up, and never replaced."""
    patch.setattr(CoordinatorMachine, "_not_granted", lambda self, worker, event: [])


def late_first_grants_count(patch: pytest.MonkeyPatch) -> None:
    """The answer of a process that is gone makes its replacement an owner."""
    down = Fleet.down

    def keep_the_grant(self: Fleet, event: WorkerDown) -> list[Effect]:
        view = self.workers.get(event.worker)
        grant = None if view is None else view.grant
        effects = down(self, event)
        if view is not None:
            view.grant = grant
        return effects

    patch.setattr(Fleet, "down", keep_the_grant)


def revoked_targets_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """A change of owners is given up, but its targets do not learn it."""

    def revoke(self: MoveRun, task: StrategyTask) -> list[Effect]:
        self._close(task)
        return []

    patch.setattr(MoveRun, "_revoke", revoke)


def gate_stays_closed(patch: pytest.MonkeyPatch) -> None:
    """A reconfiguration that is replaced leaves its gate behind."""
    end = MoveRun._end_if_done

    def leave(self: MoveRun) -> list[Effect]:
        ungate = MoveContext.ungate
        try:
            if self.reason:
                MoveContext.ungate = lambda self: []  # type: ignore[method-assign]
            return end(self)
        finally:
            MoveContext.ungate = ungate  # type: ignore[method-assign]

    patch.setattr(MoveRun, "_end_if_done", leave)


# --- bugs that the simulation has found: each comes back and must be found again ------------------


def released_parts_pass_for_the_whole(patch: pytest.MonkeyPatch) -> None:
    """A key group that is released while a part of it is loaded counts as complete."""

    fetched = residency.fetched

    def whole(machine: WorkerMachine, tx: Tx, event: data.GroupsFetched) -> None:
        fetched(machine, tx, event)
        held = machine.held[tx.opened.operator]
        for part in event.parts:
            if not machine.owners.is_owner(part.group):
                held[part.group] = HeldGroup(tx.opened.base)

    patch.setattr(worker_machine, "fetched", whole)


def outputs_vanish_while_others_work(patch: pytest.MonkeyPatch) -> None:
    """Cached outputs that were dropped since the transaction began are answered all the same."""
    patch.setattr(data, "outputs_error", lambda machine, tx: None)


def late_forwards_are_a_bug(patch: pytest.MonkeyPatch) -> None:
    """Outputs that come back for a transaction that was refused meanwhile raise."""
    handle = WorkerMachine.handle

    def strict(self: WorkerMachine, event: data.Event) -> list[data.Effect]:
        is_forward = isinstance(event, data.RowsForwarded | data.ForwardFailed)
        if is_forward and event.tx not in self.transactions:  # type: ignore[union-attr]
            raise ProtocolViolation(str(event))
        return handle(self, event)

    patch.setattr(WorkerMachine, "handle", strict)


def parked_lanes_wait_for_former_owners(patch: pytest.MonkeyPatch) -> None:
    """A lane that is parked for an owner does not go on when its key groups move away."""

    def change(self: MoveContext, moves: Any) -> list[Effect]:
        self._route(moves)
        return []

    patch.setattr(MoveContext, "change_owners", change)


def restart_waits_for_the_dead(patch: pytest.MonkeyPatch) -> None:
    """All workers are restarted, one cannot be started, and the gate stays closed for good."""
    patch.setattr(MoveRun, "_stop_restarting", lambda self: None)


def busy_replicas_stay(patch: pytest.MonkeyPatch) -> None:
    """What is being worked on when it shall be dropped stays for good."""
    drop_doomed = WorkerMachine._drop_doomed

    def now_or_never(self: WorkerMachine) -> list[data.Effect]:
        effects = drop_doomed(self)
        self.doomed.clear()
        return effects

    patch.setattr(WorkerMachine, "_drop_doomed", now_or_never)


def deltas_stay_at_the_source(patch: pytest.MonkeyPatch) -> None:
    """Only the target of a copy that is not needed learns it."""
    clean = MoveRun._clean

    def at_target(self: MoveRun, task: Any, worker: Any, peer: Any, groups: Any) -> list[Effect]:
        if any(m.source == worker and m.group in groups for m in self._copies()):
            return []
        return clean(self, task, worker, peer, groups)

    patch.setattr(MoveRun, "_clean", at_target)


def unheard_targets_are_not_told(patch: pytest.MonkeyPatch) -> None:
    """A change of owners is given up; a target whose answer was lost does not learn it."""
    revoke = MoveRun._revoke

    def only_acked(self: MoveRun, task: StrategyTask) -> list[Effect]:
        task.current = replace(task.current, moves=tuple(task.acked))
        return revoke(self, task)

    patch.setattr(MoveRun, "_revoke", only_acked)


def what_was_dropped_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A grant that comes late is taken for new, since nothing is known of the key group."""

    drop = WorkerMachine.drop

    def forget(
        self: WorkerMachine, groups: tuple[KeyGroup, ...], only_partial: bool = False
    ) -> list[data.Effect]:
        for group in () if only_partial else groups:
            self.owners.released.pop(group, None)
            self.owners.versions.pop(group, None)
        return drop(self, groups, only_partial)

    patch.setattr(WorkerMachine, "drop", forget)


# --- what is resident -----------------------------------------------------------------------------


def stale_parts_are_used(patch: pytest.MonkeyPatch) -> None:
    """What an import brought as of another epoch than the base is completed and used."""
    patch.setattr(residency, "_is_stale", lambda record, tx: False)


def parts_replace_what_transactions_work_on(patch: pytest.MonkeyPatch) -> None:
    """A part is put in place in the middle of a load."""
    patch.setattr(residency, "_must_wait", lambda machine, record, offer: False)


def broken_parts_are_used(patch: pytest.MonkeyPatch) -> None:
    """Nobody minds that a part was put in place in half."""
    patch.setattr(residency, "_broken", lambda machine, event, record, offer: [])
    patch.setattr("anabranch.simulation.faults.INSTALL_FAILURES", 0.3)


def lost_parts_stay_at_their_source(patch: pytest.MonkeyPatch) -> None:
    """What a source cannot complete any more is asked of it for good."""
    patch.setattr(residency, "_turn_to_store", lambda machine, record: None)


def nobody_goes_on_after_a_wait(patch: pytest.MonkeyPatch) -> None:
    """A transaction that awaits an import does not see that it has come."""
    patch.setattr(WorkerMachine, "_go_on_awaiting", lambda self: [])
    patch.setattr(WorkerMachine, "_impatient", lambda self, event: [])


def arrivals_outlive_a_release(patch: pytest.MonkeyPatch) -> None:
    """A key group that belongs to another worker is still brought here."""
    patch.setattr(worker_machine, "end_arrivals", lambda machine, groups: None)


# --- idle key groups ------------------------------------------------------------------------------


def begins_do_not_wake(patch: pytest.MonkeyPatch) -> None:
    """A batch begins, and moves go on as if none ran."""
    began = CoordinatorMachine._lane_began

    def unheard(self: CoordinatorMachine, event: LaneBegan) -> list[Effect]:
        idle = self.idle
        effects = began(self, event)
        self.idle = idle
        return effects

    patch.setattr(CoordinatorMachine, "_lane_began", unheard)


def idle_is_believed(patch: pytest.MonkeyPatch) -> None:
    """Whoever says that no batch runs is believed, although one has begun meanwhile."""
    note = CoordinatorMachine._note_idle

    def believe(self: CoordinatorMachine, event: BatchesIdle) -> None:
        note(self, event)
        self.idle = event.bytes_of

    patch.setattr(CoordinatorMachine, "_note_idle", believe)


def nobody_asks_whether_a_batch_runs(patch: pytest.MonkeyPatch) -> None:
    """The rounds of an idle move are not interrupted."""
    begin = MoveRun._begin_step

    def undisturbed(self: MoveRun, task: StrategyTask) -> list[Effect]:
        if not isinstance(task.current, AskIdle):
            return begin(self, task)
        return self._resume(task, Outcome({"idle": 1}))

    patch.setattr(MoveRun, "_begin_step", undisturbed)


def the_rest_is_left_behind(patch: pytest.MonkeyPatch) -> None:
    """A query that wakes up ends the move: nobody moves what has not flipped."""

    def end(self: MoveRun) -> list[Effect]:
        self.main = None
        return self._end_if_done()

    patch.setattr(MoveRun, "_go_on", end)


def parts_of_an_earlier_arrival_are_installed(patch: pytest.MonkeyPatch) -> None:
    """What was asked for in an earlier arrival is taken for what is missing now."""
    find = Arrivals.find
    patch.setattr(Arrivals, "current", lambda s, event: find(s, event.operator, event.group))


MUTATIONS: list[Patch] = [
    state_of_any_epoch_is_taken,
    source_stays_owner,
    versions_do_not_matter,
    source_answers_while_it_works,
    parts_pass_for_the_whole,
    due_timers_are_forgotten,
    fetched_keys_are_overwritten,
    deltas_are_lost,
    shadows_start_anywhere,
    nothing_is_forwarded,
    owners_change_before_the_grant,
    answers_of_dead_targets_count,
    starting_sources_are_not_told,
    first_grants_are_not_awaited,
    first_grants_have_the_routing_of_the_start,
    first_grants_have_the_newest_version,
    failed_first_grants_are_forgotten,
    late_first_grants_count,
    revoked_targets_are_not_told,
    gate_stays_closed,
    parked_lanes_wait_for_former_owners,
    restart_waits_for_the_dead,
    busy_replicas_stay,
    deltas_stay_at_the_source,
    stale_parts_are_used,
    lost_parts_stay_at_their_source,
    parts_replace_what_transactions_work_on,
    broken_parts_are_used,
    nobody_goes_on_after_a_wait,
    arrivals_outlive_a_release,
    begins_do_not_wake,
    idle_is_believed,
    nobody_asks_whether_a_batch_runs,
    the_rest_is_left_behind,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_found(mutation: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    summary = run_seeds(range(SEEDS_MAX))
    assert not summary.is_ok, f"{mutation.__name__} was not found in {SEEDS_MAX} seeds"


# Three rules are too rare for seeds. tests/integration/test_pair.py and test_moves.py have them: an
# import waits for a shadow, an owner refuses at once, no delta outlives a reload.
RARE: list[tuple[Patch, int]] = [
    (late_forwards_are_a_bug, 939),
    (outputs_vanish_while_others_work, 17453),
    (parts_of_an_earlier_arrival_are_installed, 41604),
    (released_parts_pass_for_the_whole, 39495),
    (unheard_targets_are_not_told, 5986),
    (what_was_dropped_is_forgotten, 7646),
]


@pytest.mark.parametrize(
    ("mutation", "seed"), RARE, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_rare_mutation_is_found_in_its_seed(
    mutation: Patch, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_seeds([seed]).is_ok
    mutation(monkeypatch)
    assert not run_seeds([seed]).is_ok
