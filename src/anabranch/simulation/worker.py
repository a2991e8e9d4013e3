"""A simulated worker process: the real WorkerMachine with memory and an output cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.errors import (
    AnabranchError,
    LocationNotWritable,
    ProcessorError,
    ServiceUnavailable,
)
from anabranch.model.ids import HostId, KeyGroup, WorkerId
from anabranch.protocol import worker as protocol
from anabranch.protocol.epochs import TransactionReport
from anabranch.protocol.exhaustive import unhandled
from anabranch.simulation.checks import Failure
from anabranch.simulation.exchanges import Forward, LaneExchange
from anabranch.simulation.oracle import (
    OPERATOR,
    Changes,
    KeyStates,
    Outputs,
    Rows,
    apply_rows,
    merge,
)
from anabranch.simulation.parcels import BINS
from anabranch.simulation.scheduler import Timer
from anabranch.simulation.source import Source
from anabranch.simulation.store_loader import Stored
from anabranch.simulation.target import Target

if TYPE_CHECKING:
    from anabranch.simulation.agent import SimulatedAgent
    from anabranch.simulation.calls import SimulatedCall
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.coordinator import CoordinatorProcess
    from anabranch.simulation.order_handler import Job

APPLY_TICKS, PERSIST_TICKS = 3, 5
SHADOW_TICKS = 24
"""Shadow transactions may have to wait for those that somebody waits for."""


@dataclass(frozen=True, slots=True)
class Cached:
    """What a durable transaction left behind for one key group."""

    epoch: int
    outputs: Outputs
    changelog: str | None


@dataclass(slots=True)
class Work:
    """A transaction between apply and answer."""

    before: dict[int, KeyStates] = field(default_factory=dict)
    changes: dict[KeyGroup, Changes] = field(default_factory=dict)
    outputs: dict[KeyGroup, Outputs] = field(default_factory=dict)


class WorkerProcess:
    """One incarnation of a worker; a crash loses everything but what the store has."""

    __slots__ = (
        "address",
        "agent",
        "cache",
        "calls",
        "cleaned",
        "cluster",
        "coordinator",
        "end",
        "exchanges",
        "forwarded",
        "forwards",
        "generation",
        "host",
        "incarnation",
        "is_alive",
        "is_lost",
        "jobs",
        "machine",
        "memory",
        "name",
        "scheduler",
        "source",
        "stored",
        "target",
        "tx_count",
        "version",
        "waiters",
        "work",
        "worker",
    )

    def __init__(
        self,
        cluster: Cluster,
        worker: WorkerId,
        incarnation: int,
        host: HostId,
        coordinator: CoordinatorProcess,
    ) -> None:
        self.cluster = cluster
        self.host = host
        self.scheduler: Timer = cluster.scheduler
        self.end: str = worker
        self.worker = worker
        self.incarnation = incarnation
        self.generation = coordinator.generation
        self.name: str = f"{worker}.{self.generation}.{incarnation}"
        self.is_alive = True
        self.is_lost = False
        """Whether it died with its host: nobody closes its connections."""
        self.agent: SimulatedAgent | None = None
        self.address = ""
        self.machine = protocol.WorkerMachine(BINS)
        self.memory: dict[KeyGroup, KeyStates] = {}
        self.cache: dict[int, Cached] = {}
        self.work: dict[int, Work] = {}
        self.exchanges: dict[int, LaneExchange] = {}
        self.tx_count = 0
        self.coordinator = coordinator
        self.forwards: dict[Forward, None] = {}
        self.forwarded: dict[int, tuple[dict[int, Outputs], list[TransactionReport]]] = {}
        self.version: int = coordinator.machine.moves.context.next_version()
        """When the process began: whoever copies for an older order is late."""
        self.cleaned: dict[KeyGroup, int] = {}
        """Version of the last order to clean up."""
        self.calls: dict[SimulatedCall, None] = {}
        self.jobs: dict[Job, None] = {}
        self.waiters: list[tuple[list[KeyGroup], Callable[[], None]]] = []
        self.source = Source(self)
        self.target = Target(self)
        self.stored = Stored(self)
        self.stored.evict_later()

    # -- what reaches the process --

    def open(self, exchange: LaneExchange) -> None:
        """A lane opens an exchange."""
        if self.is_alive and not exchange.is_broken:
            self.handle(exchange.opened)

    def receive(self, exchange: LaneExchange, rows: Rows) -> None:
        """Rows arrive."""
        if self.is_alive and not exchange.is_broken:
            for group, added in rows.items():
                exchange.rows.setdefault(group, []).extend(added)

    def end_mark(self, exchange: LaneExchange) -> None:
        """All rows have arrived."""
        if self.is_alive and not exchange.is_broken:
            self.handle(protocol.RowsComplete(exchange.opened.tx))

    def is_receiving(self, tx: int) -> bool:
        """Whether a lane still sends rows."""
        found = self.machine.transactions.get(tx)
        return found is not None and found.phase is protocol.TxPhase.RECEIVING

    def lane_gone(self, exchange: LaneExchange) -> None:
        """The stream broke."""
        if self.is_alive and exchange.opened.tx in self.exchanges:
            self.handle(protocol.LaneGone(exchange.opened.tx))

    def crash(self) -> None:
        """The process ends; lanes notice later."""
        self.is_alive = False
        for exchange in list(self.exchanges.values()):
            self.cluster.exchanges.break_off(exchange)
        self.exchanges.clear()
        for forward in self.forwards:
            if forward.exchange is not None:
                self.cluster.exchanges.break_off(forward.exchange)
        for call in list(self.calls):
            call.answer(None)
        for job in list(self.jobs):
            job.end(False)

    def vanish(self) -> None:
        """The host dies: nobody notices."""
        self.is_alive, self.is_lost = False, True
        self.exchanges.clear()

    # -- questions --

    def next_tx(self) -> int:
        """A number for a transaction."""
        self.tx_count += 1
        return self.tx_count

    def takes_replica(self, group: KeyGroup) -> bool:
        """Whether a copy of a key group is of use here."""
        machine = self.machine
        return not machine.is_busy(OPERATOR, group) and not machine.owners.is_owner(group)

    def when_idle(self, groups: list[KeyGroup], action: Callable[[], None]) -> None:
        """Do something as soon as no transaction works on the key groups."""
        if any(self.machine.is_busy(OPERATOR, group) for group in groups):
            self.waiters.append((groups, action))
        else:
            action()

    # -- protocol --

    def handle(self, event: protocol.Event) -> None:
        """Feed the machine and perform its effects in order."""
        if not self.is_alive:
            return
        before = self.cluster.checks.residency(self)
        effects = self.machine.handle(event)
        for effect in effects:
            self._perform(effect)
        self.cluster.checks.residency_changed(self, event, before)
        if isinstance(event, protocol.GroupsGranted):
            self.source.regained(event.groups)
        self.cluster.checks.worker_step(self, event)
        if self.waiters and not self.machine.is_busy(OPERATOR):
            waiters, self.waiters = self.waiters, []
            for _, action in waiters:
                action()
        elif self.waiters:
            waiters, self.waiters = self.waiters, []
            for groups, action in waiters:
                self.when_idle(groups, action)

    def _perform(self, effect: protocol.Effect) -> None:
        schedule, name = self.scheduler, self.name
        match effect:
            case protocol.DropOperator():
                self.target.forget(list(self.memory))
                self.memory.clear()
                self.cache.clear()
            case protocol.DropOutputs():
                for group in effect.groups:
                    self.cache.pop(group, None)
            case protocol.DropGroups():
                self.target.forget(effect.groups)
                for group in effect.groups:
                    self.memory.pop(group, None)
                    self.cache.pop(group, None)
            case protocol.ForgetParts():
                self.target.forget_parts(effect.groups)
            case protocol.InstallPart():
                self.target.install(effect)
            case protocol.AdoptPart():
                self.target.adopt(effect)
            case protocol.DiscardPart():
                self.target.discard(effect)
            case protocol.ChooseDeferred():
                raise Failure("Simulated transactions do not defer rows.")
            case protocol.AwaitArrivals():
                self.target.await_arrivals(effect)
            case protocol.FetchGroups():
                self.target.fetch(effect)
            case protocol.LoadGroups():
                self.stored.load(effect)
            case protocol.ForwardRows():
                self._forward(effect)
            case protocol.ApplyTransaction():
                label = f"{name} tx{effect.tx} apply {effect.groups}"
                is_shadow = self.exchanges[effect.tx].opened.is_shadow
                delay = schedule.delay(SHADOW_TICKS if is_shadow else APPLY_TICKS)
                schedule.after(delay, label, self._apply, effect)
            case protocol.PersistChanges():
                self._persist(effect.tx)
            case protocol.AnswerTransaction():
                self._answer(effect.tx)
            case protocol.RefuseTransaction():
                exchange = self.exchanges.pop(effect.tx)
                self.cluster.exchanges.answer(exchange, effect.error)
            case _:
                unhandled(effect)

    def _apply(self, effect: protocol.ApplyTransaction) -> None:
        if not self.is_alive:
            return
        exchange = self.exchanges[effect.tx]
        work = self.work.setdefault(effect.tx, Work())
        if not exchange.opened.is_shadow:
            self.cluster.checks.changing(self, effect.groups)
        for group in effect.groups:
            before = work.before[group] = self.memory[group]
            rows = exchange.rows.get(group, [])
            changes, outputs = apply_rows(before, exchange.opened.epoch, rows)
            work.changes[group], work.outputs[group] = changes, outputs
            self.memory[group] = merge(before, changes)
        if self.cluster.faults.user_code_fails():
            self.failed(effect.tx, ProcessorError("simulated failure of user code"))
            return
        self.handle(protocol.TransactionApplied(effect.tx))

    def _persist(self, tx: int) -> None:
        work = self.work[tx]
        schedule = self.scheduler
        changelog = f"{self.name}/{tx}" if any(work.changes.values()) else None
        lands, is_reported = self.cluster.faults.write_outcome()
        delay = schedule.delay(PERSIST_TICKS)
        if changelog is not None and lands:
            # The write may land although the writer dies meanwhile; nothing refers to it then.
            label = f"store gets {changelog}"
            schedule.after(max(1, delay - 1), label, self._land, changelog, work.changes)
        schedule.after(
            delay, f"{self.name} tx{tx} durable", self._durable, tx, changelog, is_reported
        )

    def _land(self, changelog: str, changes: dict[int, Changes]) -> None:
        if self.is_alive or self.cluster.faults.write_survives_writer():
            self.cluster.store.files[changelog] = changes

    def _durable(self, tx: int, changelog: str | None, is_reported: bool) -> None:
        if not self.is_alive:
            return
        if not is_reported:
            self.failed(tx, LocationNotWritable("simulated write failure"))
            return
        work = self.work.pop(tx)
        epoch = self.exchanges[tx].opened.epoch
        for group, outputs in work.outputs.items():
            self.cache[group] = Cached(epoch, outputs, changelog)
            self.source.changed(group, epoch, work.changes[group])
        self.handle(protocol.ChangesDurable(tx))

    def failed(self, tx: int, error: AnabranchError) -> None:
        """A transaction's changes are undone, key by key: bins may have arrived beside them."""
        work = self.work.pop(tx, None)
        if work is not None:
            for group, changes in work.changes.items():
                before = work.before[group]
                undo: Changes = {key: before.get(key) for key in changes}
                self.memory[group] = merge(self.memory[group], undo)
        self.handle(protocol.TransactionFailed(tx, error))

    def _answer(self, tx: int) -> None:
        exchange = self.exchanges.pop(tx)
        opened = exchange.opened
        if opened.is_shadow:
            self._end_shadow(tx)
            return
        parts: dict[str | None, list[KeyGroup]] = {}
        outputs, passed_on = self.forwarded.pop(tx, ({}, []))
        for group in opened.groups:
            if group in outputs:
                continue
            cached = self.cache.get(group)
            if cached is None or cached.epoch != opened.epoch:
                raise Failure(f"{self.name} answers batch {opened.epoch} with {cached} of {group}")
            outputs[group] = cached.outputs
            parts.setdefault(cached.changelog, []).append(group)
        reports = tuple(
            TransactionReport(self.worker, tuple(groups), changelog)
            for changelog, groups in parts.items()
        )
        self.cluster.exchanges.answer(exchange, (outputs, (*reports, *passed_on)))

    def _end_shadow(self, tx: int) -> None:
        work = self.work.pop(tx, None)
        for group in work.changes if work is not None else ():
            self.source.replaced(group)
            self.cluster.count("groups_shadowed")

    def _forward(self, effect: protocol.ForwardRows) -> None:
        cluster, exchange = self.cluster, self.exchanges[effect.tx]
        forward = Forward(self, effect, exchange.opened.lane)
        self.forwards[forward] = None
        process = cluster.reachable(self, effect.target)
        if process is None or cluster.refuses(self, process):
            error = ServiceUnavailable("simulated loss of the new owner")
            label = f"{forward.name} cannot reach {effect.target}"
            self.scheduler.after(1, label, forward.answered, exchange, error)
            return
        tx = process.next_tx()
        opened = dataclasses.replace(
            exchange.opened, tx=tx, groups=effect.groups, version=effect.version
        )
        forward.exchange = cluster.exchanges.open(forward, process, opened)
        rows: Rows = {g: exchange.rows[g] for g in effect.groups if g in exchange.rows}
        cluster.exchanges.send_rows(forward.exchange, rows)
