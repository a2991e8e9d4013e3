"""The checker finds every mutation of the protocol within a bounded number of seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.model.ids import Epoch
from anabranch.protocol import coordinator, invariants
from anabranch.protocol import lane_admission as beginning
from anabranch.protocol import worker as data
from anabranch.protocol.coordinator import CoordinatorMachine, WorkerPhase
from anabranch.protocol.epochs import EpochProgress
from anabranch.protocol.worker import WorkerMachine
from anabranch.simulation import worker as simulated
from anabranch.simulation.runner import run_seeds

SEEDS_MAX = 1_500
Patch = Callable[[pytest.MonkeyPatch], None]


def no_cache_for_retries(patch: pytest.MonkeyPatch) -> None:
    """A retry is applied again, on the state that already has its rows."""
    start = WorkerMachine._start

    def without_cache(self: WorkerMachine, tx: data.Tx) -> list[data.Effect]:
        for held in self.held[tx.opened.operator].values():
            if held.outputs_of == tx.opened.epoch:
                held.outputs_of, held.as_of = None, tx.opened.base
        return start(self, tx)

    patch.setattr(WorkerMachine, "_start", without_cache)


def wrong_base_is_loaded(patch: pytest.MonkeyPatch) -> None:
    """A key group is loaded as of the epoch before its base."""
    start = WorkerMachine._start

    def one_too_old(self: WorkerMachine, tx: data.Tx) -> list[data.Effect]:
        return [
            replace(e, as_of=Epoch(e.as_of - 1) if e.as_of else None)
            if isinstance(e, data.LoadGroups)
            else e
            for e in start(self, tx)
        ]

    patch.setattr(WorkerMachine, "_start", one_too_old)


def memory_of_any_epoch_will_do(patch: pytest.MonkeyPatch) -> None:
    """State that is here is used without a look at its epoch."""
    start = WorkerMachine._start

    def never_reload(self: WorkerMachine, tx: data.Tx) -> list[data.Effect]:
        for held in self.held[tx.opened.operator].values():
            if held.outputs_of != tx.opened.epoch:
                held.as_of = tx.opened.base
        return start(self, tx)

    patch.setattr(WorkerMachine, "_start", never_reload)


def transactions_overlap(patch: pytest.MonkeyPatch) -> None:
    """Two attempts of a lane run at the same time."""
    patch.setattr(data, "is_blocked", lambda machine, tx: False)


def answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    """The worker answers, then writes the changelog."""
    persist = simulated.WorkerProcess._persist

    def early(self: simulated.WorkerProcess, tx: int) -> None:
        work, exchange = self.work[tx], self.exchanges[tx]
        changelog = f"{self.name}/{tx}" if any(work.changes.values()) else None
        for group, outputs in work.outputs.items():
            self.cache[group] = simulated.Cached(exchange.opened.epoch, outputs, changelog)
        for group in exchange.opened.groups:
            if group not in self.cache:
                break
        else:
            self._answer(tx)
            self.exchanges[tx] = exchange
        persist(self, tx)

    patch.setattr(simulated.WorkerProcess, "_persist", early)


def late_epochs_are_applied(patch: pytest.MonkeyPatch) -> None:
    """A straggler takes the state back to its own epoch and nobody minds."""
    patch.setattr(data, "owner_error", lambda machine, event: None)
    base_of = beginning.begin_error

    def lenient(operator: Any, event: Any) -> AnabranchError | None:
        current = operator.current
        if current is not None and event.epoch < current.epoch:
            return None
        return base_of(operator, event)

    patch.setattr(coordinator, "begin_error", lenient)


def failed_apply_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Changes of a failed transaction stay in memory."""

    def no_undo(self: simulated.WorkerProcess, tx: int, error: AnabranchError) -> None:
        self.work.pop(tx, None)
        self.handle(data.TransactionFailed(tx, error))

    patch.setattr(simulated.WorkerProcess, "failed", no_undo)


def waiting_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Transactions that wait are not started when another ends."""

    def end(
        self: WorkerMachine, tx: data.Tx, error: AnabranchError | None = None
    ) -> list[data.Effect]:
        del self.transactions[tx.opened.tx]
        if error is None:
            return [data.AnswerTransaction(tx.opened.tx)]
        return [data.RefuseTransaction(tx.opened.tx, error)]

    patch.setattr(WorkerMachine, "_end", end)


def committed_with_a_lane_missing(patch: pytest.MonkeyPatch) -> None:
    """The manifest is written when all lanes but one have finished."""
    early = property(lambda self: len(self.finished) >= max(1, self.lanes - 1))
    patch.setattr(EpochProgress, "is_complete", early)


def finish_is_confirmed_before_the_manifest(patch: pytest.MonkeyPatch) -> None:
    """The last lane does not wait for the manifest."""
    finished = CoordinatorMachine._lane_finished

    def at_once(self: CoordinatorMachine, event: Any) -> list[coordinator.Effect]:
        effects = finished(self, event)
        operator = self.operators.get(event.operator)
        if operator is not None and event in operator.waiting_commit:
            operator.waiting_commit.remove(event)
            effects.append(coordinator.ConfirmFinish(event.request))
        return effects

    patch.setattr(CoordinatorMachine, "_lane_finished", at_once)


def executed_again_on_itself(patch: pytest.MonkeyPatch) -> None:
    """A batch that is executed again starts from its own result."""
    patch.setattr(coordinator, "_base_of", lambda operator, epoch: operator.committed)


def stale_grants_of_parked_lanes(patch: pytest.MonkeyPatch) -> None:
    """A parked lane gets the base of whatever runs when its worker is up."""

    def retry(self: CoordinatorMachine) -> list[coordinator.Effect]:
        parked, self.parked = self.parked, []
        return [
            effect
            for event in parked
            for effect in self._grant_or_park(event, self.operators[event.operator].base)
        ]

    patch.setattr(CoordinatorMachine, "retry_parked", retry)


def grants_at_workers_that_start(patch: pytest.MonkeyPatch) -> None:
    """Lanes are sent to a process that is not there yet."""
    grant = CoordinatorMachine._grant_or_park

    def anyway(self: CoordinatorMachine, event: Any, base: Any) -> list[coordinator.Effect]:
        phases = {worker: view.phase for worker, view in self.workers.items()}
        for view in self.workers.values():
            view.phase = WorkerPhase.UP
        effects = grant(self, event, base)
        for worker, view in self.workers.items():
            view.phase = phases[worker]
        return effects

    patch.setattr(CoordinatorMachine, "_grant_or_park", anyway)


def failed_manifest_is_confirmed(patch: pytest.MonkeyPatch) -> None:
    """A manifest that could not be written counts as written."""

    def written(self: CoordinatorMachine, event: Any) -> list[coordinator.Effect]:
        return self._manifest_written(coordinator.ManifestWritten(event.operator, event.epoch))

    patch.setattr(CoordinatorMachine, "_manifest_failed", written)


def incomplete_batches_pass(patch: pytest.MonkeyPatch) -> None:
    """The next batch begins although lanes of the last one never ran."""
    patch.setattr(coordinator, "begin_error", lambda operator, event: None)


# --- bugs that the simulation has found: each comes back and must be found again ----------------


def end_mark_after_a_refusal_is_a_bug(patch: pytest.MonkeyPatch) -> None:
    """The end mark of a transaction that was replaced meanwhile raises."""
    handle = WorkerMachine.handle

    def strict(self: WorkerMachine, event: data.Event) -> list[data.Effect]:
        if isinstance(event, data.RowsComplete):
            self._expect(event)
        return handle(self, event)

    patch.setattr(WorkerMachine, "handle", strict)


def straggler_takes_the_epoch_back(patch: pytest.MonkeyPatch) -> None:
    """A late task of the committed batch wipes out the progress of the one that runs."""
    begin_error = beginning.begin_error

    def lenient(operator: Any, event: Any) -> AnabranchError | None:
        is_late = operator.current is not None and event.epoch < operator.current.epoch
        if is_late and event.epoch == operator.committed:
            return None
        return begin_error(operator, event)

    patch.setattr(coordinator, "begin_error", lenient)


def other_lanes_wipe_out_progress(patch: pytest.MonkeyPatch) -> None:
    """A late task of an execution with other lanes restarts the epoch."""
    began = CoordinatorMachine._lane_began

    def reset(self: CoordinatorMachine, event: Any) -> list[coordinator.Effect]:
        operator = self.operators[event.operator]
        current = operator.current
        if current is not None and current.lanes != event.lanes:
            operator.executions.clear()
        return began(self, event)

    patch.setattr(CoordinatorMachine, "_lane_began", reset)


def next_batch_begins_during_a_rewrite(patch: pytest.MonkeyPatch) -> None:
    """The next epoch does not wait for the end of a write."""
    began = CoordinatorMachine._lane_began

    def impatient(self: CoordinatorMachine, event: Any) -> list[coordinator.Effect]:
        operator = self.operators[event.operator]
        writing, operator.writing = operator.writing, None
        effects = began(self, event)
        operator.writing = writing
        return effects

    patch.setattr(CoordinatorMachine, "_lane_began", impatient)


def registration_forgets_a_write(patch: pytest.MonkeyPatch) -> None:
    """An operator defined anew knows nothing of the write that is under way."""
    registered = CoordinatorMachine._operator_registered

    def forget(self: CoordinatorMachine, event: Any) -> list[coordinator.Effect]:
        effects = registered(self, event)
        self.operators[event.operator].writing = None
        return effects

    patch.setattr(CoordinatorMachine, "_operator_registered", forget)


def first_batch_may_be_lost(patch: pytest.MonkeyPatch) -> None:
    """As long as nothing is committed, any batch may begin."""
    begin_error = beginning.begin_error

    def lenient(operator: Any, event: Any) -> AnabranchError | None:
        current = operator.current
        if operator.committed is None and current is not None and not current.missing():
            return None
        return begin_error(operator, event)

    patch.setattr(coordinator, "begin_error", lenient)


def first_batch_is_forgotten_in_a_restart(patch: pytest.MonkeyPatch) -> None:
    """Nothing durable says that a first batch began: after a restart the next one passes."""
    registered = CoordinatorMachine._operator_registered

    def forget(self: CoordinatorMachine, event: Any) -> list[coordinator.Effect]:
        effects = registered(self, event)
        self.operators[event.operator].first = None
        self.operators[event.operator].start_empty = True  # the other guard against it
        return effects

    patch.setattr(CoordinatorMachine, "_operator_registered", forget)


def lanes_wait_for_the_wrong_worker(patch: pytest.MonkeyPatch) -> None:
    """A parked lane that two workers keep waiting hears of the last one only if it was noted."""
    park = CoordinatorMachine._grant_or_park

    def noted_once(
        self: CoordinatorMachine, event: coordinator.LaneBegan, base: Epoch | None
    ) -> list[coordinator.Effect]:
        before = noted.get(event.request)
        effects = park(self, event, base)
        if event.request in self.missing:
            noted[event.request] = self.missing[event.request]
            self.missing[event.request] = before or self.missing[event.request]
        return effects

    noted: dict[int, Any] = {}
    patch.setattr(CoordinatorMachine, "_grant_or_park", noted_once)


MUTATIONS: list[Patch] = [
    no_cache_for_retries,
    wrong_base_is_loaded,
    memory_of_any_epoch_will_do,
    transactions_overlap,
    answered_before_it_is_durable,
    late_epochs_are_applied,
    failed_apply_is_kept,
    waiting_is_forgotten,
    committed_with_a_lane_missing,
    finish_is_confirmed_before_the_manifest,
    executed_again_on_itself,
    stale_grants_of_parked_lanes,
    grants_at_workers_that_start,
    failed_manifest_is_confirmed,
    incomplete_batches_pass,
    end_mark_after_a_refusal_is_a_bug,
    straggler_takes_the_epoch_back,
    other_lanes_wipe_out_progress,
    next_batch_begins_during_a_rewrite,
    registration_forgets_a_write,
    first_batch_may_be_lost,
    lanes_wait_for_the_wrong_worker,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_mutation_is_found(mutation: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    summary = run_seeds(range(SEEDS_MAX))
    assert not summary.is_ok, f"{mutation.__name__} was not found in {SEEDS_MAX} seeds"


FOUND_BY_THE_ORACLE: list[Patch] = [
    no_cache_for_retries,
    wrong_base_is_loaded,
    memory_of_any_epoch_will_do,
    answered_before_it_is_durable,
    failed_apply_is_kept,
    committed_with_a_lane_missing,
    executed_again_on_itself,
    incomplete_batches_pass,
]


@pytest.mark.parametrize("mutation", FOUND_BY_THE_ORACLE, ids=lambda mutation: mutation.__name__)
def test_mutation_is_found_by_the_oracle_alone(
    mutation: Patch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even without invariants a wrong result shows: the oracle does not lean on them."""
    for name in (
        "check_worker",
        "check_coordinator",
        "check_pair",
        "check_grant",
        "check_told",
        "check_first_grant",
        "check_manifest",
    ):
        monkeypatch.setattr(invariants, name, lambda *args: None)
    monkeypatch.setattr(invariants.History, "check", lambda self, effect: None)
    mutation(monkeypatch)
    summary = run_seeds(range(SEEDS_MAX))
    assert not summary.is_ok, f"{mutation.__name__} was not found in {SEEDS_MAX} seeds"


@pytest.mark.parametrize("seed", [91, 946])
def test_rare_mutation_is_found_in_its_seeds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes an incomplete first batch and a restart before the next one begins."""
    first_batch_is_forgotten_in_a_restart(monkeypatch)
    assert not run_seeds([seed]).is_ok
