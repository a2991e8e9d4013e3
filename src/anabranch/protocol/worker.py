"""A worker's decisions: which transactions run, in which order, from which state, what is answered.

The state of an operator's key group is absent or held "as of" an epoch. A transaction of epoch e
with base b wants every one of its key groups as of b:

    as of b                          apply
    as of e, outputs still cached    answer from the cache: a retry changes nothing
    owned by another worker now      forward the rows, pass its outputs back
    anything else                    load as of b, from its source or the store, then apply

Transactions that share a key group run one after the other, so the second attempt of a lane finds
the outputs of the first. Ownership is checked when a transaction starts to run, never inside one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch.errors import AnabranchError, ProtocolViolation
from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.protocol.arrivals import Arrivals
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.ownership import STORE, Ownership
from anabranch.protocol.residency import (
    awaited,
    candidates,
    copied,
    deferred,
    end_arrivals,
    evicted,
    fetched,
    forgotten,
    granted,
    import_changed,
    installed,
    loaded,
    not_loaded,
    offered,
    prepare,
    progress,
    read,
    receiving_changed,
    requests,
    staged,
)
from anabranch.protocol.residency_messages import (
    AdoptPart,
    ArrivalEffect,
    AwaitArrivals,
    AwaitingExpired,
    ChooseDeferred,
    DeferralCandidate,
    DeferralChosen,
    DiscardPart,
    FetchedPart,
    FetchGroups,
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
    ReplicaOrigin,
    ReplicasChanged,
    Residency,
    SourceRequest,
)
from anabranch.protocol.transaction_admission import (
    answers,
    is_blocked,
    open_error,
    outputs_error,
    owner_error,
    redefined,
    replaced,
    superseded,
)
from anabranch.protocol.transactions import BRINGING, BUSY, TRANSITIONS, HeldGroup, Tx, TxPhase
from anabranch.protocol.worker_messages import (
    AnswerTransaction,
    ApplyTransaction,
    ChangesDurable,
    DropGroups,
    DropOperator,
    DropOutputs,
    Effect,
    Event,
    ForwardFailed,
    ForwardRows,
    GroupsDropped,
    GroupsGranted,
    GroupsReleased,
    LaneGone,
    OperatorInstalled,
    PersistChanges,
    RefuseTransaction,
    RowsComplete,
    RowsForwarded,
    TransactionApplied,
    TransactionFailed,
    TransactionOpened,
)

__all__ = [
    "BUSY",
    "STORE",
    "TRANSITIONS",
    "AdoptPart",
    "AnswerTransaction",
    "ApplyTransaction",
    "ArrivalEffect",
    "AwaitArrivals",
    "AwaitingExpired",
    "ChangesDurable",
    "ChooseDeferred",
    "DeferralCandidate",
    "DeferralChosen",
    "DiscardPart",
    "DropGroups",
    "DropOperator",
    "DropOutputs",
    "Effect",
    "Event",
    "FetchGroups",
    "FetchedPart",
    "ForgetParts",
    "ForwardFailed",
    "ForwardRows",
    "GroupsDropped",
    "GroupsEvicted",
    "GroupsFetched",
    "GroupsGranted",
    "GroupsLoaded",
    "GroupsReleased",
    "HeldGroup",
    "ImportBegan",
    "ImportEnded",
    "InstallPart",
    "LaneGone",
    "LoadGroups",
    "OperatorInstalled",
    "PartFailed",
    "PartInstalled",
    "PartKind",
    "PartOffered",
    "PartReceiving",
    "PersistChanges",
    "ReceivingEnded",
    "RefuseTransaction",
    "ReplicaOrigin",
    "ReplicasChanged",
    "Residency",
    "RowsComplete",
    "RowsForwarded",
    "SourceRequest",
    "TransactionApplied",
    "TransactionFailed",
    "TransactionOpened",
    "Tx",
    "TxPhase",
    "WorkerMachine",
]


@dataclass(slots=True)
class WorkerMachine:
    """State of a worker's protocol; `handle` is the only way to change it."""

    bins: int = 16
    """Of each key group."""
    owners: Ownership = field(default_factory=Ownership)
    held: dict[str, dict[KeyGroup, HeldGroup]] = field(default_factory=dict)
    transactions: dict[int, Tx] = field(default_factory=dict)
    doomed: set[KeyGroup] = field(default_factory=set)
    """Key groups that are dropped as soon as no transaction works on them."""
    arrivals: Arrivals = field(init=False)

    def __post_init__(self) -> None:
        self.arrivals = Arrivals(self.bins)

    @property
    def granted(self) -> dict[KeyGroup, int]:
        """Key groups that are owned here, with the version of each."""
        return self.owners.granted

    def handle(self, event: Event) -> list[Effect]:
        """Take one event and say what to do."""
        effects = self._handle(event)
        if self.arrivals.offers:
            effects += offered(self)
        if self.transactions:
            effects += self._go_on_awaiting()
        return effects + forgotten(self) if self.arrivals.ended else effects

    def _handle(self, event: Event) -> list[Effect]:
        match event:
            case GroupsGranted() | GroupsReleased() | GroupsDropped():
                return self._ownership_changed(event)
            case ReplicasChanged():
                copied(self, event)
                return []
            case ImportBegan() | ImportEnded():
                import_changed(self, event)
                return []
            case PartReceiving() | ReceivingEnded():
                receiving_changed(self, event)
                return []
            case PartOffered():
                self.arrivals.offers.append(event)
                return []
            case PartInstalled() | PartFailed():
                return installed(self, event)
            case GroupsEvicted():
                evicted(self, event)
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
            case DeferralChosen():
                tx = self._expect(event)
                return deferred(self, tx, event) + self._take(tx)
            case AwaitingExpired():
                return self._impatient(event)
            case GroupsFetched():
                tx = self._expect(event)
                fetched(self, tx, event)
                return self._read(tx)
            case GroupsLoaded():
                return self._loaded(self._expect(event), event)
            case TransactionApplied():
                return self._applied(self._expect(event))
            case ChangesDurable():
                return self._durable(self._expect(event))
            case TransactionFailed():
                return self._failed(self._expect(event), event.error)
            case RowsForwarded() | ForwardFailed():
                if event.tx not in self.transactions:
                    return []  # the operator was defined anew meanwhile
                return self._forwarded(self._expect(event), event)
            case _:
                unhandled(event)

    # -- observation --

    def is_busy(self, operator: str, group: KeyGroup | None = None, shadows: bool = False) -> bool:
        """Whether a (shadow) transaction (on a key group) is between end mark and answer."""
        return any(
            tx.is_busy_with(operator, group)
            for tx in self.transactions.values()
            if tx.opened.is_shadow or not shadows
        )

    def works_on(self, operator: str, group: KeyGroup) -> bool:
        """Whether a transaction has a key group and changes it, or is about to."""
        return any(
            tx.is_busy_with(operator, group) and group not in tx.loading
            for tx in self.transactions.values()
        )

    def source_of(self, operator: str, group: KeyGroup) -> WorkerId | None:
        """Who has the state, or a part of it, of a key group that is owned here."""
        record = self.arrivals.find(operator, group)
        return record.source if record is not None else None

    def is_settled(self, operator: str, group: KeyGroup, epoch: Epoch) -> bool:
        """Whether a key group's state in memory is exactly that of an epoch, nothing under way."""
        held = self.held.get(operator, {}).get(group)
        if held is None or held.as_of != epoch or held.is_partial:
            return False
        return not self.is_busy(operator, group)

    def _expect(self, event: Event) -> Tx:
        tx = self.transactions.get(event.tx)  # type: ignore[union-attr]
        if tx is None or (tx.phase, type(event)) not in TRANSITIONS:
            raise ProtocolViolation(f"{event} is not allowed in {tx and tx.phase}")
        return tx

    # -- operators and ownership --

    def _operator_installed(self, event: OperatorInstalled) -> list[Effect]:
        if self.is_busy(event.operator):
            raise ProtocolViolation(f"{event} while a transaction of the operator runs")
        # Rows that are on their way were made for the definition before.
        old = [t for t in self.transactions.values() if t.opened.operator == event.operator]
        refusals = [effect for tx in old for effect in self._end(tx, redefined(event))]
        self.held[event.operator] = {}
        self.arrivals.groups[event.operator] = {}
        return [*refusals, DropOperator(event.operator)]

    def _ownership_changed(
        self, event: GroupsGranted | GroupsReleased | GroupsDropped
    ) -> list[Effect]:
        match event:
            case GroupsGranted():
                return granted(self, event)
            case GroupsReleased():
                return end_arrivals(self, self.owners.release(event))
            case GroupsDropped():
                self.doomed.update(self.owners.droppable(event))
                return self._drop_doomed()
            case _:
                unhandled(event)

    def _drop_doomed(self) -> list[Effect]:
        """Drop what is not needed any more; what is still being worked on, at its end."""
        if not self.doomed:
            return []
        ready = {g for g in self.doomed if not any(self.is_busy(o, g) for o in self.held)}
        self.doomed -= ready
        gone = tuple(sorted(g for g in ready if not self.owners.is_owner(g)))
        return self.drop(gone)

    def drop(self, groups: tuple[KeyGroup, ...], only_partial: bool = False) -> list[Effect]:
        """Forget what is here of key groups, except where a transaction works on it."""
        effects: list[Effect] = []
        for operator, held in self.held.items():
            here = [g for g in groups if g in held and (held[g].is_partial or not only_partial)]
            gone = tuple(g for g in here if not self.is_busy(operator, g))
            for group in gone:
                del held[group]
            if gone:
                effects.append(DropGroups(operator, gone))
        return effects

    # -- transactions --

    def _opened(self, event: TransactionOpened) -> list[Effect]:
        if event.tx in self.transactions:
            raise ProtocolViolation(f"{event} is open already")
        error = open_error(self, event)
        if error is not None:
            return [RefuseTransaction(event.tx, error)]
        effects = [self._end(old, replaced(event)) for old in superseded(self, event)]
        self.transactions[event.tx] = Tx(event)
        return [effect for ended in effects for effect in ended]

    def _lane_gone(self, event: LaneGone) -> list[Effect]:
        tx = self.transactions.get(event.tx)  # None: refused or replaced meanwhile
        if tx is not None and tx.phase is TxPhase.RECEIVING:
            del self.transactions[event.tx]
        return []  # a transaction that runs goes on: its outputs are cached for the retry

    def _start(self, tx: Tx) -> list[Effect]:
        opened = tx.opened
        error = None if opened.is_shadow else owner_error(self, opened)
        if error is not None:
            return self._end(tx, error)
        if is_blocked(self, tx):
            tx.phase = TxPhase.WAITING
            return []
        if opened.is_shadow:
            return self._start_shadow(tx)
        held = self.held[opened.operator]
        open_ = [g for g in opened.groups if g not in held or not answers(held[g], tx, g)]
        tx.granted = {g: self.granted[g] for g in open_ if self.owners.is_owner(g)}
        tx.fresh = tuple(tx.granted)
        effects: list[Effect] = []
        if len(tx.fresh) < len(open_):
            effects.extend(self._forward(tx, [g for g in open_ if not self.owners.is_owner(g)]))
        if not tx.fresh:
            return effects + self._end_local(tx)
        return [*effects, DropOutputs(opened.operator, tx.fresh), *self._run(tx)]

    def _start_shadow(self, tx: Tx) -> list[Effect]:
        """Bring replicas forward that are as of the base; the others catch up another way."""
        held, opened = self.held[tx.opened.operator], tx.opened
        tx.fresh = tuple(
            g
            for g in opened.groups
            if g in held and held[g].as_of == opened.base and not self.owners.is_owner(g)
        )
        if not tx.fresh:
            return self._end(tx)
        tx.phase = TxPhase.APPLYING
        return [ApplyTransaction(opened.tx, tx.fresh)]

    def _run(self, tx: Tx) -> list[Effect]:
        prepare(self, tx)
        tx.loading = self._not_here(tx, tx.fresh)
        ready = tuple(g for g in tx.fresh if g not in tx.loading)
        if tx.loading and not (ready and not self.owners.ready_first.isdisjoint(tx.loading)):
            return self._bring(tx)
        tx.phase = TxPhase.APPLYING
        return [ApplyTransaction(tx.opened.tx, ready)]

    def _not_here(self, tx: Tx, groups: tuple[KeyGroup, ...]) -> tuple[KeyGroup, ...]:
        """Those that must be brought here first, or completed."""
        base, held = tx.opened.base, self.held[tx.opened.operator]
        arriving = self.arrivals.groups[tx.opened.operator]
        # A part without a record was released meanwhile: nobody completes it any more.
        return tuple(
            g
            for g in groups
            if g not in held or held[g].as_of != base or held[g].is_partial or g in arriving
        )

    # -- bringing state here --

    def _bring(self, tx: Tx) -> list[Effect]:
        """First of all, rows may wait instead."""
        tx.brought = tx.loading
        found = candidates(self, tx) if tx.opened.may_defer else ()
        if not found:
            return self._take(tx)
        tx.phase, tx.staged = TxPhase.CHOOSING, staged(self, tx)
        return [ChooseDeferred(tx.opened.tx, found, tx.opened.base)]

    def _take(self, tx: Tx) -> list[Effect]:
        """Take what nobody else is bringing just now, and ask its sources for it."""
        if coming := awaited(self, tx):
            if tx.phase is TxPhase.AWAITING:
                return []
            tx.phase, tx.progress = TxPhase.AWAITING, progress(self, tx)
            return [AwaitArrivals(tx.opened.tx, coming)]
        asked, effects = requests(self, tx)
        tx.requested = tuple(request.group for request in asked)
        if not asked:
            return effects + self._read(tx)
        tx.phase = TxPhase.FETCHING
        return [*effects, FetchGroups(tx.opened.tx, asked)]

    def _read(self, tx: Tx) -> list[Effect]:
        """What no source has is in the store."""
        if tx.loading:
            tx.phase = TxPhase.LOADING
            return [read(self, tx)]
        tx.phase = TxPhase.APPLYING
        return [ApplyTransaction(tx.opened.tx, tx.brought if tx.has_applied else tx.fresh)]

    def _loaded(self, tx: Tx, event: GroupsLoaded) -> list[Effect]:
        loaded(self, tx, event)
        return self._read(tx)

    def _impatient(self, event: AwaitingExpired) -> list[Effect]:
        tx = self.transactions.get(event.tx)
        if tx is None or tx.phase is not TxPhase.AWAITING:
            return []  # what it has waited for came meanwhile
        before, tx.progress = tx.progress, progress(self, tx)
        if any(before.get(group) != now for group, now in tx.progress.items()):
            return []  # something of it comes
        tx.is_impatient = True
        return self._take(tx)

    def _go_on_awaiting(self) -> list[Effect]:
        """What has come in, or does not come any more, may be all that a transaction awaits."""
        effects: list[Effect] = []
        for tx in list(self.transactions.values()):
            if tx.phase is TxPhase.AWAITING and not awaited(self, tx):
                tx.loading = self._not_here(tx, tx.loading)
                effects += self._take(tx)
        return effects

    def _forward(self, tx: Tx, groups: list[KeyGroup]) -> list[Effect]:
        tx.forwarded = tuple(groups)
        parts = self.owners.new_owners(groups)
        tx.awaited = set(parts)
        return [
            ForwardRows(tx.opened.tx, some, target, max(tx.opened.version, version))
            for target, (some, version) in sorted(parts.items())
        ]

    def _applied(self, tx: Tx) -> list[Effect]:
        tx.has_applied = True
        if tx.opened.is_shadow:
            held = self.held[tx.opened.operator]
            for group in tx.fresh:
                held[group] = HeldGroup(tx.opened.epoch, replica=held[group].replica)
            return self._end(tx)
        if tx.loading:
            return self._go_on(tx)
        tx.phase = TxPhase.PERSISTING
        return [PersistChanges(tx.opened.tx)]

    def _go_on(self, tx: Tx) -> list[Effect]:
        """With what has come while the others were applied; if nothing has, bring the rest."""
        before, tx.loading = tx.loading, self._not_here(tx, tx.loading)
        if len(tx.loading) == len(before):
            return self._bring(tx)
        return [ApplyTransaction(tx.opened.tx, tuple(g for g in before if g not in tx.loading))]

    def _durable(self, tx: Tx) -> list[Effect]:
        held = self.held[tx.opened.operator]
        epoch = tx.opened.epoch
        for group in tx.fresh:
            held[group] = HeldGroup(epoch, epoch, tx.rows.get(group), held[group].is_partial)
        return self._end_local(tx)

    def _failed(self, tx: Tx, error: AnabranchError) -> list[Effect]:
        effects: list[Effect] = []
        if tx.phase in BRINGING:
            not_loaded(self, tx)
            operator = tx.opened.operator
            effects += [DropGroups(operator, tx.loading), DropOutputs(operator, tx.fresh)]
        tx.error = tx.error or error
        return effects + self._end_local(tx)

    def _forwarded(self, tx: Tx, event: RowsForwarded | ForwardFailed) -> list[Effect]:
        tx.awaited.discard(event.target)
        if isinstance(event, ForwardFailed):
            tx.error = tx.error or event.error
        if tx.phase is TxPhase.FORWARDING and not tx.awaited:
            return self._end(tx, tx.error or outputs_error(self, tx))
        return []

    def _end_local(self, tx: Tx) -> list[Effect]:
        """Nothing is left to do here; perhaps others still work on rows that were forwarded."""
        if not tx.awaited:
            return self._end(tx, tx.error or outputs_error(self, tx))
        tx.phase = TxPhase.FORWARDING
        return [*self._drop_doomed(), *self._start_waiting()]

    def _end(self, tx: Tx, error: AnabranchError | None = None) -> list[Effect]:
        del self.transactions[tx.opened.tx]
        answer: Effect = (
            AnswerTransaction(tx.opened.tx)
            if error is None
            else RefuseTransaction(tx.opened.tx, error)
        )
        return [answer, *self._drop_doomed(), *self._start_waiting()]

    def _start_waiting(self) -> list[Effect]:
        effects: list[Effect] = []
        waiting = [t for t in self.transactions.values() if t.phase is TxPhase.WAITING]
        for other in sorted(waiting, key=lambda t: t.opened.tx):
            if other.opened.tx in self.transactions and other.phase is TxPhase.WAITING:
                effects.extend(self._start(other))
        return effects
