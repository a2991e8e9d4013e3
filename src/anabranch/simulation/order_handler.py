"""A simulated worker carries out the coordinator's orders: done or failed, one answer each."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.model.ids import Epoch, KeyGroup, WorkerId
from anabranch.protocol import coordinator as control
from anabranch.protocol import worker as protocol
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.move_orders import OrderKind, WorkerOrder
from anabranch.protocol.residency import importable
from anabranch.simulation.calls import SimulatedCall, ask
from anabranch.simulation.oracle import OPERATOR, Changes, merge
from anabranch.simulation.parcels import BINS, ParcelKind, SimulatedParcel
from anabranch.simulation.target import want_all

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
        coordinator = process.coordinator
        network = process.cluster.network
        network.send(process, coordinator, None, label, coordinator.handle, event)

    def _count(self, name: str, amount: int = 1) -> None:
        self.counters[name] = self.counters.get(name, 0) + amount

    def _after(self, ticks: int, action: Callable[[], None]) -> None:
        scheduler = self.process.scheduler
        scheduler.after(scheduler.delay(ticks), "", self._go_on, action)

    def _go_on(self, action: Callable[[], None]) -> None:
        if self.process.is_alive and not self.is_over:
            action()

    def _ask(
        self,
        label: str,
        serve: Callable[[WorkerProcess, SimulatedCall], None],
        then: Callable[..., None],
    ) -> None:
        ask(self.process, self.peer, f"{self.order.kind.value} {label}", serve, then)

    # -- ownership --

    def grant(self) -> None:
        """Own key groups."""
        order = self.order
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
            is_coming = machine.source_of(OPERATOR, group) is not None
            if group in machine.held[OPERATOR] or is_coming or machine.is_busy(OPERATOR, group):
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
            if self._is_of_use(group) and self._replica(group) is None:
                self._slice(group, 0, 0, {})
                return
        self.end()

    def _is_of_use(self, group: KeyGroup) -> bool:
        """Whether a copy is wanted: a later order to clean up may have come first."""
        is_cleaned = self.process.cleaned.get(group, 0) > self.order.version
        return not is_cleaned and self.process.takes_replica(group)

    def _replica(self, group: KeyGroup) -> tuple[int, int | None] | None:
        """Copy session and epoch of what was copied from the peer before."""
        held = self.process.machine.held[OPERATOR].get(group)
        if held is None or held.replica is None or held.replica.source != self.peer:
            return None
        return held.replica.log, held.as_of

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

    def _copied(
        self, group: KeyGroup, session: int, state: Changes, delta: SimulatedParcel | None
    ) -> None:
        process = self.process
        if delta is not None and self._is_of_use(group):
            process.target.forget([group])
            process.memory[group] = merge(merge({}, state), delta.entries)
            origin = protocol.ReplicaOrigin(self.peer, session)
            process.handle(protocol.ReplicasChanged(OPERATOR, ((group, delta.as_of),), origin))
            self._count("groups_copied")
            process.cluster.count("groups_copied")
        self._work()

    def catch_up(self) -> None:
        """Bring replicas up to date."""
        if not self.left:
            self.end()
            return
        group = self.left.pop(0)
        if not self._is_of_use(group):
            self.catch_up()
            return
        replica = self._replica(group)
        if replica is None:
            self._slice(group, 0, 0, {})
            return

        def then(delta: SimulatedParcel | None) -> None:
            process = self.process
            # A shadow transaction may have brought it forward meanwhile.
            is_same = self._replica(group) == replica
            if delta is not None and is_same and process.takes_replica(group):
                process.memory[group] = merge(process.memory[group], delta.entries)
                origin = protocol.ReplicaOrigin(self.peer, replica[0])
                process.handle(protocol.ReplicasChanged(OPERATOR, ((group, delta.as_of),), origin))
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
        self.process.handle(protocol.ImportBegan(self.order.groups, self.order.version))
        self._after(self.pace, self.bring)

    def bring(self) -> None:
        """Fetch what is missing, one key group after the other."""
        while self.left and self._request() is None:
            self.left.pop(0)
        request = self._request()
        if request is None:
            self.process.handle(protocol.ImportEnded(self.order.groups))
            self.end()
            return
        if self.process.machine.is_busy(OPERATOR, request.group, shadows=True):
            self._after(WAIT_TICKS, self.bring)  # it would come on top of what is brought
            return
        by_bin = self.order.by_bin and request.replica is None
        bins = frozenset({min(request.missing)}) if by_bin else frozenset(request.missing)
        want = want_all(request, bins)
        self._ask(
            f"{request.group} bins {sorted(bins)}",
            lambda process, call: process.source.fetch(call, [want]),
            lambda reply: self._received(request, reply[0] if reply else None),
        )

    def _request(self) -> protocol.SourceRequest | None:
        """What to ask the peer for next."""
        if not self.left:
            return None
        found = importable(self.process.machine, self.left[:1], self.order.version)
        return next((request for _, request in found if request.source == self.peer), None)

    def _received(self, request: protocol.SourceRequest, parcel: SimulatedParcel | None) -> None:
        """Pieces come one after the other; transactions may await the last one."""
        group = ((request.group, request.session),)
        self.process.handle(protocol.PartReceiving(OPERATOR, group))
        self._after(self.pace, lambda: self._offer(request, parcel))

    def _offer(self, request: protocol.SourceRequest, parcel: SimulatedParcel | None) -> None:
        process, group, session = self.process, request.group, request.session
        process.handle(protocol.ReceivingEnded(OPERATOR, ((group, session),)))
        found = self._from_source(request, parcel) if parcel else self._from_store(request)
        if found is None or (group, session) in process.target.offers:
            self._next(group, False, True)
            return
        is_last = found[0].bins.issuperset(request.missing)
        process.target.offer(*found, lambda done: self._next(group, done, is_last or not done))

    def _from_source(
        self, request: protocol.SourceRequest, parcel: SimulatedParcel
    ) -> tuple[protocol.PartOffered, SimulatedParcel]:
        bins, since = parcel.bins.intersection(request.missing), None
        kind = protocol.PartKind.BINS
        if parcel.kind is ParcelKind.DELTA:
            assert request.replica is not None
            kind, since = protocol.PartKind.DELTA, request.replica[1]
        place = OPERATOR, request.group, request.session
        return protocol.PartOffered(*place, kind, parcel.as_of, bins, since), parcel

    def _from_store(
        self, request: protocol.SourceRequest
    ) -> tuple[protocol.PartOffered, SimulatedParcel] | None:
        """The source does not have it: sometimes the last epoch is tried, else a transaction."""
        store = self.process.cluster.store
        latest, _ = store.latest()
        if latest is None or self.process.cluster.rng.random() < 0.5:
            return None
        is_used = request.phase is protocol.Residency.PARTIAL
        kind = protocol.PartKind.REST if is_used else protocol.PartKind.WHOLE
        as_of, bins = Epoch(latest), frozenset(request.missing)
        place = OPERATOR, request.group, request.session
        parcel = SimulatedParcel(ParcelKind.FULL, as_of, dict(store.restore(request.group, latest)))
        return protocol.PartOffered(*place, kind, as_of, bins), parcel

    def _next(self, group: KeyGroup, is_done: bool, is_last: bool) -> None:
        if is_done:
            self._count("groups_imported", int(is_last))
            self.process.cluster.count("groups_imported", int(is_last))
        if is_last and self.left and self.left[0] == group:
            self.left.pop(0)
        self._after(self.pace, self.bring)
