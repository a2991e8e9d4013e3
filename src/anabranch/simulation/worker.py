"""A simulated worker process: the real WorkerMachine with memory and an output cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, LocationNotWritable, ProcessorError
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.protocol import worker as protocol
from anabranch.protocol.epochs import TransactionReport
from anabranch.simulation.checks import Failure
from anabranch.simulation.oracle import Changes, GroupState, Outputs, Rows, apply_rows, merge

if TYPE_CHECKING:
    from anabranch.simulation.cluster import Cluster
    from anabranch.simulation.lane import LaneTask

LOAD_TICKS, APPLY_TICKS, PERSIST_TICKS = 4, 3, 5


@dataclass(slots=True)
class Exchange:
    """One stream between a lane and a worker process."""

    number: int
    task: LaneTask
    process: WorkerProcess
    opened: protocol.TransactionOpened
    rows: Rows = field(default_factory=dict)
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Cached:
    """What a durable transaction left behind for one key group."""

    epoch: int
    outputs: Outputs
    changelog: str | None


@dataclass(slots=True)
class Work:
    """A transaction between apply and answer."""

    before: dict[int, GroupState] = field(default_factory=dict)
    changes: dict[int, Changes] = field(default_factory=dict)
    outputs: dict[int, Outputs] = field(default_factory=dict)


class WorkerProcess:
    """One incarnation of a worker; a crash loses everything but what the store has."""

    __slots__ = (
        "cache",
        "cluster",
        "exchanges",
        "generation",
        "incarnation",
        "is_alive",
        "machine",
        "memory",
        "name",
        "tx_count",
        "work",
        "worker",
    )

    def __init__(self, cluster: Cluster, worker: WorkerId, incarnation: int) -> None:
        self.cluster = cluster
        self.worker = worker
        self.incarnation = incarnation
        self.generation = cluster.generation
        self.name = f"{worker}.{cluster.generation}.{incarnation}"
        self.is_alive = True
        self.machine = protocol.WorkerMachine()
        self.memory: dict[int, GroupState] = {}
        self.cache: dict[int, Cached] = {}
        self.work: dict[int, Work] = {}
        self.exchanges: dict[int, Exchange] = {}
        self.tx_count = 0

    # -- what reaches the process --

    def open(self, exchange: Exchange) -> None:
        """A lane opens an exchange."""
        if self.is_alive and not exchange.is_broken:
            self.handle(exchange.opened)

    def receive(self, exchange: Exchange, rows: Rows) -> None:
        """Rows arrive."""
        if self.is_alive and not exchange.is_broken:
            for group, added in rows.items():
                exchange.rows.setdefault(group, []).extend(added)

    def end_mark(self, exchange: Exchange) -> None:
        """All rows have arrived."""
        if self.is_alive and not exchange.is_broken:
            self.handle(protocol.RowsComplete(exchange.opened.tx))

    def lane_gone(self, exchange: Exchange) -> None:
        """The stream broke."""
        if self.is_alive and exchange.opened.tx in self.exchanges:
            self.handle(protocol.LaneGone(exchange.opened.tx))

    def crash(self) -> None:
        """The process ends; lanes notice later."""
        self.is_alive = False
        for exchange in list(self.exchanges.values()):
            self.cluster.break_exchange(exchange)
        self.exchanges.clear()

    # -- protocol --

    def handle(self, event: protocol.Event) -> None:
        """Feed the machine and perform its effects in order."""
        if not self.is_alive:
            return
        effects = self.machine.handle(event)
        for effect in effects:
            self._perform(effect)
        self.cluster.checks.worker_step(self)

    def _perform(self, effect: protocol.Effect) -> None:
        schedule, name = self.cluster.scheduler, self.name
        match effect:
            case protocol.DropOperator():
                self.memory.clear()
                self.cache.clear()
            case protocol.DropOutputs():
                for group in effect.groups:
                    self.cache.pop(group, None)
            case protocol.LoadGroups():
                label = f"{name} tx{effect.tx} load {effect.groups} as of {effect.as_of}"
                schedule.after(schedule.delay(LOAD_TICKS), label, self._load, effect)
            case protocol.ApplyTransaction():
                label = f"{name} tx{effect.tx} apply {effect.groups}"
                schedule.after(schedule.delay(APPLY_TICKS), label, self._apply, effect)
            case protocol.PersistChanges():
                self._persist(effect.tx)
            case protocol.AnswerTransaction():
                self._answer(effect.tx)
            case protocol.RefuseTransaction():
                exchange = self.exchanges.pop(effect.tx)
                self.cluster.answer_exchange(exchange, effect.error)

    def _load(self, effect: protocol.LoadGroups) -> None:
        if not self.is_alive:
            return
        if self.cluster.faults.load_fails():
            self._failed(effect.tx, LocationNotWritable("simulated read failure"))
            return
        for group in effect.groups:
            self.memory[group] = self.cluster.store.restore(group, effect.as_of)
        self.handle(protocol.GroupsLoaded(effect.tx))

    def _apply(self, effect: protocol.ApplyTransaction) -> None:
        if not self.is_alive:
            return
        exchange = self.exchanges[effect.tx]
        work = self.work[effect.tx] = Work()
        for group in effect.groups:
            before = work.before[group] = self.memory[group]
            rows = exchange.rows.get(group, [])
            changes, outputs = apply_rows(before, exchange.opened.epoch, rows)
            work.changes[group], work.outputs[group] = changes, outputs
            self.memory[group] = merge(before, changes)
        if self.cluster.faults.user_code_fails():
            self._failed(effect.tx, ProcessorError("simulated failure of user code"))
            return
        self.handle(protocol.TransactionApplied(effect.tx))

    def _persist(self, tx: int) -> None:
        work = self.work[tx]
        schedule = self.cluster.scheduler
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
            self._failed(tx, LocationNotWritable("simulated write failure"))
            return
        work = self.work.pop(tx)
        epoch = self.exchanges[tx].opened.epoch
        for group, outputs in work.outputs.items():
            self.cache[group] = Cached(epoch, outputs, changelog)
        self.handle(protocol.ChangesDurable(tx))

    def _failed(self, tx: int, error: AnabranchError) -> None:
        work = self.work.pop(tx, None)
        if work is not None:
            self.memory.update(work.before)
        self.handle(protocol.TransactionFailed(tx, error))

    def _answer(self, tx: int) -> None:
        exchange = self.exchanges.pop(tx)
        opened = exchange.opened
        parts: dict[str | None, list[KeyGroup]] = {}
        outputs: dict[int, Outputs] = {}
        for group in opened.groups:
            cached = self.cache.get(group)
            if cached is None or cached.epoch != opened.epoch:
                raise Failure(f"{self.name} answers batch {opened.epoch} with {cached} of {group}")
            outputs[group] = cached.outputs
            parts.setdefault(cached.changelog, []).append(group)
        reports = tuple(
            TransactionReport(self.worker, tuple(groups), changelog)
            for changelog, groups in parts.items()
        )
        self.cluster.answer_exchange(exchange, (outputs, reports))
