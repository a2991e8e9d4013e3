"""What of a key group is in memory: every way in which the rest of it arrives, or does not."""

from __future__ import annotations

import pytest

from anabranch.errors import ProcessorError, ProtocolViolation
from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.protocol.arrivals import Activity, ArrivingGroup
from anabranch.protocol.invariants import InvariantBroken, check_worker, residency_follows_table
from anabranch.protocol.residency import (
    importable,
    in_store,
    is_needed,
    may_evict,
    new_owners,
    residency_of,
    sources,
)
from anabranch.protocol.residency_table import RESIDENCY, may_become
from anabranch.protocol.worker import (
    STORE,
    AdoptPart,
    AwaitArrivals,
    AwaitingExpired,
    ChangesDurable,
    ChooseDeferred,
    DeferralCandidate,
    DeferralChosen,
    DiscardPart,
    DropGroups,
    Effect,
    Event,
    FetchedPart,
    FetchGroups,
    ForgetParts,
    GroupsDropped,
    GroupsEvicted,
    GroupsFetched,
    GroupsGranted,
    GroupsLoaded,
    GroupsReleased,
    HeldGroup,
    ImportBegan,
    ImportEnded,
    InstallPart,
    LoadGroups,
    OperatorInstalled,
    PartFailed,
    PartInstalled,
    PartKind,
    PartOffered,
    PartReceiving,
    ReceivingEnded,
    ReplicaOrigin,
    ReplicasChanged,
    Residency,
    RowsComplete,
    TransactionApplied,
    TransactionFailed,
    TransactionOpened,
    TxPhase,
    WorkerMachine,
)

OP = "counts"
W2, W3 = WorkerId("w2"), WorkerId("w3")
G0, G1 = KeyGroup(0), KeyGroup(1)
BINS = frozenset({0, 1})
E0, E1, E2 = Epoch(0), Epoch(1), Epoch(2)
ERROR = ProcessorError("failed")


class Driver:
    """A worker with two bins in a key group that checks every change against the table."""

    def __init__(self) -> None:
        self.machine = WorkerMachine(len(BINS))
        self.machine.handle(OperatorInstalled(OP))
        self.tx = 0

    def __call__(self, event: Event) -> list[Effect]:
        before = {group: self.phase(group) for group in (G0, G1)}
        effects = self.machine.handle(event)
        check_worker(self.machine)
        after = {group: self.phase(group) for group in (G0, G1)}
        residency_follows_table(before, type(event), after)
        return effects

    def phase(self, group: KeyGroup = G0) -> Residency:
        return residency_of(self.machine, OP, group)

    def record(self, group: KeyGroup = G0) -> ArrivingGroup:
        return self.machine.arrivals.groups[OP][group]

    def start(self, epoch: int, *groups: KeyGroup, may_defer: bool = False) -> list[Effect]:
        self.tx += 1
        base = Epoch(epoch - 1) if epoch else None
        opened = TransactionOpened(
            self.tx,
            OP,
            Epoch(epoch),
            base,
            Lane(0),
            1,
            self.tx,
            groups or (G0,),
            100,
            may_defer=may_defer,
        )
        assert self(opened) == []
        return self(RowsComplete(self.tx))

    def end(self) -> None:
        self(TransactionApplied(self.tx))
        self(ChangesDurable(self.tx))

    def fetched(self, *bins: int, is_whole: bool = False, group: KeyGroup = G0) -> list[Effect]:
        """The source answers the transaction that runs."""
        base = self.machine.transactions[self.tx].opened.base
        part = FetchedPart(group, self.record(group).session, base, bins, is_whole)
        return self(GroupsFetched(self.tx, (part,)))

    def offer(
        self,
        kind: PartKind = PartKind.BINS,
        as_of: Epoch | None = E0,
        bins: frozenset[int] = BINS,
        since: Epoch | None = None,
        session: int | None = None,
    ) -> list[Effect]:
        number = self.record().session if session is None else session
        return self(PartOffered(OP, G0, number, kind, as_of, bins, since))

    def install(self, *offered: object, **how: object) -> list[Effect]:
        """An offer that is taken, and put in place."""
        session = self.record().session
        effects = self.offer(*offered, **how)  # type: ignore[arg-type]
        assert [type(effect) for effect in effects] == [InstallPart]
        assert self.record().activity is Activity.INSTALLING
        return self(PartInstalled(OP, G0, session))


@pytest.fixture
def worker() -> Driver:
    """Owns a key group that another worker has."""
    driver = Driver()
    driver(GroupsGranted((G0,), 5, W2, Arrival.KEY))
    assert driver.phase() is Residency.AWAITED
    return driver


def stored(driver: Driver, *missing: int) -> None:
    """Key group 0, as of epoch 0, with bins in the store."""
    driver.start(1)
    driver(GroupsFetched(driver.tx))
    driver(GroupsLoaded(driver.tx, ((G0, missing or (0, 1)),)))
    driver.end()
    assert driver.phase() is Residency.STORED


# --- for a transaction -------------------------------------------------------------------------


def test_what_a_source_has_is_asked_for_as_of_the_base(worker: Driver) -> None:
    (_, fetch) = worker.start(1)
    assert isinstance(fetch, FetchGroups)
    (request,) = fetch.requests
    assert (request.source, request.as_of, request.missing) == (W2, E0, (0, 1))
    assert request.phase is Residency.AWAITED
    worker.fetched(0)
    assert worker.phase() is Residency.PARTIAL
    assert worker.record().missing == {1}
    worker.end()
    (*_, fetch) = worker.start(2)
    assert isinstance(fetch, FetchGroups)
    (request,) = fetch.requests
    assert (request.phase, request.as_of, request.missing) == (Residency.PARTIAL, E0, (1,))
    assert worker.fetched(1)[-1] == ForgetParts(OP, (G0,))
    assert worker.phase() is Residency.HELD


def test_what_no_source_has_is_in_the_store(worker: Driver) -> None:
    worker.start(1)
    assert worker(GroupsFetched(worker.tx)) == [
        LoadGroups(worker.tx, (G0,), E0),
        ForgetParts(OP, (G0,)),
    ]
    assert worker.phase() is Residency.ABSENT
    worker(GroupsLoaded(worker.tx))
    assert worker.phase() is Residency.HELD


def test_the_rest_of_a_part_is_in_the_store(worker: Driver) -> None:
    """No transaction has touched what never came: any later epoch has it."""
    worker.start(1)
    worker.fetched(0)
    worker.end()
    session = worker.record().session
    worker.start(2)
    (load,) = worker(GroupsFetched(worker.tx))
    assert load == LoadGroups(worker.tx, (), E1, ((G0, (1,)),))
    assert worker.phase() is Residency.STORED
    assert worker.record().session != session
    worker(GroupsLoaded(worker.tx, ((G0, (1,)),)))
    assert (worker.record().source, worker.record().origin) == (STORE, E1)
    worker.end()
    (*_, load) = worker.start(3)
    assert load == LoadGroups(worker.tx, (), E2, ((G0, (1,)),))
    worker(GroupsLoaded(worker.tx))
    assert worker.phase() is Residency.HELD


def test_a_part_that_broke_is_read_whole(worker: Driver) -> None:
    worker.start(1)
    worker.fetched(0)
    worker.end()
    worker.start(2)
    load, *_ = worker(GroupsFetched(worker.tx, (), (G0,)))
    assert load == LoadGroups(worker.tx, (G0,), E1)
    assert worker.phase() is Residency.ABSENT


def test_what_cannot_be_loaded_is_not_here(worker: Driver) -> None:
    worker.start(1)
    worker(TransactionFailed(worker.tx, ERROR))
    assert worker.phase() is Residency.ABSENT


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_comes_for_an_earlier_grant_serves_its_transaction(
    worker: Driver, is_whole: bool
) -> None:
    worker.start(1)
    part = FetchedPart(G0, worker.record().session, E0, (), is_whole)
    worker(GroupsGranted((G0,), 7, W3))
    effects = worker(GroupsFetched(worker.tx, (part,)))
    assert effects[-1] == ForgetParts(OP, (G0,)), "the next arrival knows nothing of these keys"
    assert worker.machine.held[OP][G0] == HeldGroup(E0, is_partial=not is_whole)
    assert worker.record().source == W3
    # What the transaction works on must not be replaced under it.
    assert worker.offer(as_of=E0) == []
    worker(TransactionApplied(worker.tx))
    assert any(isinstance(e, InstallPart) for e in worker(ChangesDurable(worker.tx)))


def test_released_while_it_loads(worker: Driver) -> None:
    worker.start(1)
    worker(GroupsReleased((G0,), 6, W3))
    worker(GroupsFetched(worker.tx))
    worker(GroupsLoaded(worker.tx, ((G0, (1,)),)))
    assert worker.phase() is Residency.FROZEN
    assert worker.machine.held[OP][G0].is_partial
    assert new_owners(worker.machine) == {W3}


def test_granted_anew_while_it_is_read(worker: Driver) -> None:
    worker.start(1)
    worker(GroupsFetched(worker.tx))
    worker(GroupsGranted((G0,), 7, W3))
    worker(GroupsLoaded(worker.tx, ((G0, (1,)),)))
    assert (worker.phase(), worker.record().source) == (Residency.STORED, STORE)


# --- imports -----------------------------------------------------------------------------------


def test_an_import_stages_what_no_transaction_needs_yet(worker: Driver) -> None:
    assert worker.install(bins=frozenset({0})) == []
    assert (worker.phase(), worker.record().origin) == (Residency.STAGED, E0)
    assert worker.offer(as_of=E1, bins=frozenset({1}))[0] == DiscardPart(OP, G0, 1)
    assert worker.install(bins=frozenset({1})) == [AdoptPart(OP, G0), ForgetParts(OP, (G0,))]
    assert worker.machine.held[OP][G0] == HeldGroup(E0)


def test_a_transaction_takes_over_what_was_staged(worker: Driver) -> None:
    worker.install(bins=frozenset({0}))
    (_, adopt, fetch) = worker.start(1)
    assert adopt == AdoptPart(OP, G0)
    assert isinstance(fetch, FetchGroups)
    assert fetch.requests[0].phase is Residency.STAGED
    assert worker.phase() is Residency.PARTIAL


def test_what_was_staged_as_of_another_epoch_is_void(worker: Driver) -> None:
    worker.install(as_of=E1, bins=frozenset({0}))
    (_, load, forget) = worker.start(1)
    assert (load, forget) == (LoadGroups(worker.tx, (G0,), E0), ForgetParts(OP, (G0,)))


def test_an_offer_waits_until_the_transaction_has_loaded(worker: Driver) -> None:
    worker.start(1)
    session = worker.record().session
    assert worker.offer() == []
    assert worker.fetched(0)[-1] == InstallPart(OP, G0, session, is_staged=False)
    worker(PartInstalled(OP, G0, session))
    assert worker.phase() is Residency.HELD


def test_an_offer_of_an_earlier_arrival_is_discarded(worker: Driver) -> None:
    old = worker.record().session
    worker(GroupsGranted((G0,), 7, W3))
    assert worker.offer(session=old) == [DiscardPart(OP, G0, old)]
    assert worker(PartInstalled(OP, G0, old)) == []  # it was being put in place


def test_an_offer_waits_for_a_shadow(worker: Driver) -> None:
    machine = worker.machine
    machine.handle(GroupsReleased((G0,), 6, W3))
    machine.handle(ReplicasChanged(OP, ((G0, E0),)))
    shadow = TransactionOpened(9, OP, E1, E0, Lane(0), 1, 9, (G0,), 6, is_shadow=True)
    machine.handle(shadow)
    machine.handle(RowsComplete(9))
    machine.handle(GroupsGranted((G0,), 7, W2))
    assert worker.offer(as_of=E1) == []
    assert isinstance(machine.handle(TransactionApplied(9))[-1], InstallPart)


def test_one_part_at_a_time(worker: Driver) -> None:
    session = worker.record().session
    worker.offer(bins=frozenset({0}))
    assert worker.offer(bins=frozenset({1})) == []
    assert worker(PartInstalled(OP, G0, session)) == [InstallPart(OP, G0, session, is_staged=True)]


def test_a_part_that_is_put_in_place_in_half_spoils_the_rest(worker: Driver) -> None:
    session = worker.record().session
    worker.install(bins=frozenset({0}))
    worker.offer(bins=frozenset({1}))
    assert worker(PartFailed(OP, G0, session)) == [ForgetParts(OP, (G0,))]
    assert worker.phase() is Residency.AWAITED
    assert worker.offer() == [DiscardPart(OP, G0, session)]
    assert importable(worker.machine, (G0,), 9) == []
    (_, load, _) = worker.start(1)
    assert load == LoadGroups(worker.tx, (G0,), E0)


def test_a_part_of_the_store_that_is_put_in_place_in_half(worker: Driver) -> None:
    stored(worker)
    worker.offer(PartKind.REST, as_of=E1, bins=frozenset({0}))
    assert worker(PartFailed(OP, G0, worker.record().session)) == []
    assert in_store(worker.machine) == []
    assert not may_evict(worker.machine, OP, G0, E1)
    (*_, load) = worker.start(2)
    assert load == LoadGroups(worker.tx, (G0,), E1)
    worker(GroupsLoaded(worker.tx, ((G0, (0,)),)))
    assert [group for _, group, _ in in_store(worker.machine)] == [G0]


def test_nothing_is_installed_that_was_not_offered(worker: Driver) -> None:
    with pytest.raises(ProtocolViolation, match="nothing was to be installed"):
        worker.machine.handle(PartInstalled(OP, G0, worker.record().session))


def test_a_delta_completes_a_replica(worker: Driver) -> None:
    origin = ReplicaOrigin(W2, 4)
    worker(GroupsReleased((G0,), 6, W3))
    worker(ReplicasChanged(OP, ((G0, E0),), origin))
    assert sources(worker.machine) == {W2}
    worker(GroupsGranted((G0,), 7, W2))
    ((operator, request),) = importable(worker.machine, (G0,), 7)
    assert (operator, request.replica) == (OP, (origin, E0))
    assert worker.offer(PartKind.DELTA, as_of=E2, since=E1)[0] == DiscardPart(OP, G0, 2)
    assert worker.install(PartKind.DELTA, as_of=E2, since=E0)[0] == AdoptPart(OP, G0)
    assert worker.machine.held[OP][G0] == HeldGroup(E2)


def test_a_replica_that_a_delta_has_spoilt_is_dropped(worker: Driver) -> None:
    """Given away later, it would pass for the state as of its epoch."""
    worker(GroupsReleased((G0,), 6, W3))
    worker(ReplicasChanged(OP, ((G0, E0),), ReplicaOrigin(W2, 4)))
    worker(GroupsGranted((G0,), 7, W2))
    worker.offer(PartKind.DELTA, as_of=E2, since=E0)
    effects = worker(PartFailed(OP, G0, worker.record().session))
    assert effects == [DropGroups(OP, (G0,)), ForgetParts(OP, (G0,))]
    worker(GroupsReleased((G0,), 8, W3))
    assert worker.phase() is Residency.ABSENT


def test_a_replica_that_a_delta_changes_is_dropped_with_its_arrival(worker: Driver) -> None:
    worker(GroupsReleased((G0,), 6, W3))
    worker(ReplicasChanged(OP, ((G0, E0),), ReplicaOrigin(W2, 4)))
    worker(GroupsGranted((G0,), 7, W2))
    session = worker.record().session
    worker.offer(PartKind.DELTA, as_of=E2, since=E0)
    assert worker(GroupsReleased((G0,), 8, W3))[0] == DropGroups(OP, (G0,))
    assert worker.phase() is Residency.ABSENT
    assert worker(PartInstalled(OP, G0, session)) == []


def test_a_shadow_leaves_the_replica_its_origin() -> None:
    worker, origin = Driver(), ReplicaOrigin(W2, 4)
    worker(ReplicasChanged(OP, ((G0, E0),), origin))
    worker(TransactionOpened(9, OP, E1, E0, Lane(0), 1, 9, (G0,), 6, is_shadow=True))
    worker(RowsComplete(9))
    worker(TransactionApplied(9))
    assert worker.machine.held[OP][G0] == HeldGroup(E1, replica=origin)
    worker(GroupsGranted((G0,), 7, W2))
    ((_, request),) = importable(worker.machine, (G0,), 7)
    assert request.replica == (origin, E1)


def test_a_replica_of_another_worker_is_of_no_use(worker: Driver) -> None:
    worker(GroupsReleased((G0,), 6, W3))
    worker(ReplicasChanged(OP, ((G0, E0),), ReplicaOrigin(W3, 4)))
    worker(GroupsGranted((G0,), 7, W2))
    assert worker.record().replica is None


def test_the_store_completes_what_the_source_has_lost(worker: Driver) -> None:
    worker.install(as_of=E1, bins=frozenset({0}))
    assert worker.offer(PartKind.WHOLE, as_of=E0)[0] == DiscardPart(OP, G0, 1)  # older
    assert worker.offer(PartKind.REST, as_of=E1)[0] == DiscardPart(OP, G0, 1)  # not in use
    assert worker.install(PartKind.WHOLE, as_of=E2)[0] == AdoptPart(OP, G0)
    assert worker.machine.held[OP][G0] == HeldGroup(E2)


def test_the_store_completes_what_transactions_work_on(worker: Driver) -> None:
    worker.start(1)
    worker.fetched(0)
    worker.end()
    assert worker.offer(PartKind.WHOLE, as_of=E2)[0] == DiscardPart(OP, G0, 1)
    assert worker.offer(PartKind.REST, as_of=None)[0] == DiscardPart(OP, G0, 1)  # older
    assert worker.offer(PartKind.REST, as_of=E1)[0] == DiscardPart(OP, G0, 1)  # bin 0 is here
    worker.install(PartKind.REST, as_of=E1, bins=frozenset({1}))
    assert worker.phase() is Residency.HELD


def test_imports_leave_alone_what_was_granted_later(worker: Driver) -> None:
    assert importable(worker.machine, (G0, G1), 4) == []
    worker(ImportBegan((G0, G1), 4))
    assert not worker.record().is_importing
    worker(ImportBegan((G0, G1), 5))
    assert worker.record().is_importing
    worker(ImportEnded((G0,)))
    assert not worker.record().is_importing


# --- waiting for what is coming in -------------------------------------------------------------


def test_a_transaction_awaits_what_is_being_received(worker: Driver) -> None:
    session = worker.record().session
    coming = ((G0, session), (G1, 9))
    assert not is_needed(worker.machine, OP, G0, session)
    worker(PartReceiving(OP, coming))
    assert worker.start(1)[-1] == AwaitArrivals(worker.tx, (G0,))
    assert is_needed(worker.machine, OP, G0, session)
    assert is_needed(worker.machine, OP, G0, session + 1), "nobody wants it any more"
    assert worker(ImportEnded((G0,))) == []
    (install,) = worker.offer()
    assert isinstance(install, InstallPart)
    worker(ReceivingEnded(OP, coming))  # being put in place is not over with it
    assert worker.machine.transactions[worker.tx].phase is TxPhase.AWAITING
    adopt, *_ = worker(PartInstalled(OP, G0, session))
    assert adopt == AdoptPart(OP, G0)
    assert worker.machine.transactions[worker.tx].phase is TxPhase.APPLYING


def test_a_transaction_goes_on_when_nothing_comes_any_more(worker: Driver) -> None:
    coming = ((G0, worker.record().session),)
    worker(PartReceiving(OP, coming))
    worker.start(1)
    (fetch,) = worker(ReceivingEnded(OP, coming))
    assert isinstance(fetch, FetchGroups)


def test_a_transaction_waits_for_an_import_that_blocks() -> None:
    worker = Driver()
    worker(GroupsGranted((G0,), 5, W2, Arrival.BLOCK))
    worker(ImportBegan((G0,), 5))
    assert worker.start(1)[-1] == AwaitArrivals(worker.tx, (G0,))
    (fetch,) = worker(AwaitingExpired(worker.tx))
    assert isinstance(fetch, FetchGroups)


def test_nobody_waits_for_what_no_import_brings_any_more() -> None:
    worker = Driver()
    worker(GroupsGranted((G0,), 5, W2, Arrival.BLOCK))
    worker(ImportBegan((G0,), 5))
    worker.offer()
    worker(PartFailed(OP, G0, worker.record().session))
    assert LoadGroups(1, (G0,), E0) in worker.start(1)


def test_nobody_is_impatient_with_what_is_being_put_in_place(worker: Driver) -> None:
    worker.offer()
    assert worker.start(1)[-1] == AwaitArrivals(worker.tx, (G0,))
    assert worker(AwaitingExpired(worker.tx)) == []


def receive(worker: Driver, group: KeyGroup) -> None:
    worker(PartReceiving(OP, ((group, worker.record(group).session),)))


def test_a_wait_for_pieces_lasts_as_long_as_they_come(worker: Driver) -> None:
    """Of what it waits for: what comes of other key groups does not help."""
    worker(GroupsGranted((G1,), 5, W2, Arrival.GROUP))
    receive(worker, G0)
    assert worker.start(1)[-1] == AwaitArrivals(worker.tx, (G0,))
    for _ in range(3):
        receive(worker, G0)
        assert worker(AwaitingExpired(worker.tx)) == []
    receive(worker, G1)
    (fetch,) = worker(AwaitingExpired(worker.tx))
    assert isinstance(fetch, FetchGroups)


def test_a_wait_for_a_turn_lasts_as_long_as_its_source_sends(worker: Driver) -> None:
    """An import brings one key group after the other: others come before it."""
    other = KeyGroup(2)
    worker(GroupsGranted((G0, G1), 6, W2, Arrival.BLOCK))
    worker(GroupsGranted((other,), 7, W3, Arrival.BLOCK))
    worker(ImportBegan((G0, G1, other), 7))
    assert worker.start(1)[-1] == AwaitArrivals(worker.tx, (G0,))
    for _ in range(3):
        receive(worker, G1)
        assert worker(AwaitingExpired(worker.tx)) == []
    receive(worker, other)
    (fetch,) = worker(AwaitingExpired(worker.tx))
    assert isinstance(fetch, FetchGroups)


# --- deferral ----------------------------------------------------------------------------------


def test_rows_may_wait_instead(worker: Driver) -> None:
    worker(GroupsGranted((G1,), 5))
    choose = worker.start(1, G0, G1, may_defer=True)[-1]
    assert choose == ChooseDeferred(
        worker.tx,
        (
            DeferralCandidate(G0, W2, Residency.AWAITED, is_near=False),
            DeferralCandidate(G1, STORE, Residency.ABSENT, is_near=False),
        ),
        E0,
    )
    effects = worker(DeferralChosen(worker.tx, (G0, G1)))
    assert [type(effect).__name__ for effect in effects] == ["ApplyTransaction"]
    assert (worker.phase(G0), worker.phase(G1)) == (Residency.PARTIAL, Residency.STORED)
    worker.end()
    (*_, again) = worker.start(2, G0, G1, may_defer=True)
    assert isinstance(again, ChooseDeferred)
    assert [c.phase for c in again.candidates] == [Residency.PARTIAL, Residency.STORED]
    worker(DeferralChosen(worker.tx, (G0, G1)))
    assert (worker.phase(G0), worker.phase(G1)) == (Residency.PARTIAL, Residency.STORED)


def test_what_was_staged_is_taken_over_when_rows_wait(worker: Driver) -> None:
    worker.install(bins=frozenset({0}))
    worker.start(1, may_defer=True)
    effects = worker(DeferralChosen(worker.tx, (G0,)))
    assert effects[0] == AdoptPart(OP, G0)
    assert worker.phase() is Residency.PARTIAL


def test_what_was_staged_is_brought_another_way_if_its_arrival_ends(worker: Driver) -> None:
    worker.install(bins=frozenset({0}))
    worker.start(1, may_defer=True)
    worker(GroupsGranted((G0,), 7, W3))
    (fetch,) = worker(DeferralChosen(worker.tx, (G0,)))
    assert isinstance(fetch, FetchGroups)
    assert worker.phase() is Residency.AWAITED


def test_what_is_stale_or_being_put_in_place_is_no_candidate(worker: Driver) -> None:
    worker.install(as_of=E1, bins=frozenset({0}))
    assert isinstance(worker.start(1, may_defer=True)[-2], LoadGroups)
    other = Driver()
    other(GroupsGranted((G0,), 5, W2))
    other.offer()
    assert isinstance(other.start(1, may_defer=True)[-1], AwaitArrivals)


def test_rows_wait_although_the_key_group_was_released_meanwhile(worker: Driver) -> None:
    worker.start(1, may_defer=True)
    worker(GroupsReleased((G0,), 6, W3))
    worker(DeferralChosen(worker.tx, (G0,)))
    assert worker.phase() is Residency.FROZEN
    assert worker.machine.held[OP][G0].is_partial


# --- the store ---------------------------------------------------------------------------------


def test_bins_leave_memory_and_come_back() -> None:
    worker = Driver()
    worker(GroupsGranted((G0,), 5))
    worker.start(0)
    worker(GroupsLoaded(worker.tx))
    worker.end()
    assert not may_evict(worker.machine, OP, G0, E1), "not as of what the store has"
    worker(GroupsEvicted(OP, ((G0, (0,)),), E0))
    first = worker.record().session
    worker(GroupsEvicted(OP, ((G0, (1,)),), E0))
    assert worker.record().missing == {0, 1}
    assert worker.offer(PartKind.REST, session=first) == [DiscardPart(OP, G0, first)]
    worker.install(PartKind.REST)
    assert worker.phase() is Residency.HELD


def test_only_what_is_here_owned_and_idle_is_evicted(worker: Driver) -> None:
    evict = GroupsEvicted(OP, ((G0, (0,)),), E0)
    with pytest.raises(ProtocolViolation, match="key group 0 is not held"):
        worker.machine.handle(evict)
    worker.start(1)
    worker.fetched(0)
    worker.end()
    with pytest.raises(ProtocolViolation, match="not held, not owned, or in use"):
        worker.machine.handle(GroupsEvicted(OP, ((G0, (0,)),), E1))  # a worker has the rest
    stored_ = Driver()
    stored_(GroupsGranted((G0,), 5, W2))
    stored(stored_)
    stored_.offer(PartKind.REST, as_of=E1)
    with pytest.raises(ProtocolViolation, match="in use"):
        stored_.machine.handle(GroupsEvicted(OP, ((G0, (0,)),), E1))  # a part is put in place


def test_a_part_of_an_epoch_that_is_gone_is_dropped(worker: Driver) -> None:
    """The batch runs again from another base."""
    stored(worker, 1)
    (*_, load, forget) = worker.start(4)
    assert load == LoadGroups(worker.tx, (G0,), Epoch(3))
    assert forget == ForgetParts(OP, (G0,))


def test_a_part_that_is_released_before_its_turn_is_read_whole(worker: Driver) -> None:
    """Others of the transaction are applied first; without its record it must not pass for all."""
    stored(worker, 1)
    worker(GroupsGranted((G1,), 5))
    worker.start(1, G1)
    worker(GroupsLoaded(worker.tx))
    worker.end()
    worker.machine.owners.ready_first.add(G0)
    worker.start(2, G0, G1)
    worker(GroupsReleased((G0,), 6, W3))
    (load,) = worker(TransactionApplied(worker.tx))
    assert load == LoadGroups(worker.tx, (G0,), E1)


# --- copies ------------------------------------------------------------------------------------


def test_a_copy_is_no_news_to_its_owner(worker: Driver) -> None:
    worker(ReplicasChanged(OP, ((G0, E0),), ReplicaOrigin(W2, 1)))
    assert worker.phase() is Residency.AWAITED
    assert G0 not in worker.machine.held[OP]
    worker(ReplicasChanged("other", ((G0, E0),)))
    worker(ReplicasChanged(OP, ((G1, E0),), ReplicaOrigin(W2, 1)))
    assert worker.phase(G1) is Residency.REPLICA
    worker(GroupsDropped((G1,)))
    assert worker.phase(G1) is Residency.ABSENT


# --- the table ---------------------------------------------------------------------------------


def test_the_table_leads_from_everywhere_to_everywhere() -> None:
    """Every phase is reached, and left again."""
    assert {after for way in RESIDENCY.values() for after in way} == set(Residency)
    assert {before for before, _ in RESIDENCY} == set(Residency)


def test_what_the_table_does_not_have_is_found() -> None:
    assert may_become(Residency.HELD, GroupsReleased, Residency.FROZEN)
    assert may_become(Residency.FROZEN, ChangesDurable, Residency.ABSENT), "doomed, and now idle"
    assert may_become(Residency.AWAITED, PartInstalled, Residency.PARTIAL), "staged, then used"
    assert not may_become(Residency.FROZEN, RowsComplete, Residency.HELD)
    with pytest.raises(InvariantBroken, match="residency_follows_table"):
        residency_follows_table({G0: Residency.HELD}, RowsComplete, {G0: Residency.STORED})


@pytest.mark.parametrize("bend", ["not owned", "nothing missing", "not in part"])
def test_arrivals_are_checked(worker: Driver, bend: str) -> None:
    stored(worker)
    if bend == "not owned":
        del worker.machine.granted[G0]
    elif bend == "nothing missing":
        worker.record().missing.clear()
    else:
        worker.machine.held[OP][G0].is_partial = False
    with pytest.raises(InvariantBroken, match=r"arriving_is_owned|partial_has_source"):
        check_worker(worker.machine)
