"""Whether a transaction may come in, and whether it has to wait: questions, no changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, EpochGap, ProtocolViolation, ServiceUnavailable
from anabranch.model.ids import KeyGroup
from anabranch.protocol.ownership import STORE
from anabranch.protocol.transactions import BUSY, HeldGroup, Tx, TxPhase
from anabranch.protocol.worker_messages import OperatorInstalled, TransactionOpened

if TYPE_CHECKING:
    from anabranch.protocol.worker import WorkerMachine


def open_error(machine: WorkerMachine, event: TransactionOpened) -> AnabranchError | None:
    """Why a transaction cannot be opened."""
    if event.operator not in machine.held:
        return ServiceUnavailable(
            f"Operator '{event.operator}' is not known to this worker yet; the lane asks again."
        )
    if event.base is not None and event.base >= event.epoch:
        return ProtocolViolation(f"{event} would apply its rows twice")
    return None if event.is_shadow else owner_error(machine, event)


def owner_error(machine: WorkerMachine, event: TransactionOpened) -> AnabranchError | None:
    """Why a transaction cannot run: key groups that were never here, or are ahead of it."""
    owners = machine.owners
    moved = [g for g in event.groups if not owners.is_owner(g) and g not in owners.released]
    if moved:
        return ServiceUnavailable(
            f"Key groups {moved[:4]} are not owned here; the lane asks for the new routing."
        )
    # Granted, but perhaps not flipped yet: to ask the source would make it let go too early.
    moving = [g for g in event.groups if machine.source_of(event.operator, g) not in (None, STORE)]
    ahead = [g for g in moving if owners.granted[g] > event.version]
    if ahead:
        return ServiceUnavailable(
            f"Key groups {ahead[:4]} may be on their way here; the lane asks for the new routing."
        )
    held = machine.held[event.operator]
    for group in event.groups:
        as_of = held[group].as_of if group in held else None
        if as_of is not None and as_of > event.epoch:
            return EpochGap(
                f"Batch {event.epoch} of operator '{event.operator}' has ended; its state is "
                f"at batch {as_of}. This task is late and its result is not used."
            )
    return None


def outputs_error(machine: WorkerMachine, tx: Tx) -> AnabranchError | None:
    """Why a transaction that waited for others cannot be answered: its own outputs are gone."""
    held = machine.held[tx.opened.operator]
    for group in tx.opened.groups:
        is_here = group in held and held[group].outputs_of == tx.opened.epoch
        if group not in tx.forwarded and not is_here:
            return ServiceUnavailable(
                f"Key group {group} moved away while the transaction waited; the lane asks again."
            )
    return None


def superseded(machine: WorkerMachine, event: TransactionOpened) -> list[Tx]:
    """Older attempts of the same lane that still receive rows: the newer one replaces them."""
    return [
        tx
        for tx in machine.transactions.values()
        if tx.phase is TxPhase.RECEIVING
        and tx.opened.operator == event.operator
        and tx.opened.lane == event.lane
        and tx.opened.lanes == event.lanes
        and tx.opened.epoch <= event.epoch
        and tx.opened.attempt < event.attempt
        and tx.opened.is_shadow == event.is_shadow
    ]


def is_blocked(machine: WorkerMachine, tx: Tx) -> bool:
    """Whether a transaction that runs shares a key group with this one."""
    wanted = set(tx.opened.groups)
    return any(
        other.phase in BUSY
        and other.opened.operator == tx.opened.operator
        and not wanted.isdisjoint(other.opened.groups)
        for other in machine.transactions.values()
    )


def answers(held: HeldGroup, tx: Tx, group: KeyGroup) -> bool:
    """Whether cached outputs are those of this transaction: same epoch, as many rows."""
    rows = tx.rows.get(group)
    return held.outputs_of == tx.opened.epoch and (rows is None or rows == held.rows)


def redefined(event: OperatorInstalled) -> AnabranchError:
    """What the lanes of transactions hear that were made for the definition before."""
    return ServiceUnavailable(
        f"Operator '{event.operator}' was defined again; the lane asks again."
    )


def replaced(event: TransactionOpened) -> AnabranchError:
    """What an older attempt of the same lane hears."""
    return ServiceUnavailable(
        f"Attempt {event.attempt} of lane {event.lane} in batch {event.epoch} replaced this one."
    )
