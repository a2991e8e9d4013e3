"""What of a key group is in a worker's memory, and how the rest of it gets there.

A key group of an operator that is owned here while something of it is elsewhere *arrives*: it has
an `ArrivingGroup`, which says who has the rest (a worker, or the store), which bins are missing,
and as of which epoch they are there. Three parties bring something:

    a transaction    takes its key groups: nothing else is put in place until they are loaded
    an import        receives parts from the source worker and offers them
    the store        is read in the background; what was read is offered

An offer is installed when no transaction has taken the key group, and discarded when it does not
fit what is here. Whatever fails is read from the store: it has everything, as of every epoch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from anabranch.errors import ProtocolViolation
from anabranch.migration.steps import Arrival
from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.protocol.arrivals import Activity, ArrivingGroup
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.ownership import STORE
from anabranch.protocol.residency_messages import (
    AdoptPart,
    DeferralCandidate,
    DeferralChosen,
    DiscardPart,
    ForgetParts,
    GroupsEvicted,
    GroupsFetched,
    GroupsLoaded,
    ImportBegan,
    ImportEnded,
    InstallPart,
    LoadGroups,
    PartFailed,
    PartInstalled,
    PartKind,
    PartOffered,
    PartReceiving,
    ReceivingEnded,
    ReplicasChanged,
    Residency,
    SourceRequest,
)
from anabranch.protocol.transactions import HeldGroup, Tx, TxPhase
from anabranch.protocol.worker_messages import DropGroups, Effect, GroupsGranted

if TYPE_CHECKING:
    from anabranch.protocol.worker import WorkerMachine


# --- questions ---------------------------------------------------------------------------------


def residency_of(machine: WorkerMachine, operator: str, group: KeyGroup) -> Residency:
    """How much of a key group is here."""
    record = machine.arrivals.find(operator, group)
    if record is not None:
        return record.phase
    if group not in machine.held.get(operator, {}):
        return Residency.ABSENT
    if machine.owners.is_owner(group):
        return Residency.HELD
    return Residency.FROZEN if group in machine.owners.released else Residency.REPLICA


def is_taken(machine: WorkerMachine, operator: str, group: KeyGroup) -> bool:
    """Whether a transaction is bringing a key group here, or looking at it."""
    return any(
        tx.phase in (TxPhase.CHOOSING, TxPhase.FETCHING, TxPhase.LOADING)
        and tx.opened.operator == operator
        and group in tx.loading
        for tx in machine.transactions.values()
    )


def is_needed(machine: WorkerMachine, operator: str, group: KeyGroup, session: int) -> bool:
    """Whether an import should hurry: a transaction waits for it, or nobody wants it any more."""
    record = machine.arrivals.find(operator, group)
    if record is None or record.session != session:
        return True
    return any(
        tx.phase is TxPhase.AWAITING and tx.opened.operator == operator and group in tx.loading
        for tx in machine.transactions.values()
    )


def importable(
    machine: WorkerMachine, groups: Iterable[KeyGroup], version: int
) -> list[tuple[str, SourceRequest]]:
    """What an import may ask for, over all operators.

    Not what was granted after its version: lanes perhaps do not come here for it yet, and its
    source lets go of what it is asked for.
    """
    return [
        (operator, request_of(machine, operator, group, None))
        for operator, records in machine.arrivals.groups.items()
        for group in groups
        if (record := records.get(group)) is not None
        and record.source != STORE
        and record.version <= version
        and not record.is_broken
    ]


def in_store(machine: WorkerMachine) -> list[tuple[str, KeyGroup, ArrivingGroup]]:
    """Key groups whose rest is in the store, and can be read in the background."""
    return [
        (operator, group, record)
        for operator, records in machine.arrivals.groups.items()
        for group, record in records.items()
        if record.phase is Residency.STORED and not record.is_broken
    ]


def may_evict(machine: WorkerMachine, operator: str, group: KeyGroup, epoch: Epoch) -> bool:
    """Whether bins of a key group may leave memory: between transactions, as the store has it."""
    here = machine.held.get(operator, {}).get(group)
    record = machine.arrivals.find(operator, group)
    is_whole = record is None
    is_stored = record is not None and record.phase is Residency.STORED
    return (
        here is not None
        and here.as_of == epoch
        and machine.owners.is_owner(group)
        and not machine.is_busy(operator, group)
        and (is_whole or (is_stored and record is not None and _is_free(record)))
    )


def _is_free(record: ArrivingGroup) -> bool:
    return record.activity is not Activity.INSTALLING and not record.is_broken


def request_of(
    machine: WorkerMachine, operator: str, group: KeyGroup, base: Epoch | None
) -> SourceRequest:
    """What is to be asked of the source; an import takes whatever epoch it has."""
    record = machine.arrivals.groups[operator][group]
    held = machine.held[operator].get(group)
    is_here = record.phase is not Residency.AWAITED
    replica = None
    if record.replica is not None and not is_here and held is not None and not held.is_partial:
        replica = record.replica, held.as_of
    return SourceRequest(
        group,
        record.source,
        record.version,
        record.session,
        record.origin if is_here else base,
        record.phase,
        tuple(sorted(record.missing)),
        record.arrival,
        replica,
    )


# --- ownership ---------------------------------------------------------------------------------


def granted(machine: WorkerMachine, event: GroupsGranted) -> list[Effect]:
    """Own key groups; where a worker has their state, they begin to arrive."""
    owners = machine.owners
    new = owners.grant(event)
    effects = end_arrivals(machine, new)
    # What is here in part belongs to a source of an earlier move.
    effects += machine.drop(tuple(new), only_partial=True)
    machine.arrivals.ended += [(operator, group) for operator in machine.held for group in new]
    if event.source is None:
        return effects
    for operator, held in machine.held.items():
        for group in new:
            record = machine.arrivals.add(operator, group, event.source, event.version)
            record.arrival = event.arrival
            here = held.get(group)
            if here is not None and here.replica is not None:
                record.replica = here.replica if here.replica.source == event.source else None
    return effects


def end_arrivals(machine: WorkerMachine, groups: Collection[KeyGroup]) -> list[Effect]:
    """Nobody waits for these key groups any more: they are granted anew, or belong to others."""
    effects: list[Effect] = []
    for operator, records in machine.arrivals.groups.items():
        # A delta that is being put in place changes the replica, which would lie about its epoch.
        spoilt = [g for g in groups if g in records and _changes_replica(records[g])]
        for group in groups:
            machine.arrivals.end(operator, group)
        for group in spoilt:
            del machine.held[operator][group]
        if spoilt:
            effects.append(DropGroups(operator, tuple(spoilt)))
    return effects


def _changes_replica(record: ArrivingGroup) -> bool:
    return record.offer is not None and record.offer.kind is PartKind.DELTA


def forgotten(machine: WorkerMachine) -> list[Effect]:
    """What was known of key groups that arrive no longer is void."""
    groups: dict[str, list[KeyGroup]] = {}
    for operator, group in machine.arrivals.ended:
        groups.setdefault(operator, []).append(group)
    machine.arrivals.ended.clear()
    return [ForgetParts(operator, tuple(some)) for operator, some in groups.items()]


def copied(machine: WorkerMachine, event: ReplicasChanged) -> None:
    """Key groups were copied, caught up, or read ahead of the first transaction."""
    held = machine.held.get(event.operator)
    if held is None:
        return
    for group, as_of in event.groups:
        is_absent = group not in held and machine.arrivals.find(event.operator, group) is None
        is_wanted = not machine.owners.is_owner(group) or is_absent
        if is_wanted and not machine.is_busy(event.operator, group):
            held[group] = HeldGroup(as_of, replica=event.origin)


# --- for a transaction -------------------------------------------------------------------------


def prepare(machine: WorkerMachine, tx: Tx) -> None:
    """A transaction starts: what is here and cannot be brought to its base is void."""
    operator, held = tx.opened.operator, machine.held[tx.opened.operator]
    records = machine.arrivals.groups[operator]
    for group in tx.fresh:
        here = held.get(group)
        if here is None:
            continue
        here.outputs_of = None
        if here.as_of != tx.opened.base and (here.is_partial or group not in records):
            # Not even a part or an older replica that could be completed.
            del held[group]
            machine.arrivals.end(operator, group)


def awaited(machine: WorkerMachine, tx: Tx) -> tuple[KeyGroup, ...]:
    """What of the things that a transaction needs is coming in: it waits for it, within limits."""
    records = machine.arrivals.groups[tx.opened.operator]
    coming = (group for group in tx.loading if group in records)
    return tuple(group for group in coming if _is_awaited(records[group], tx))


def _is_awaited(record: ArrivingGroup, tx: Tx) -> bool:
    if record.activity is Activity.INSTALLING:
        return True
    if record.is_broken:
        return False  # no import brings it any more
    is_coming = _is_blocking(record) or record.activity is Activity.RECEIVING
    return is_coming and not tx.is_impatient


def _is_blocking(record: ArrivingGroup) -> bool:
    return record.arrival is Arrival.BLOCK and record.is_importing


def progress(machine: WorkerMachine, tx: Tx) -> dict[KeyGroup, tuple[int, int]]:
    """How much has come of what a transaction awaits: where it waits for the turn of its key
    group, of all that comes from this source; else of the key group itself."""
    records = machine.arrivals.groups[tx.opened.operator]
    found = {group: records[group] for group in awaited(machine, tx)}
    pieces = machine.arrivals.pieces
    return {
        group: (record.session, pieces[record.source] if _is_blocking(record) else record.pieces)
        for group, record in found.items()
    }


def candidates(machine: WorkerMachine, tx: Tx) -> tuple[DeferralCandidate, ...]:
    """Key groups whose rows may wait instead of their state being brought now."""
    found = []
    for group in tx.loading:
        record = machine.arrivals.find(tx.opened.operator, group)
        if record is None:
            found.append(DeferralCandidate(group, STORE, Residency.ABSENT, False))
        elif _is_free(record) and not _is_stale(record, tx):
            # Of a replica only a delta is missing, of what the store has only cold keys.
            is_near = record.replica is not None or record.source == STORE
            found.append(DeferralCandidate(group, record.source, record.phase, is_near))
    return tuple(found)


def _is_stale(record: ArrivingGroup, tx: Tx) -> bool:
    """Whether an import has brought something that is not as of the transaction's base."""
    return record.phase is Residency.STAGED and record.origin != tx.opened.base


def staged(machine: WorkerMachine, tx: Tx) -> dict[KeyGroup, int]:
    """Sessions of what imports have staged of a transaction's key groups."""
    records = machine.arrivals.groups[tx.opened.operator]
    found = {group: records[group] for group in tx.loading if group in records}
    return {g: r.session for g, r in found.items() if r.phase is Residency.STAGED}


def deferred(machine: WorkerMachine, tx: Tx, event: DeferralChosen) -> list[Effect]:
    """Rows of some key groups wait: what is here of these, perhaps nothing, is enough."""
    operator, base = tx.opened.operator, tx.opened.base
    effects: list[Effect] = []
    # Without its record, what was staged cannot be taken over: it is brought another way.
    now = staged(machine, tx)
    gone = {group for group, session in tx.staged.items() if now.get(group) != session}
    chosen = [group for group in event.groups if group not in gone]
    for group in chosen:
        record = machine.arrivals.find(operator, group)
        if record is not None and record.phase is Residency.STAGED:
            effects.append(AdoptPart(operator, group))
        if record is None and machine.owners.is_owner(group):
            record = machine.arrivals.add(operator, group, STORE, tx.granted[group])
            record.phase, record.origin = Residency.STORED, base
        elif record is not None and record.phase in (Residency.AWAITED, Residency.STAGED):
            record.phase, record.origin, record.replica = Residency.PARTIAL, base, None
        machine.held[operator][group] = HeldGroup(base, is_partial=True)
    tx.loading = tuple(group for group in tx.loading if group not in chosen)
    return effects


def requests(machine: WorkerMachine, tx: Tx) -> tuple[tuple[SourceRequest, ...], list[Effect]]:
    """What a transaction asks of source workers, after it has taken its key groups."""
    operator, records = tx.opened.operator, machine.arrivals.groups[tx.opened.operator]
    found: list[SourceRequest] = []
    effects: list[Effect] = []
    for group in tx.loading:
        record = records.get(group)
        if record is None or record.source == STORE:
            continue
        if record.is_broken or _is_stale(record, tx):
            machine.arrivals.end(operator, group)
            machine.held[operator].pop(group, None)
            continue
        found.append(request_of(machine, operator, group, tx.opened.base))
        if record.phase is Residency.STAGED:
            record.phase = Residency.PARTIAL
            effects.append(AdoptPart(operator, group))
    return tuple(found), effects


def fetched(machine: WorkerMachine, tx: Tx, event: GroupsFetched) -> None:
    """Sources have answered: with all, with what was asked for, or not at all."""
    operator = tx.opened.operator
    held, records = machine.held[operator], machine.arrivals.groups[operator]
    for part in event.parts:
        record = records.get(part.group)
        # Without a record: granted anew or released meanwhile. What came is as of the base.
        if record is not None and record.session == part.session:
            record.missing.difference_update(
                range(machine.arrivals.bins) if part.is_whole else part.bins
            )
            record.origin, record.replica = part.as_of, None
            record.phase = Residency.PARTIAL
            if not record.missing:
                machine.arrivals.end(operator, part.group)
        else:
            machine.arrivals.ended.append((operator, part.group))
        is_partial = not part.is_whole and (record is None or bool(record.missing))
        held[part.group] = HeldGroup(tx.opened.base, is_partial=is_partial)
    arrived = {part.group for part in event.parts}
    for group in tx.requested:
        if group in arrived:
            continue
        record = records.get(group)
        is_usable = record is not None and record.phase is Residency.PARTIAL
        if record is not None and is_usable and group not in event.broken:
            # No transaction has touched what is missing: any later epoch of the store has it.
            _turn_to_store(machine, record)
        else:
            machine.arrivals.end(operator, group)
            held.pop(group, None)
    tx.loading = tuple(group for group in tx.loading if group not in arrived)


def _turn_to_store(machine: WorkerMachine, record: ArrivingGroup) -> None:
    machine.arrivals.sessions += 1
    record.source, record.session = STORE, machine.arrivals.sessions
    record.phase, record.arrival = Residency.STORED, Arrival.KEY
    record.activity, record.is_importing = Activity.IDLE, False


def read(machine: WorkerMachine, tx: Tx) -> Effect:
    """What is left comes from the store: whole key groups, or the rest of those partly here."""
    records = machine.arrivals.groups[tx.opened.operator]
    parts = {
        group: tuple(sorted(record.missing))
        for group in tx.loading
        if (record := records.get(group)) is not None
        and record.phase is Residency.STORED
        and not record.is_broken
    }
    whole = tuple(group for group in tx.loading if group not in parts)
    return LoadGroups(tx.opened.tx, whole, tx.opened.base, tuple(parts.items()))


def loaded(machine: WorkerMachine, tx: Tx, event: GroupsLoaded) -> None:
    """A transaction has what it needs of its key groups; the rest of some is in the store."""
    operator, owners = tx.opened.operator, machine.owners
    records, stored = machine.arrivals.groups[operator], dict(event.stored)
    for group in tx.loading:
        missing = stored.get(group)
        if missing and owners.is_owner(group):
            record = records.get(group)
            if record is None or record.phase is not Residency.STORED or record.is_broken:
                # Even if granted anew meanwhile: what is here is as of the base.
                record = machine.arrivals.add(operator, group, STORE, owners.granted[group])
                record.phase = Residency.STORED
            record.missing, record.origin = set(missing), tx.opened.base
        else:
            machine.arrivals.end(operator, group)
        machine.held[operator][group] = HeldGroup(tx.opened.base, is_partial=bool(missing))
    tx.loading = ()


def not_loaded(machine: WorkerMachine, tx: Tx) -> None:
    """What could not be loaded is not here."""
    for group in tx.loading:
        machine.held[tx.opened.operator].pop(group, None)
        machine.arrivals.groups[tx.opened.operator].pop(group, None)


# --- imports and the store, beside transactions ------------------------------------------------


def import_changed(machine: WorkerMachine, event: ImportBegan | ImportEnded) -> None:
    """An import begins or ends."""
    for records in machine.arrivals.groups.values():
        for group in event.groups:
            record = records.get(group)
            if record is None or record.source == STORE:
                continue
            record.is_importing = isinstance(event, ImportBegan) and record.version <= event.version


def receiving_changed(machine: WorkerMachine, event: PartReceiving | ReceivingEnded) -> None:
    """Pieces of key groups come in, or do no longer."""
    for group, session in event.groups:
        record = machine.arrivals.find(event.operator, group)
        if record is None or record.session != session:
            continue
        if record.activity is not Activity.INSTALLING:
            is_coming = isinstance(event, PartReceiving)
            record.activity = Activity.RECEIVING if is_coming else Activity.IDLE
            record.pieces += is_coming
            machine.arrivals.pieces[record.source] += is_coming


def offered(machine: WorkerMachine) -> list[Effect]:
    """Decide about offers whose key group nobody has taken."""
    effects: list[Effect] = []
    offers, machine.arrivals.offers = machine.arrivals.offers, []
    for offer in offers:
        record = machine.arrivals.current(offer)
        if record is None or record.is_broken:
            effects.append(DiscardPart(offer.operator, offer.group, offer.session))
        elif _must_wait(machine, record, offer):
            machine.arrivals.offers.append(offer)
        elif _fits(machine, record, offer):
            record.activity, record.offer = Activity.INSTALLING, offer
            is_staged = record.phase in (Residency.AWAITED, Residency.STAGED)
            effects.append(InstallPart(offer.operator, offer.group, offer.session, is_staged))
        else:
            record.activity = Activity.IDLE
            effects.append(DiscardPart(offer.operator, offer.group, offer.session))
    return effects


def _must_wait(machine: WorkerMachine, record: ArrivingGroup, offer: PartOffered) -> bool:
    if record.activity is Activity.INSTALLING or is_taken(machine, offer.operator, offer.group):
        return True
    # A shadow that began before the grant would come on top of what is brought.
    if machine.is_busy(offer.operator, offer.group, shadows=True):
        return True
    # Granted anew under a transaction: it works on what was here, which the part would replace.
    is_used = record.phase in (Residency.PARTIAL, Residency.STORED)
    return not is_used and machine.works_on(offer.operator, offer.group)


def _fits(machine: WorkerMachine, record: ArrivingGroup, offer: PartOffered) -> bool:
    """Whether a part continues what is here."""
    held = machine.held[offer.operator].get(offer.group)
    match offer.kind:
        case PartKind.BINS:
            is_first = record.phase is Residency.AWAITED
            return (is_first or offer.as_of == record.origin) and bool(
                record.missing.intersection(offer.bins)
            )
        case PartKind.DELTA:
            is_same = held is not None and held.as_of == offer.since and not held.is_partial
            return record.phase is Residency.AWAITED and record.replica is not None and is_same
        case PartKind.WHOLE:
            return record.phase in (Residency.AWAITED, Residency.STAGED) and not _is_before(
                offer.as_of, record.origin
            )
        case PartKind.REST:
            is_used = record.phase in (Residency.PARTIAL, Residency.STORED)
            is_missing = record.missing.issuperset(offer.bins) and bool(offer.bins)
            return is_used and is_missing and not _is_before(offer.as_of, record.origin)
        case _:
            unhandled(offer.kind)


def _is_before(epoch: Epoch | None, other: Epoch | None) -> bool:
    return (-1 if epoch is None else epoch) < (-1 if other is None else other)


def installed(machine: WorkerMachine, event: PartInstalled | PartFailed) -> list[Effect]:
    """A part is in place; perhaps nothing is missing any more."""
    record = machine.arrivals.current(event)
    if record is None:
        return []  # granted anew, released or dropped meanwhile
    offer, record.offer = record.offer, None
    if record.activity is not Activity.INSTALLING or offer is None:
        raise ProtocolViolation(f"{event}: nothing was to be installed")
    record.activity = Activity.IDLE
    if isinstance(event, PartFailed):
        return _broken(machine, event, record, offer)
    is_whole = offer.kind in (PartKind.DELTA, PartKind.WHOLE)
    record.missing.difference_update(range(machine.arrivals.bins) if is_whole else offer.bins)
    if record.phase in (Residency.AWAITED, Residency.STAGED):
        record.phase, record.origin, record.replica = Residency.STAGED, offer.as_of, None
    return [] if record.missing else _settled(machine, event, record)


def _broken(
    machine: WorkerMachine, event: PartFailed, record: ArrivingGroup, offer: PartOffered
) -> list[Effect]:
    """Who knows what is in there: the next transaction takes all of it from the store."""
    record.is_broken = True
    if record.phase is Residency.STAGED:
        record.phase = Residency.AWAITED
    if record.phase is Residency.AWAITED:
        machine.arrivals.ended.append((event.operator, event.group))
    if offer.kind is not PartKind.DELTA:
        return []
    # The replica itself was changed: released, it would pass for the state as of its epoch.
    del machine.held[event.operator][event.group]
    return [DropGroups(event.operator, (event.group,))]


def _settled(machine: WorkerMachine, event: PartInstalled, record: ArrivingGroup) -> list[Effect]:
    """All of it is here: its source is not needed any more."""
    held = machine.held[event.operator]
    machine.arrivals.end(event.operator, event.group)
    if record.phase is Residency.STAGED:
        held[event.group] = HeldGroup(record.origin)
        return [AdoptPart(event.operator, event.group)]
    held[event.group].is_partial = False
    return []


def evicted(machine: WorkerMachine, event: GroupsEvicted) -> None:
    """Bins of key groups are in the store only, from now on."""
    for group, bins in event.groups:
        if not may_evict(machine, event.operator, group, event.as_of):
            raise ProtocolViolation(f"{event}: key group {group} is not held, not owned, or in use")
        record = machine.arrivals.find(event.operator, group)
        missing = set(bins)
        if record is not None:
            missing |= record.missing
        version = machine.owners.granted[group]
        # A new arrival: what was read before is not all that is missing now.
        record = machine.arrivals.add(event.operator, group, STORE, version)
        record.phase, record.missing, record.origin = Residency.STORED, missing, event.as_of
        machine.held[event.operator][group].is_partial = True


def new_owners(machine: WorkerMachine) -> set[WorkerId]:
    """Of key groups that were given away and whose state is still here."""
    owners = machine.owners
    here = {g for held in machine.held.values() for g in held if g in owners.released}
    return set(owners.new_owners(here))


def sources(machine: WorkerMachine) -> set[WorkerId]:
    """Workers that are still needed: they have something that arrives, or was copied, here."""
    records = (r for some in machine.arrivals.groups.values() for r in some.values())
    coming = {record.source for record in records if record.source != STORE}
    held = (h for some in machine.held.values() for h in some.values())
    return coming | {each.replica.source for each in held if each.replica is not None}
