"""A simulated worker carries out the coordinator's orders: done or failed, one answer each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.protocol import coordinator as control
from anabranch.protocol import worker as protocol
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.move_orders import OrderKind, WorkerOrder
from anabranch.simulation.calls import Call, ask
from anabranch.simulation.oracle import OPERATOR, Changes, merge
from anabranch.simulation.parcels import ALL_BINS, BINS, Parcel, ParcelKind, SimulatedReplica

if TYPE_CHECKING:
    from anabranch.simulation.worker import WorkerProcess

SAVE_TICKS, WAIT_TICKS = 6, 3
PACES = (1, 1, 8, 40)
"""Most ticks before each key group of an import or a copy."""


class Job:
    """One order at one process; ends once."""

    __slots__ = ("counters", "is_over", "left", "order", "pace", "peer", "process", "sent")

    def __init__(self, process: WorkerProcess, sent: control.SendOrder) -> None:
        self.process = process
        self.sent = sent
        self.order: WorkerOrder = sent.order
        self.peer: WorkerId = sent.order.peer or process.worker
        self.is_over = False
        self.left: list[KeyGroup] = list(sent.order.groups)
        self.counters: dict[str, int] = {}
        self.pace = process.cluster.rng.choice(PACES)

    # -- begin and end --

    def arrive(self) -> None:
        """The order reaches the process."""
        if not self.process.is_alive:
            self.end(False)
            return
        self.process.jobs[self] = None
        self._work()

    def _work(self) -> None:
        kind = self.order.kind
        match kind:
            case OrderKind.CONNECT:
                self.connect()
            case OrderKind.COPY:
                self.copy()
            case OrderKind.CATCH_UP:
                self.catch_up()
            case OrderKind.GRANT:
                self.grant()
            case OrderKind.RELEASE:
                self.release()
            case OrderKind.IMPORT:
                self.start_import()
            case OrderKind.CLEAN:
                self.clean()
            case OrderKind.LAG:
                self.lag()
            case OrderKind.SAVE:
                self.save()
            case OrderKind.LOAD:
                self.load()
            case _:
                unhandled(kind)

    def end(self, is_done: bool = True) -> None:
        """Tell the coordinator how it went."""
        if self.is_over:
            return
        self.is_over = True
        process = self.process
        process.jobs.pop(self, None)
        if is_done and process.cluster.faults.reply_is_lost():
            process.cluster.count("orders_unheard")
            is_done = False
        number = self.sent.number
        event: control.Event = control.OrderDone(number, self.counters)
        if not is_done:
            event = control.OrderFailed(number, "simulated end of the worker.")
        label = f"{process.name} order {number} {'done' if is_done else 'failed'}"
        ends = ("C", process.worker)
        process.cluster.network.send(ends, None, label, process.coordinator.handle, event)

    def _count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount

    def _after(self, ticks: int, action: Callable[[], None]) -> None:
        scheduler = self.process.cluster.scheduler
        scheduler.after(scheduler.delay(ticks), "", self._go_on, action)

    def _go_on(self, action: Callable[[], None]) -> None:
        if self.process.is_alive and not self.is_over:
            action()

    def _ask(
        self,
        label: str,
        serve: Callable[[WorkerProcess, Call], None],
        then: Callable[..., None],
    ) -> None:
        ask(self.process, self.peer, f"{self.order.kind.value} {label}", serve, then)

    # -- ownership --

    def grant(self) -> None:
        """Own key groups."""
        order = self.order
        self.process.target.not_imported.difference_update(order.groups)
        self.process.handle(
            protocol.GroupsGranted(
                order.groups, order.version, order.peer, order.arrival, order.ready_first
            )
        )
        self.end()

    def release(self) -> None:
        """Own them no longer; what runs is finished before the answer."""
        order = self.order
        self.process.handle(protocol.GroupsReleased(order.groups, order.version, self.peer))
        self.process.when_idle(list(order.groups), self.end)

    def clean(self) -> None:
        """Drop what is not needed any more."""
        cleaned = self.process.cleaned
        for group in self.order.groups:
            cleaned[group] = max(cleaned.get(group, 0), self.order.version)
        self.process.source.forget(self.order.groups, self.peer)
        self.process.handle(protocol.GroupsDropped(self.order.groups, self.order.version))
        self.end()

    # -- whole workers --

    def connect(self) -> None:
        """Reach the peer."""
        self._ask(
            "",
            lambda process, call: call.answer(True),
            lambda reply: self.end(reply is not None),
        )

    def save(self) -> None:
        """Save everything: the store has it in changelogs already."""
        self._after(SAVE_TICKS, self.end)

    def load(self) -> None:
        """Load what is owned and not here, as of the last epoch."""
        self._after(SAVE_TICKS, self._load)

    def _load(self) -> None:
        process, machine = self.process, self.process.machine
        latest, _ = process.cluster.store.latest()
        for group in machine.granted:
            sources = machine.owners.sources.get(OPERATOR, {})
            if group in machine.held[OPERATOR] or group in sources:
                continue
            if machine.is_busy(OPERATOR, group):
                continue
            process.memory[group] = process.cluster.store.restore(group, latest)
            as_of = None if latest is None else Epoch(latest)
            process.handle(protocol.ReplicasChanged(OPERATOR, ((group, as_of),)))
            self._count("groups_loaded")
            process.cluster.count("groups_loaded")
        self.end()

    # -- copies --

    def copy(self) -> None:
        """Make replicas, one key group after the other."""
        while self.left:
            group = self.left.pop(0)
            if self._is_of_use(group) and self.process.target.replica_of(group) is None:
                self._slice(group, 0, 0, {})
                return
        self.end()

    def _is_of_use(self, group: KeyGroup) -> bool:
        """Whether a copy is wanted: a later order to clean up may have come first."""
        is_cleaned = self.process.cleaned.get(group, 0) > self.order.version
        return not is_cleaned and self.process.takes_replica(group)

    def _slice(self, group: KeyGroup, number: int, session: int, state: Changes) -> None:
        def then(reply: tuple[int, int | None, Changes] | None) -> None:
            if reply is None:
                self._copied(group, 0, state, None)
                return
            state.update(reply[2])
            if number + 1 < BINS:
                self._slice(group, number + 1, reply[0], state)
            else:
                self._last_delta(group, reply[0], reply[1], state)

        self._ask(
            f"{group} slice {number}",
            lambda process, call: process.source.slice(
                call, group, number, session, self.order.version
            ),
            then,
        )

    def _last_delta(self, group: KeyGroup, session: int, start: int | None, state: Changes) -> None:
        self._ask(
            f"{group} delta",
            lambda process, call: process.source.delta(call, group, (session, start)),
            lambda reply: self._copied(group, session, state, reply),
        )

    def _copied(self, group: KeyGroup, session: int, state: Changes, delta: Parcel | None) -> None:
        process = self.process
        if delta is not None and self._is_of_use(group):
            process.target.forget([group])
            process.memory[group] = merge(merge({}, state), delta.entries)
            process.target.replicas[group] = SimulatedReplica(self.peer, session)
            process.handle(protocol.ReplicasChanged(OPERATOR, ((group, delta.as_of),)))
            self._count("groups_copied")
            process.cluster.count("groups_copied")
        self._work()

    def catch_up(self) -> None:
        """Bring replicas up to date."""
        if not self.left:
            self.end()
            return
        group = self.left.pop(0)
        replica = self.process.target.replica_of(group)
        if not self._is_of_use(group):
            self.catch_up()
            return
        if replica is None:
            self._slice(group, 0, 0, {})
            return

        def then(delta: Parcel | None) -> None:
            process = self.process
            # A shadow transaction may have brought it forward meanwhile.
            is_same = process.target.replica_of(group) == replica
            if delta is not None and is_same and process.takes_replica(group):
                process.memory[group] = merge(process.memory[group], delta.entries)
                process.handle(protocol.ReplicasChanged(OPERATOR, ((group, delta.as_of),)))
                self._count("delta_rows", len(delta.entries))
                process.cluster.count("catch_ups")
            self.catch_up()

        self._ask(
            f"{group} since {replica[1]}",
            lambda process, call: process.source.delta(call, group, replica),
            then,
        )

    def lag(self) -> None:
        """How many replicas are behind their source."""

        def then(epochs: dict[KeyGroup, int | None] | None) -> None:
            held = self.process.machine.held[OPERATOR]
            for group in self.order.groups:
                here = held.get(group)
                if epochs is not None and group in epochs:
                    is_behind = here is None or here.as_of != epochs[group]
                    self._count("behind", int(is_behind))
            self.end()

        self._ask(
            "epochs", lambda process, call: process.source.epochs(call, self.order.groups), then
        )

    # -- imports --

    def start_import(self) -> None:
        """Begin in its own time: transactions may come first."""
        self._after(self.pace, self.bring)

    def bring(self) -> None:
        """Fetch what is missing, one key group after the other."""
        while self.left and not self._is_coming(self.left[0]):
            self.left.pop(0)
        if not self.left:
            self.end()
            return
        if self.order.by_bin:
            self._bring_bin(self.left[0], 0, None)
            return
        group = self.left[0]
        want = self.process.target.want_all(group, ALL_BINS)
        self._ask(
            f"{group}",
            lambda process, call: process.source.fetch(call, [want]),
            lambda reply: self._brought(group, reply[0] if reply else None),
        )

    def _is_coming(self, group: KeyGroup) -> bool:
        """Whether the peer has it; not if it was granted later: nothing has flipped yet."""
        machine = self.process.machine
        source = machine.owners.sources.get(OPERATOR, {}).get(group)
        return source == self.peer and machine.granted.get(group, 0) <= self.order.version

    def _bring_bin(self, group: KeyGroup, number: int, before: Parcel | None) -> None:
        want = self.process.target.want_all(group, frozenset({number}))

        def then(reply: list[Parcel | None] | None) -> None:
            parcel = reply[0] if reply else None
            if parcel is None or (before is not None and before.as_of != parcel.as_of):
                self._brought(group, None)
                return
            entries = {**(before.entries if before else {}), **parcel.entries}
            if number + 1 < BINS:
                self._bring_bin(group, number + 1, Parcel(parcel.kind, parcel.as_of, entries))
            else:
                self._brought(group, Parcel(ParcelKind.FULL, parcel.as_of, entries))

        self._ask(
            f"{group} bin {number}",
            lambda process, call: process.source.fetch(call, [want]),
            then,
        )

    def _brought(self, group: KeyGroup, parcel: Parcel | None) -> None:
        if self.process.target.import_group(group, parcel):
            self._count("groups_imported", int(parcel is not None))
            self.left.pop(0)
            self._after(self.pace, self.bring)
        else:
            self._after(WAIT_TICKS, lambda: self._brought(group, parcel))
