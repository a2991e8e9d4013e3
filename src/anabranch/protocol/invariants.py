"""Safety properties over the machines, checked after every simulated step.

Each is a function whose docstring says in one line why it matters; docs/protocol.md says why it
holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.protocol.coordinator import (
    STARTS_MAX,
    CoordinatorMachine,
    GrantLane,
    SendOrder,
    WorkerPhase,
    WriteManifest,
)
from anabranch.protocol.epochs import EpochPhase
from anabranch.protocol.residency import is_taken
from anabranch.protocol.residency_messages import Residency
from anabranch.protocol.residency_table import may_become
from anabranch.protocol.worker import BUSY, Tx, TxPhase, WorkerMachine
from anabranch.protocol.worker_messages import Event as WorkerEvent


class InvariantBroken(AssertionError):
    """A safety property does not hold: a bug in the protocol."""


def require(condition: bool, name: str, detail: object) -> None:
    """Raise what names a property that does not hold."""
    if not condition:
        raise InvariantBroken(f"{name}: {detail}")


# --- one worker --------------------------------------------------------------------------------


def one_writer(machine: WorkerMachine, busy: list[Tx]) -> None:
    """Two transactions on one key group at a time would overwrite each other's changes."""
    seen: set[tuple[str, int]] = set()
    if len(busy) > 1:
        for tx in busy:
            keys = {(tx.opened.operator, group) for group in tx.opened.groups}
            require(seen.isdisjoint(keys), "one_writer", tx)
            seen |= keys


def applies_on_base(machine: WorkerMachine, busy: list[Tx]) -> None:
    """Rows applied to any state but the base's would be lost or doubled."""
    for tx in busy:
        held, base = machine.held[tx.opened.operator], tx.opened.base
        for group in tx.fresh:
            here = held.get(group)
            if group in tx.loading:
                continue
            if here is None or here.as_of != base:
                raise InvariantBroken(f"applies_on_base: {tx} {group} {here}")
            if here.outputs_of is not None and not tx.opened.is_shadow:
                raise InvariantBroken(f"applies_on_base: {tx} {group} {here}")


def base_before_epoch(machine: WorkerMachine, busy: list[Tx]) -> None:
    """A base that contains the epoch would apply its rows twice."""
    for tx in machine.transactions.values():
        base = tx.opened.base
        if base is not None and base >= tx.opened.epoch:
            raise InvariantBroken(f"base_before_epoch: {tx}")


def busy_is_owned(machine: WorkerMachine, busy: list[Tx]) -> None:
    """A worker that changes key groups of others would fork their state."""
    owners = machine.owners
    for tx in busy:
        if tx.opened.is_shadow:
            continue
        for group in tx.fresh:
            # Released while it ran: what has begun is finished before the state is given away.
            if group not in owners.granted and owners.version(group) <= tx.granted[group]:
                raise InvariantBroken(f"busy_is_owned: {tx}")


def waiting_has_reason(machine: WorkerMachine, busy: list[Tx]) -> None:
    """A transaction that waits for nobody would wait forever."""
    for tx in machine.transactions.values():
        if tx.phase is TxPhase.WAITING:
            fits = any(
                other.opened.operator == tx.opened.operator
                and not set(tx.opened.groups).isdisjoint(other.opened.groups)
                for other in busy
            )
            require(fits, "waiting_has_reason", tx)


TRANSACTION_INVARIANTS: tuple[Callable[[WorkerMachine, list[Tx]], None], ...] = (
    one_writer,
    applies_on_base,
    base_before_epoch,
    busy_is_owned,
    waiting_has_reason,
)


IDLE_INVARIANTS = (base_before_epoch, waiting_has_reason)
"""Those that say something even if no transaction runs."""


def partial_has_source(machine: WorkerMachine) -> None:
    """A key group of which bins are missing would be taken for whole."""
    for operator, groups in machine.held.items():
        arriving = machine.arrivals.groups[operator]
        for group, held in groups.items():
            if held.is_partial and machine.owners.is_owner(group) and group not in arriving:
                raise InvariantBroken(f"partial_has_source: {operator} {group} {held}")


def arriving_is_owned(machine: WorkerMachine) -> None:
    """A key group that arrives without being owned would be fetched from its owner."""
    for operator, records in machine.arrivals.groups.items():
        for group, record in records.items():
            if not machine.owners.is_owner(group) or not record.missing:
                raise InvariantBroken(f"arriving_is_owned: {operator} {group} {record}")
            is_used = record.phase in (Residency.PARTIAL, Residency.STORED)
            if is_used and not _is_in_part(machine, operator, group):
                raise InvariantBroken(f"arriving_is_owned: {operator} {group} {record}")


def _is_in_part(machine: WorkerMachine, operator: str, group: KeyGroup) -> bool:
    """Whether a key group is known to be here in part, or a transaction is seeing to it."""
    held = machine.held[operator].get(group)
    return (held is not None and held.is_partial) or is_taken(machine, operator, group)


def residency_follows_table(
    before: Mapping[KeyGroup, Residency],
    event: type[WorkerEvent],
    after: Mapping[KeyGroup, Residency],
) -> None:
    """A change that nobody has thought of may leave a key group where nobody looks for it."""
    for group, was in before.items():
        if after[group] is not was and not may_become(was, event, after[group]):
            raise InvariantBroken(f"residency_follows_table: {group} {was} {event} {after[group]}")


def cache_is_current(machine: WorkerMachine) -> None:
    """Cached outputs of another epoch than the state would answer a retry with half the truth."""
    for operator, groups in machine.held.items():
        for group, held in groups.items():
            if held.outputs_of is not None and held.outputs_of != held.as_of:
                raise InvariantBroken(f"cache_is_current: {operator} {group} {held}")


def check_worker(machine: WorkerMachine) -> None:
    """All properties of one worker."""
    cache_is_current(machine)
    if any(machine.arrivals.groups.values()):
        partial_has_source(machine)
        arriving_is_owned(machine)
    if machine.transactions:
        busy = [tx for tx in machine.transactions.values() if tx.phase in BUSY]
        for invariant in TRANSACTION_INVARIANTS if busy else IDLE_INVARIANTS:
            invariant(machine, busy)


# --- the coordinator ---------------------------------------------------------------------------


def base_chain(machine: CoordinatorMachine) -> None:
    """An epoch that is not built on the one before it would forget or repeat a batch."""
    for operator in machine.operators.values():
        current = operator.current
        if current is None:
            continue
        again = current.epoch == operator.committed
        expected = operator.before_committed if again else operator.committed
        if operator.base != expected:
            raise InvariantBroken(f"base_chain: {operator}")


def commit_is_complete(machine: CoordinatorMachine) -> None:
    """A manifest with a lane missing would lose that lane's rows for good."""
    for operator in machine.operators.values():
        for execution in operator.executions.values():
            if execution.phase is not EpochPhase.RUNNING:
                require(execution.is_complete, "commit_is_complete", operator)


def waiters_are_served(machine: CoordinatorMachine) -> None:
    """A finish that waits for a commit that nobody writes would wait forever."""
    for operator in machine.operators.values():
        if operator.waiting_commit:
            require(operator.writing is not None, "waiters_are_served", operator)


def parked_has_reason(machine: CoordinatorMachine) -> None:
    """A lane that is parked while nothing is awaited would wait forever."""
    groups = len(machine.routing.owners)
    for event in machine.parked:
        if machine.gate is not None and machine.gate.holds(event, groups):
            continue
        if machine.operators[event.operator].writing is not None:
            continue
        owners = machine.routing.by_owner(range(event.lane, groups, event.lanes))
        coming = (WorkerPhase.STARTING, WorkerPhase.WAITING)
        awaited = machine.missing.get(event.request)
        awaiting = owners if awaited is None else owners.keys() & {awaited}
        fits = any(machine.workers[w].phase in coming for w in awaiting)
        require(fits, "parked_has_reason", event)


def given_up_in_time(machine: CoordinatorMachine) -> None:
    """A worker that never starts must end in an error that people see, not in an endless loop."""
    for worker, view in machine.workers.items():
        if (view.phase is WorkerPhase.FAILED) != (view.failed_starts >= STARTS_MAX):
            raise InvariantBroken(f"given_up_in_time: {worker} {view}")


def owners_are_known(machine: CoordinatorMachine) -> None:
    """A key group whose owner nobody starts would have no owner at all."""
    workers = machine.workers
    for owner in machine.routing.owners:
        if owner not in workers:
            raise InvariantBroken(f"owners_are_known: {owner}")


def gate_has_reason(machine: CoordinatorMachine) -> None:
    """A gate, or shadow rows, that outlive their reconfiguration would stay for good."""
    if machine.gate is not None or machine.shadows:
        require(machine.moves.current is not None, "gate_has_reason", machine.gate)


def idle_is_quiet(machine: CoordinatorMachine) -> None:
    """A move that takes a batch that runs for none would not give it the strategy's protection."""
    if machine.idle is not None:
        in_batch = [name for name, o in machine.operators.items() if o.is_in_batch]
        require(not in_batch, "idle_is_quiet", in_batch)


BATCH_INVARIANTS: tuple[Callable[[CoordinatorMachine], None], ...] = (
    base_chain,
    commit_is_complete,
    waiters_are_served,
    parked_has_reason,
    idle_is_quiet,
)
"""Those that say something about batches."""

COORDINATOR_INVARIANTS: tuple[Callable[[CoordinatorMachine], None], ...] = (
    *BATCH_INVARIANTS,
    given_up_in_time,
    owners_are_known,
    gate_has_reason,
)


def check_coordinator(machine: CoordinatorMachine, only_batches: bool = False) -> None:
    """All properties of the coordinator; or those that an event of a batch can break."""
    for invariant in BATCH_INVARIANTS if only_batches else COORDINATOR_INVARIANTS:
        invariant(machine)


# --- both --------------------------------------------------------------------------------------


def check_grant(machine: CoordinatorMachine, grant: GrantLane) -> None:
    """Rows sent to a worker that is not the owner or not up would reach nobody, or a zombie."""
    for worker, groups in grant.owners.items():
        view = machine.workers[worker]
        fits = view.phase is WorkerPhase.UP and view.incarnation == grant.incarnations[worker]
        require(fits, "grant_at_worker_up", (grant, view))
        owned = all(machine.routing.owner(group) == worker for group in groups)
        require(owned, "grant_at_owner", grant)
    for worker, relay in grant.relays.items():
        found = machine.workers.get(relay)  # None: it was stopped in the same step
        fits = relay != worker and (found is None or found.phase is WorkerPhase.UP)
        require(fits and worker in grant.owners, "relay_is_up", grant)


def check_manifest(effect: WriteManifest, groups: int) -> None:
    """A key group that a manifest lists twice or never would be doubled or lost in a restore."""
    listed = Counter(group for report in effect.transactions for group in report.groups)
    fits = listed == Counter(range(groups))
    require(fits, "manifest_covers_groups", (effect.epoch, sorted(listed.items())))


def check_first_grant(machine: CoordinatorMachine, sent: SendOrder) -> None:
    """A process that is granted other key groups than routing gives it would be a second owner."""
    owned = machine.routing.groups_of(sent.worker)
    fits = sent.order.groups == owned and sent.order.version == machine.routing.version
    require(fits, "granted_is_routed", (sent, owned))


def check_told(grant: GrantLane, worker: WorkerId, machine: WorkerMachine) -> None:
    """A lane that is sent to an owner which does not know that it is one would be refused."""
    fits = machine.granted.keys() >= set(grant.owners[worker])
    require(fits, "owner_was_told", (worker, grant, machine.granted))


def check_owners(machines: Mapping[WorkerId, WorkerMachine]) -> None:
    """Two workers that own a key group at the same version would both go on with its state."""
    seen: dict[tuple[int, int], WorkerId] = {}
    for worker, machine in machines.items():
        for group, version in machine.granted.items():
            other = seen.setdefault((group, version), worker)
            require(other == worker, "one_owner", (group, version, other, worker))


def check_pair(
    coordinator: CoordinatorMachine, worker: WorkerId, incarnation: int, machine: WorkerMachine
) -> None:
    """State of an epoch that is neither committed nor running would be used by mistake."""
    view = coordinator.workers.get(worker)
    if view is None or view.incarnation != incarnation:
        return  # replaced: what it writes counts only if a lane reports it in time
    for name, groups in machine.held.items():
        operator = coordinator.operators[name]
        # Not the current epoch: a straggler may be the first to begin after a registration.
        latest = operator.first if operator.committed is None else operator.committed + 1
        if latest is None:
            continue
        for group, held in groups.items():
            if held.as_of is not None and held.as_of > latest:
                raise InvariantBroken(f"held_is_known: {worker} {group} {held} {operator}")


@dataclass(slots=True)
class History:
    """Every epoch that was ever written with the base that it was built on."""

    bases: dict[tuple[str, Epoch], Epoch | None] = field(default_factory=dict)

    def check(self, effect: WriteManifest) -> None:
        """An epoch written again on another base would change what it means."""
        key = (effect.operator, effect.epoch)
        known = self.bases.setdefault(key, effect.base)
        require(known == effect.base, "epoch_keeps_meaning", (effect.epoch, known, effect.base))
