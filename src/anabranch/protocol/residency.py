"""How much of a key group is in memory: what has come, and what was left to the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import ProtocolViolation
from anabranch.model.ids import WorkerId
from anabranch.protocol.ownership import STORE
from anabranch.protocol.transactions import HeldGroup, Tx
from anabranch.protocol.worker_messages import (
    GroupsEvicted,
    GroupsImported,
    GroupsLoaded,
    ReplicasChanged,
)

if TYPE_CHECKING:
    from anabranch.protocol.worker import WorkerMachine


def arrived(machine: WorkerMachine, event: ReplicasChanged | GroupsImported) -> None:
    """Key groups were copied, or are complete."""
    held, owners = machine.held.get(event.operator), machine.owners
    if held is None:
        return
    for group, as_of in event.groups:
        here, is_busy = held.get(group), machine.is_busy(event.operator, group)
        if isinstance(event, ReplicasChanged):
            is_awaited = group in owners.sources[event.operator]
            is_wanted = not owners.is_owner(group) or is_awaited
            # Owned and absent: loaded ahead of the first transaction.
            if (is_wanted or here is None) and not is_busy:
                held[group] = HeldGroup(as_of)
        elif group in owners.sources[event.operator]:
            owners.settled(event.operator, group)
            if here is not None and here.is_partial:
                here.is_partial = False
            elif not is_busy or machine.is_put_off(event.operator, group):
                held[group] = HeldGroup(as_of)


def loaded(machine: WorkerMachine, tx: Tx, event: GroupsLoaded) -> None:
    """A transaction has what it needs of its key groups, perhaps not all."""
    operator, owners = tx.opened.operator, machine.owners
    sources = owners.sources[operator]
    for group in tx.loading:
        if group in event.stored and owners.is_owner(group):
            sources[group] = STORE  # even if granted anew meanwhile: what is here is as of the base
        # Without a source an import has brought the rest, unless it was released meanwhile.
        is_here = owners.is_owner(group) and group not in sources
        is_partial = group in event.partial and not is_here
        machine.held[operator][group] = HeldGroup(tx.opened.base, is_partial=is_partial)
        if not is_partial:
            owners.settled(operator, group)


def evicted(machine: WorkerMachine, event: GroupsEvicted) -> None:
    """Parts of key groups are in the store only, from now on."""
    held, owners = machine.held.get(event.operator, {}), machine.owners
    for group in event.groups:
        here = held.get(group)
        source = owners.sources.get(event.operator, {}).get(group, STORE)
        is_free = owners.is_owner(group) and not machine.is_busy(event.operator, group)
        if here is None or not is_free or source != STORE:
            raise ProtocolViolation(f"{event}: key group {group} is not held, not owned, or in use")
        here.is_partial = True
        owners.sources[event.operator][group] = STORE


def new_owners(machine: WorkerMachine) -> set[WorkerId]:
    """Of key groups that were given away and whose state is still here."""
    owners = machine.owners
    here = {g for held in machine.held.values() for g in held if g in owners.released}
    return set(owners.new_owners(here))
