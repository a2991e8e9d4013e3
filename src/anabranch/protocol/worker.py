"""A worker's decisions: which transactions run, in which order, from which state, what is answered.

The state of an operator's key group is ABSENT or HELD "as of" an epoch. A transaction of epoch e
with base b wants every one of its key groups as of b:

    as of b                          apply
    as of e, outputs still cached    answer from the cache: a retry changes nothing
    anything else                    load as of b from the store, then apply

Transactions that share a key group run one after the other, so the second attempt of a lane finds
the outputs of the first. Ownership is checked when a transaction starts to run, never inside one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from anabranch.errors import (
    AnabranchError,
    EpochGap,
    ProtocolViolation,
    ServiceUnavailable,
)
from anabranch.model.ids import Epoch, KeyGroup
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.worker_messages import (
    AnswerTransaction,
    ApplyTransaction,
    ChangesDurable,
    DropOperator,
    DropOutputs,
    Effect,
    Event,
    GroupsGranted,
    GroupsLoaded,
    LaneGone,
    LoadGroups,
    OperatorInstalled,
    PersistChanges,
    RefuseTransaction,
    RowsComplete,
    TransactionApplied,
    TransactionFailed,
    TransactionOpened,
)

__all__ = [
    "BUSY",
    "TRANSITIONS",
    "AnswerTransaction",
    "ApplyTransaction",
    "ChangesDurable",
    "DropOperator",
    "DropOutputs",
    "Effect",
    "Event",
    "GroupsGranted",
    "GroupsLoaded",
    "HeldGroup",
    "LaneGone",
    "LoadGroups",
    "OperatorInstalled",
    "PersistChanges",
    "RefuseTransaction",
    "RowsComplete",
    "TransactionApplied",
    "TransactionFailed",
    "TransactionOpened",
    "Tx",
    "TxPhase",
    "WorkerMachine",
]


class TxPhase(Enum):
    """How far a transaction has come."""

    RECEIVING = "receiving"
    WAITING = "waiting"
    LOADING = "loading"
    APPLYING = "applying"
    PERSISTING = "persisting"


BUSY = (TxPhase.LOADING, TxPhase.APPLYING, TxPhase.PERSISTING)

TRANSITIONS: dict[tuple[TxPhase, type[Event]], tuple[TxPhase | None, ...]] = {
    (TxPhase.RECEIVING, RowsComplete): (
        TxPhase.WAITING,
        TxPhase.LOADING,
        TxPhase.APPLYING,
        None,
    ),
    (TxPhase.RECEIVING, LaneGone): (None,),
    (TxPhase.WAITING, LaneGone): (TxPhase.WAITING,),
    (TxPhase.LOADING, LaneGone): (TxPhase.LOADING,),
    (TxPhase.APPLYING, LaneGone): (TxPhase.APPLYING,),
    (TxPhase.PERSISTING, LaneGone): (TxPhase.PERSISTING,),
    (TxPhase.LOADING, GroupsLoaded): (TxPhase.APPLYING,),
    (TxPhase.LOADING, TransactionFailed): (None,),
    (TxPhase.APPLYING, TransactionApplied): (TxPhase.PERSISTING,),
    (TxPhase.APPLYING, TransactionFailed): (None,),
    (TxPhase.PERSISTING, ChangesDurable): (None,),
    (TxPhase.PERSISTING, TransactionFailed): (None,),
}
"""What may follow what; None is the end. WAITING is left when another transaction ends."""


@dataclass(slots=True)
class HeldGroup:
    """One key group of one operator that is in memory."""

    as_of: Epoch | None
    outputs_of: Epoch | None = None
    """Epoch whose outputs are cached."""
    rows: int | None = None
    """Number of input rows that these outputs come from; None: not counted."""


@dataclass(slots=True)
class Tx:
    """One transaction."""

    opened: TransactionOpened
    phase: TxPhase = TxPhase.RECEIVING
    fresh: tuple[KeyGroup, ...] = ()
    """Key groups that this transaction applies (the others are answered from the cache)."""
    rows: dict[KeyGroup, int] = field(default_factory=dict)


@dataclass(slots=True)
class WorkerMachine:
    """State of a worker's protocol; `handle` is the only way to change it."""

    granted: dict[KeyGroup, int] = field(default_factory=dict)
    held: dict[str, dict[KeyGroup, HeldGroup]] = field(default_factory=dict)
    transactions: dict[int, Tx] = field(default_factory=dict)

    def handle(self, event: Event) -> list[Effect]:
        """Take one event and say what to do."""
        match event:
            case GroupsGranted():
                self.granted.update(dict.fromkeys(event.groups, event.version))
                return []
            case OperatorInstalled():
                return self._operator_installed(event)
            case TransactionOpened():
                return self._opened(event)
            case LaneGone():
                return self._lane_gone(event)
            case RowsComplete():
                if event.tx not in self.transactions:
                    return []  # refused or replaced while the rows were on their way
                tx = self._expect(event)
                tx.rows = dict(zip(tx.opened.groups, event.rows, strict=False))
                return self._start(tx)
            case GroupsLoaded():
                return self._loaded(self._expect(event))
            case TransactionApplied():
                tx = self._expect(event)
                tx.phase = TxPhase.PERSISTING
                return [PersistChanges(event.tx)]
            case ChangesDurable():
                return self._durable(self._expect(event))
            case TransactionFailed():
                return self._failed(self._expect(event), event.error)
            case _:
                unhandled(event)

    def is_busy(self, operator: str) -> bool:
        """Whether a transaction of the operator is between its end mark and its answer."""
        return any(
            tx.phase in BUSY and tx.opened.operator == operator for tx in self.transactions.values()
        )

    def is_settled(self, operator: str, group: KeyGroup, epoch: Epoch) -> bool:
        """Whether a key group's state in memory is exactly that of an epoch, nothing under way."""
        held = self.held.get(operator, {}).get(group)
        if held is None or held.as_of != epoch:
            return False
        return not any(
            tx.phase in BUSY and tx.opened.operator == operator and group in tx.fresh
            for tx in self.transactions.values()
        )

    def _expect(self, event: Event) -> Tx:
        tx = self.transactions.get(event.tx)  # type: ignore[union-attr]
        if tx is None or (tx.phase, type(event)) not in TRANSITIONS:
            raise ProtocolViolation(f"{event} is not allowed in {tx and tx.phase}")
        return tx

    # -- operators --

    def _operator_installed(self, event: OperatorInstalled) -> list[Effect]:
        if self.is_busy(event.operator):
            raise ProtocolViolation(f"{event} while a transaction of the operator runs")
        # Rows that are on their way were made for the definition before.
        old = [t for t in self.transactions.values() if t.opened.operator == event.operator]
        refusals = [effect for tx in old for effect in self._end(tx, _redefined(event))]
        self.held[event.operator] = {}
        return [*refusals, DropOperator(event.operator)]

    # -- transactions --

    def _opened(self, event: TransactionOpened) -> list[Effect]:
        if event.tx in self.transactions:
            raise ProtocolViolation(f"{event} is open already")
        error = self._open_error(event)
        if error is not None:
            return [RefuseTransaction(event.tx, error)]
        effects = [self._end(old, _replaced(event)) for old in self._superseded(event)]
        self.transactions[event.tx] = Tx(event)
        return [effect for ended in effects for effect in ended]

    def _open_error(self, event: TransactionOpened) -> AnabranchError | None:
        if event.operator not in self.held:
            return ServiceUnavailable(
                f"Operator '{event.operator}' is not known to this worker yet; the lane asks again."
            )
        if event.base is not None and event.base >= event.epoch:
            return ProtocolViolation(f"{event} would apply its rows twice")
        return self._owner_error(event)

    def _owner_error(self, event: TransactionOpened) -> AnabranchError | None:
        moved = [g for g in event.groups if g not in self.granted]
        if moved:
            return ServiceUnavailable(
                f"Key groups {moved[:4]} are not owned here; the lane asks for the new routing."
            )
        held = self.held[event.operator]
        for group in event.groups:
            as_of = held[group].as_of if group in held else None
            if as_of is not None and as_of > event.epoch:
                return EpochGap(
                    f"Batch {event.epoch} of operator '{event.operator}' has ended; its state is "
                    f"at batch {as_of}. This task is late and its result is not used."
                )
        return None

    def _superseded(self, event: TransactionOpened) -> list[Tx]:
        """Older attempts of the same lane that still receive rows: the newer one replaces them."""
        return [
            tx
            for tx in self.transactions.values()
            if tx.phase is TxPhase.RECEIVING
            and tx.opened.operator == event.operator
            and tx.opened.lane == event.lane
            and tx.opened.lanes == event.lanes
            and tx.opened.epoch <= event.epoch
            and tx.opened.attempt < event.attempt
        ]

    def _lane_gone(self, event: LaneGone) -> list[Effect]:
        tx = self.transactions.get(event.tx)  # None: refused or replaced meanwhile
        if tx is not None and tx.phase is TxPhase.RECEIVING:
            del self.transactions[event.tx]
        return []  # a transaction that runs goes on: its outputs are cached for the retry

    def _start(self, tx: Tx) -> list[Effect]:
        opened = tx.opened
        error = self._owner_error(opened)
        if error is not None:
            return self._end(tx, error)
        if self._is_blocked(tx):
            tx.phase = TxPhase.WAITING
            return []
        held = self.held[opened.operator]
        tx.fresh = tuple(
            g for g in opened.groups if g not in held or not self._answers(held[g], tx, g)
        )
        if not tx.fresh:
            return self._end(tx)
        effects: list[Effect] = [DropOutputs(opened.operator, tx.fresh)]
        load = tuple(g for g in tx.fresh if g not in held or held[g].as_of != opened.base)
        for group in tx.fresh:
            if group in held:
                held[group].outputs_of = None
        for group in load:
            held.pop(group, None)
        if load:
            tx.phase = TxPhase.LOADING
            effects.append(LoadGroups(opened.tx, load, opened.base))
        else:
            tx.phase = TxPhase.APPLYING
            effects.append(ApplyTransaction(opened.tx, tx.fresh))
        return effects

    @staticmethod
    def _answers(held: HeldGroup, tx: Tx, group: KeyGroup) -> bool:
        """Whether cached outputs are those of this transaction: same epoch, as many rows."""
        rows = tx.rows.get(group)
        return held.outputs_of == tx.opened.epoch and (rows is None or rows == held.rows)

    def _is_blocked(self, tx: Tx) -> bool:
        wanted = set(tx.opened.groups)
        return any(
            other.phase in BUSY
            and other.opened.operator == tx.opened.operator
            and not wanted.isdisjoint(other.opened.groups)
            for other in self.transactions.values()
        )

    def _loaded(self, tx: Tx) -> list[Effect]:
        held = self.held[tx.opened.operator]
        for group in tx.fresh:
            held.setdefault(group, HeldGroup(tx.opened.base))
        tx.phase = TxPhase.APPLYING
        return [ApplyTransaction(tx.opened.tx, tx.fresh)]

    def _durable(self, tx: Tx) -> list[Effect]:
        held = self.held[tx.opened.operator]
        for group in tx.fresh:
            held[group] = HeldGroup(tx.opened.epoch, tx.opened.epoch, tx.rows.get(group))
        return self._end(tx)

    def _failed(self, tx: Tx, error: AnabranchError) -> list[Effect]:
        if tx.phase is TxPhase.LOADING:  # what could not be loaded is not here
            for group in tx.fresh:
                self.held[tx.opened.operator].pop(group, None)
            effects: list[Effect] = [DropOutputs(tx.opened.operator, tx.fresh)]
            return effects + self._end(tx, error)
        return self._end(tx, error)

    def _end(self, tx: Tx, error: AnabranchError | None = None) -> list[Effect]:
        del self.transactions[tx.opened.tx]
        effects: list[Effect] = [
            AnswerTransaction(tx.opened.tx)
            if error is None
            else RefuseTransaction(tx.opened.tx, error)
        ]
        waiting = [t for t in self.transactions.values() if t.phase is TxPhase.WAITING]
        for other in sorted(waiting, key=lambda t: t.opened.tx):
            if other.opened.tx in self.transactions and other.phase is TxPhase.WAITING:
                effects.extend(self._start(other))
        return effects


def _redefined(event: OperatorInstalled) -> AnabranchError:
    return ServiceUnavailable(f"Operator '{event.operator}' was defined anew; the lane asks again.")


def _replaced(event: TransactionOpened) -> AnabranchError:
    return ServiceUnavailable(
        f"Attempt {event.attempt} of lane {event.lane} in batch {event.epoch} replaced this one."
    )
