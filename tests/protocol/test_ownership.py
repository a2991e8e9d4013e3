"""A worker while key groups move: grants, releases, handshakes, parts, forwarding, shadows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.errors import ProcessorError, ServiceUnavailable
from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup, Lane, WorkerId
from anabranch.protocol.invariants import InvariantBroken, check_owners, check_worker
from anabranch.protocol.residency import new_owners
from anabranch.protocol.worker import (
    AnswerTransaction,
    ApplyTransaction,
    ChangesDurable,
    DiscardPart,
    DropGroups,
    DropOutputs,
    Effect,
    Event,
    FetchedPart,
    FetchGroups,
    ForwardFailed,
    ForwardRows,
    GroupsDropped,
    GroupsFetched,
    GroupsGranted,
    GroupsLoaded,
    GroupsReleased,
    HeldGroup,
    InstallPart,
    LoadGroups,
    OperatorInstalled,
    PartInstalled,
    PartKind,
    PartOffered,
    PersistChanges,
    RefuseTransaction,
    ReplicasChanged,
    RowsComplete,
    RowsForwarded,
    TransactionApplied,
    TransactionFailed,
    TransactionOpened,
    TxPhase,
    WorkerMachine,
)

OP = "counts"
W2, W3 = WorkerId("w2"), WorkerId("w3")
G0, G1, G2, G3 = KeyGroup(0), KeyGroup(1), KeyGroup(2), KeyGroup(3)
ERROR = ProcessorError("failed")


class Driver:
    """A worker that owns key groups 0 and 1 at version 1."""

    def __init__(self, *owned: KeyGroup) -> None:
        self.machine = WorkerMachine()
        self(GroupsGranted(owned or (G0, G1), 1))
        self(OperatorInstalled(OP))
        self.tx = 0

    def __call__(self, event: Event) -> list[Effect]:
        effects = self.machine.handle(event)
        check_worker(self.machine)
        return effects

    def open(self, epoch: int, *groups: KeyGroup, is_shadow: bool = False, version: int = 5) -> int:
        self.tx += 1
        base = Epoch(epoch - 1) if epoch else None
        event = TransactionOpened(
            self.tx, OP, Epoch(epoch), base, Lane(0), 1, self.tx, groups, version, is_shadow
        )
        assert self(event) == []
        return self.tx

    def start(self, epoch: int, *groups: KeyGroup) -> tuple[int, list[Effect]]:
        tx = self.open(epoch, *groups)
        return tx, self(RowsComplete(tx))

    def run(self, epoch: int, *groups: KeyGroup, partial: tuple[KeyGroup, ...] = ()) -> None:
        tx, effects = self.start(epoch, *groups)
        if isinstance(effects[-1], FetchGroups):
            self.fetched(tx, partial)
        if isinstance(effects[-1], LoadGroups):
            self(GroupsLoaded(tx))
        self(TransactionApplied(tx))
        assert self(ChangesDurable(tx)) == [AnswerTransaction(tx)]

    def fetched(self, tx: int, partial: tuple[KeyGroup, ...] = ()) -> list[Effect]:
        """Sources answer with all of what they were asked for, or with some keys of it."""
        found = self.machine.transactions[tx]
        records = self.machine.arrivals.groups[OP]
        parts = tuple(
            FetchedPart(g, records[g].session, found.opened.base, (), g not in partial)
            for g in found.requested
            if g in records
        )
        return self(GroupsFetched(tx, parts))

    def imported(self, group: KeyGroup, epoch: int | None) -> None:
        """An import brings all that is missing."""
        record = self.machine.arrivals.groups[OP][group]
        as_of = None if epoch is None else Epoch(epoch)
        bins = frozenset(record.missing)
        offer = PartOffered(OP, group, record.session, PartKind.BINS, as_of, bins)
        (install,) = self(offer)
        assert isinstance(install, InstallPart)
        self(PartInstalled(OP, group, record.session))

    def asked(self, effects: list[Effect]) -> dict[KeyGroup, tuple[WorkerId, Epoch | None]]:
        """Of whom key groups are asked for, and as of which epoch."""
        assert isinstance(effects[-1], FetchGroups)
        return {r.group: (r.source, r.as_of) for r in effects[-1].requests}

    @property
    def sources(self) -> dict[KeyGroup, WorkerId]:
        """Who has what arrives."""
        return {group: record.source for group, record in self.machine.arrivals.groups[OP].items()}

    @property
    def held(self) -> dict[KeyGroup, HeldGroup]:
        return self.machine.held[OP]


# --- versions ----------------------------------------------------------------------------------


def test_old_messages_change_nothing() -> None:
    worker = Driver()
    worker(GroupsGranted((G0,), 5, W2))
    worker(GroupsReleased((G0,), 5, W3))  # not newer
    worker(GroupsGranted((G0,), 4, W3))
    assert worker.machine.granted[G0] == 5
    assert worker.sources == {G0: W2}
    worker(GroupsReleased((G0,), 6, W3))
    worker(GroupsGranted((G0,), 5, W2))  # said twice, overtaken
    assert not worker.machine.owners.is_owner(G0)
    assert worker.machine.owners.released == {G0: (6, W3)}


def test_old_messages_change_nothing_after_a_clean_up_either() -> None:
    worker = Driver()
    worker(GroupsGranted((G2,), 5, W2))
    worker(GroupsReleased((G2,), 6, W3))
    worker(GroupsDropped((G2,), 7))
    assert worker.machine.owners.released == {G2: (6, W3)}
    worker(GroupsGranted((G2,), 5, W2))  # said twice, very late
    assert not worker.machine.owners.is_owner(G2)
    worker(GroupsReleased((G2,), 9, W3))  # of a change of owners that was given up
    worker(GroupsGranted((G2,), 8, W2))  # its grant comes after that
    assert not worker.machine.owners.is_owner(G2)
    worker(GroupsGranted((G2,), 10, W2))
    assert worker.machine.owners.is_owner(G2)


def test_a_grant_said_twice_does_not_bring_the_source_back() -> None:
    worker = Driver()
    worker(GroupsGranted((G0,), 5, W2))
    worker.imported(G0, 3)
    worker(GroupsGranted((G0,), 5, W2))
    assert worker.sources == {}


def test_release_of_something_that_was_never_here() -> None:
    worker = Driver()
    worker(GroupsReleased((G2,), 6, W3))
    assert worker.machine.owners.released == {}


def test_one_owner_per_version() -> None:
    first, second = Driver(), Driver(G2)
    check_owners({W2: first.machine, W3: second.machine})
    with pytest.raises(InvariantBroken, match="one_owner"):
        check_owners({W2: first.machine, W3: Driver(G0).machine})


# --- arrival -----------------------------------------------------------------------------------


def test_handshake_even_when_a_replica_is_up_to_date() -> None:
    worker = Driver()
    worker(ReplicasChanged(OP, ((G2, Epoch(3)),)))
    worker(GroupsGranted((G2,), 5, W2))
    tx, effects = worker.start(4, G2)
    assert worker.asked(effects) == {G2: (W2, Epoch(3))}
    assert worker.fetched(tx)[0] == ApplyTransaction(tx, (G2,))
    assert worker.sources == {}


def test_a_part_is_asked_for_again_until_it_is_whole() -> None:
    worker = Driver()
    worker(GroupsGranted((G2,), 5, W2, Arrival.KEY))
    worker.run(4, G2, partial=(G2,))
    assert worker.held[G2] == HeldGroup(Epoch(4), Epoch(4), None, is_partial=True)
    tx, effects = worker.start(5, G2)
    assert worker.asked(effects) == {G2: (W2, Epoch(3))}  # what is missing has not changed since
    worker.machine.arrivals.groups[OP][G2].origin = Epoch(4)
    worker.fetched(tx, (G2,))
    worker.imported(G2, 4)  # while the transaction runs
    worker(TransactionApplied(tx))
    worker(ChangesDurable(tx))
    assert worker.held[G2].as_of == 5
    assert not worker.held[G2].is_partial
    _, effects = worker.start(6, G2)
    assert isinstance(effects[-1], ApplyTransaction)


def test_a_part_of_another_epoch_is_no_use() -> None:
    worker = Driver()
    worker(GroupsGranted((G2,), 5, W2, Arrival.KEY))
    worker.run(4, G2, partial=(G2,))
    tx, effects = worker.start(6, G2)
    assert LoadGroups(tx, (G2,), Epoch(5)) in effects  # from the store, all of it


def test_a_part_that_is_released_while_it_loads_stays_a_part() -> None:
    worker = Driver()
    worker(GroupsGranted((G2,), 5, W2, Arrival.KEY))
    tx, effects = worker.start(4, G2)
    assert isinstance(effects[-1], FetchGroups)
    worker(GroupsReleased((G2,), 6, W3))
    worker(GroupsFetched(tx, (FetchedPart(G2, 1, Epoch(3)),)))
    worker(TransactionApplied(tx))
    worker(ChangesDurable(tx))
    assert worker.held[G2].is_partial
    assert worker(GroupsGranted((G2,), 7, W3))[0] == DropGroups(OP, (G2,))
    assert worker.sources == {G2: W3}


def test_import_brings_what_no_transaction_has_asked_for() -> None:
    worker = Driver()
    worker(GroupsGranted((G2,), 5, W2))
    worker.imported(G2, 3)
    assert worker.held[G2] == HeldGroup(Epoch(3))
    late = PartOffered(OP, G0, 1, PartKind.BINS, Epoch(3), frozenset({0}))  # not awaited
    assert worker(late) == [DiscardPart(OP, G0, 1)]
    other = PartOffered("other", G2, 1, PartKind.BINS, Epoch(3), frozenset({0}))
    assert worker(other) == [DiscardPart("other", G2, 1)]
    assert G0 not in worker.held


def test_read_ahead_of_the_first_transaction() -> None:
    worker = Driver()
    worker(ReplicasChanged(OP, ((G0, Epoch(3)),)))
    _, effects = worker.start(4, G0)
    assert isinstance(effects[-1], ApplyTransaction)
    worker(ReplicasChanged(OP, ((G0, Epoch(9)),)))  # too late
    assert worker.held[G0].as_of == 3


def test_what_is_ready_is_applied_first() -> None:
    worker = Driver()
    worker.run(0, G0)
    worker(GroupsGranted((G2,), 5, W2, Arrival.GROUP, ready_first=True))
    tx, effects = worker.start(1, G0, G2)
    assert effects[-1] == ApplyTransaction(tx, (G0,))
    assert worker.asked(worker(TransactionApplied(tx))) == {G2: (W2, Epoch(0))}
    assert worker.fetched(tx)[0] == ApplyTransaction(tx, (G2,))
    assert worker(TransactionApplied(tx)) == [PersistChanges(tx)]


def test_what_has_come_while_others_were_applied_is_not_loaded() -> None:
    worker = Driver()
    worker.run(0, G0)
    worker(GroupsGranted((G2, G3), 5, W2, Arrival.GROUP, ready_first=True))
    tx, effects = worker.start(1, G0, G2, G3)
    assert effects[-1] == ApplyTransaction(tx, (G0,))
    worker.imported(G3, 0)
    assert worker(TransactionApplied(tx)) == [ApplyTransaction(tx, (G3,))]
    assert worker.asked(worker(TransactionApplied(tx))) == {G2: (W2, Epoch(0))}
    assert worker.fetched(tx)[0] == ApplyTransaction(tx, (G2,))
    assert worker(TransactionApplied(tx)) == [PersistChanges(tx)]


def test_what_has_come_as_of_another_epoch_is_loaded() -> None:
    worker = Driver()
    worker.run(0, G0)
    worker.run(1, G0)
    worker(GroupsGranted((G2,), 5, W2, Arrival.GROUP, ready_first=True))
    tx, _ = worker.start(2, G0, G2)
    worker.imported(G2, 0)
    assert worker(TransactionApplied(tx)) == [LoadGroups(tx, (G2,), Epoch(1))]


def test_a_lane_that_knows_nothing_of_a_grant_is_refused() -> None:
    """The owners may not have changed yet: to fetch the state would take it from its owner."""
    worker = Driver()
    worker(GroupsGranted((G2,), 7, W2))
    early = TransactionOpened(9, OP, Epoch(1), Epoch(0), Lane(0), 1, 9, (G0, G2), 6)
    (refused,) = worker(early)
    assert isinstance(refused, RefuseTransaction)
    assert isinstance(refused.error, ServiceUnavailable)
    tx = worker.open(1, G2, version=7)  # passed on by the source, which has given it away
    assert worker.asked(worker(RowsComplete(tx))) == {G2: (W2, Epoch(0))}


def test_a_grant_without_a_source_needs_no_lane_that_knows_of_it() -> None:
    worker = Driver()
    worker(GroupsGranted((G2,), 7))  # a new process, after a crash
    tx = worker.open(1, G2, version=6)
    assert worker(RowsComplete(tx))[-1] == LoadGroups(tx, (G2,), Epoch(0))


# --- release -----------------------------------------------------------------------------------


def test_what_runs_is_finished_what_comes_later_is_forwarded() -> None:
    worker = Driver()
    first, _ = worker.start(0, G0)
    second = worker.open(0, G0, G1)
    worker(GroupsReleased((G0,), 6, W3))
    worker(GroupsLoaded(first))
    worker(TransactionApplied(first))
    assert worker(ChangesDurable(first)) == [AnswerTransaction(first)]
    effects = worker(RowsComplete(second))  # key group 0 is cached, 1 is still owned
    assert effects[-1] == LoadGroups(second, (G1,), None)
    worker(GroupsLoaded(second))
    worker(TransactionApplied(second))
    assert worker(ChangesDurable(second)) == [AnswerTransaction(second)]
    third, effects = worker.start(1, G0)
    assert effects == [ForwardRows(third, (G0,), W3, 6)]
    assert worker.machine.transactions[third].phase is TxPhase.FORWARDING
    assert worker(RowsForwarded(third, W3)) == [AnswerTransaction(third)]


def test_own_part_and_forwarded_part() -> None:
    worker = Driver()
    worker(GroupsReleased((G0,), 6, W3))
    tx, effects = worker.start(0, G0, G1)
    assert effects == [
        ForwardRows(tx, (G0,), W3, 6),
        DropOutputs(OP, (G1,)),
        LoadGroups(tx, (G1,), None),
    ]
    worker(RowsForwarded(tx, W3))
    worker(GroupsLoaded(tx))
    worker(TransactionApplied(tx))
    assert worker(ChangesDurable(tx)) == [AnswerTransaction(tx)]


def test_a_forward_that_fails_fails_the_lane() -> None:
    worker = Driver()
    worker(GroupsReleased((G0,), 6, W3))
    tx, _ = worker.start(0, G0)
    assert worker(ForwardFailed(tx, W3, ERROR)) == [RefuseTransaction(tx, ERROR)]


def test_outputs_that_are_gone_are_not_answered() -> None:
    worker = Driver()
    worker.run(0, G0)
    tx, _ = worker.start(0, G0, G1)  # 0 is cached, 1 is loaded
    worker(GroupsReleased((G0,), 6, W3))
    worker(GroupsDropped((G0,)))
    worker(GroupsLoaded(tx))
    worker(TransactionApplied(tx))
    (refused,) = worker(ChangesDurable(tx))
    assert isinstance(refused, RefuseTransaction)
    assert isinstance(refused.error, ServiceUnavailable)


def test_forwarded_rows_of_a_definition_before() -> None:
    worker = Driver()
    worker(GroupsReleased((G0,), 6, W3))
    tx, _ = worker.start(0, G0)
    assert isinstance(worker(OperatorInstalled(OP))[0], RefuseTransaction)
    assert worker(RowsForwarded(tx, W3)) == []


def test_rows_that_come_after_a_clean_up_are_forwarded() -> None:
    worker = Driver()
    worker.run(0, G0)
    worker(GroupsReleased((G0,), 6, W3))
    assert new_owners(worker.machine) == {W3}
    assert worker(GroupsDropped((G0,), 5)) == []  # older than what is known
    assert worker(GroupsDropped((G0,), 7)) == [DropGroups(OP, (G0,))]
    assert new_owners(worker.machine) == set()
    tx, effects = worker.start(1, G0, G1)  # of a lane that asked before the owners changed
    assert effects[0] == ForwardRows(tx, (G0,), W3, 6)
    assert worker(GroupsDropped((G1,), 7)) == []  # owned


def test_rows_for_key_groups_that_were_never_here_are_refused() -> None:
    worker = Driver()
    (refused,) = worker(TransactionOpened(9, OP, Epoch(1), Epoch(0), Lane(0), 1, 9, (G2,), 1))
    assert isinstance(refused, RefuseTransaction)
    assert isinstance(refused.error, ServiceUnavailable)


def test_what_is_busy_is_dropped_at_its_end() -> None:
    worker = Driver()
    worker(ReplicasChanged(OP, ((G2, None),)))
    tx = worker.open(0, G2, is_shadow=True)
    assert worker(RowsComplete(tx)) == [ApplyTransaction(tx, (G2,))]
    assert worker(GroupsDropped((G2,))) == []
    assert worker(TransactionApplied(tx)) == [AnswerTransaction(tx), DropGroups(OP, (G2,))]


# --- shadows -----------------------------------------------------------------------------------


def test_shadows_bring_replicas_forward() -> None:
    worker = Driver()
    worker(ReplicasChanged(OP, ((G2, Epoch(0)),)))
    tx = worker.open(1, G0, G2, is_shadow=True)
    assert worker(RowsComplete(tx)) == [ApplyTransaction(tx, (G2,))]
    worker(ReplicasChanged(OP, ((G2, Epoch(0)),)))  # a copy that comes too late
    assert worker(TransactionApplied(tx)) == [AnswerTransaction(tx)]
    assert worker.held[G2] == HeldGroup(Epoch(1))
    late = worker.open(1, G2, is_shadow=True)
    assert worker(RowsComplete(late)) == [AnswerTransaction(late)]


def test_a_shadow_that_fails_leaves_the_replica() -> None:
    worker = Driver()
    worker(ReplicasChanged(OP, ((G2, None),)))
    tx = worker.open(0, G2, is_shadow=True)
    worker(RowsComplete(tx))
    assert worker(TransactionFailed(tx, ERROR)) == [RefuseTransaction(tx, ERROR)]
    assert worker.held[G2] == HeldGroup(None)


def test_a_shadow_does_not_replace_the_lane() -> None:
    worker = Driver()
    tx = worker.open(0, G0)
    shadow = replace(worker.machine.transactions[tx].opened, tx=9, attempt=9, is_shadow=True)
    assert worker(shadow) == []
    assert tx in worker.machine.transactions
