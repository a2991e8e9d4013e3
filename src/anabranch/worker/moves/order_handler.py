"""What the coordinator orders for a move, done on this worker."""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter
from collections.abc import Iterable

from anabranch.model.ids import KeyGroup, WorkerId, epoch_of, number_of
from anabranch.protocol import worker as protocol
from anabranch.protocol.exhaustive import unhandled
from anabranch.protocol.residency import new_owners, residency_of, sources
from anabranch.transport.messages import orders
from anabranch.transport.messages.control import Ping
from anabranch.transport.messages.names import NAMES
from anabranch.transport.messages.orders import OrderReply, SaveReply
from anabranch.transport.messages.state import AsOf, CopyGroups, Deltas, ReplicaLog
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.background_import import BackgroundImport
from anabranch.worker.moves.exports import QUIET_SECONDS_MAX
from anabranch.worker.moves.parcel_reader import ReceivedGroup, receive
from anabranch.worker.moves.rate_limiter import RateLimiter
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.peers import Peers
from anabranch.worker.residency.arrival_table import ArrivalTable
from anabranch.worker.residency.snapshots import Snapshots

_log = logging.getLogger("anabranch.worker")

CALL_SECONDS_MAX = 10.0
RELEASE_SECONDS_MAX = 600.0


class Copying:
    """One running order that copies; `clean` stops it for some key groups."""

    def __init__(self, groups: set[int]) -> None:
        self.groups = groups

    def is_stopped(self, group: int) -> bool:
        """Whether nobody wants the key group any more."""
        return group not in self.groups


class OrderHandler:
    """Each order is one call: done or failed, and may be repeated."""

    def __init__(
        self,
        core: WorkerCore,
        arrivals: ArrivalTable,
        imports: BackgroundImport,
        peers: Peers,
        limiter: RateLimiter,
        snapshots: Snapshots,
    ) -> None:
        self._core = core
        self._arrivals = arrivals
        self._imports = imports
        self._peers = peers
        self._limiter = limiter
        self._snapshots = snapshots
        self._copying: list[Copying] = []
        self._cleaned: dict[int, int] = {}
        """Version of the last clean-up of each key group: an older copy comes too late."""
        self._copying_lock = threading.Lock()

    def set_rate(self, rate: float | None) -> None:
        """Bytes a second of all orders together."""
        self._limiter.set(rate)

    def perform(self, order: orders.Order) -> OrderReply | SaveReply:
        """Do it; the counters of what was done."""
        if isinstance(order, orders.GrantOrder) and order.source is None:
            return self._grant(order)  # no part of a move: what it owns at its start
        name = NAMES[type(order)]
        self._core.pass_point(f"before-{name}")
        reply = self._perform(order)
        self._core.pass_point(f"after-{name}")
        return reply

    def _perform(self, order: orders.Order) -> OrderReply | SaveReply:
        match order:
            case orders.ConnectOrder():
                return self._connect(order)
            case orders.CopyOrder():
                return self._copy(order)
            case orders.CatchUpOrder():
                return self._catch_up(order)
            case orders.GrantOrder():
                return self._grant(order)
            case orders.ReleaseOrder():
                return self._release(order)
            case orders.ImportOrder():
                return self._import(order)
            case orders.CleanOrder():
                return self._clean(order)
            case orders.LagOrder():
                return self._lag(order)
            case orders.SaveOrder():
                return self._save(order)
            case orders.LoadOrder():
                return self._load(order)
            case _:
                unhandled(order)

    def _remember(self, peer: orders.MovePeer) -> WorkerId:
        """The other end of a move, whose address counts from now on."""
        self._peers.remember(peer.worker, peer.address)
        return peer.worker

    def _connect(self, order: orders.ConnectOrder) -> OrderReply:
        hello = Ping(WorkerId(self._core.config.worker))
        self._peers.get(self._remember(order.peer)).call(hello, CALL_SECONDS_MAX)
        return OrderReply({"connected": 1})

    # -- replicas --

    def _copy(self, order: orders.CopyOrder) -> OrderReply:
        counted: Counter[str] = Counter()
        source = self._remember(order.peer)
        self._limiter.set(order.rate)
        copying = self._start(order.groups, order.version)
        try:
            for slot in list(self._core.slots.values()):
                groups = [g for g in sorted(copying.groups) if not self._is_copied(slot, g, source)]
                self._copy_groups(slot, source, groups, copying, counted)
        finally:
            self._end(copying)
        self._core.count(counted)
        return OrderReply(counted)

    def _is_copied(self, slot: OperatorSlot, group: int, source: str) -> bool:
        with self._core.changed:
            is_owned = self._core.is_owner(group)
            return is_owned or self._replica_of(slot, group, source) is not None

    def _replica_of(
        self, slot: OperatorSlot, group: int, source: str
    ) -> protocol.ReplicaOrigin | None:
        """What was copied from a worker; call it with `core.changed` taken."""
        held = self._core.held(slot.name, group)
        replica = held.replica if held is not None else None
        return replica if replica is not None and replica.source == source else None

    def _copy_groups(
        self,
        slot: OperatorSlot,
        source: str,
        groups: list[int],
        copying: Copying,
        counted: Counter[str],
    ) -> None:
        if not groups:
            return
        is_limited = self._limiter.is_limited
        request = CopyGroups(slot.name, slot.definition_id, tuple(groups), is_limited)
        parcels = self._peers.stream(source, request)

        def on_parcel(group: int, size: int) -> None:
            self._limiter.take(size, lambda: copying.is_stopped(group))
            if self._limiter.is_limited:
                self._core.wait_quiet(QUIET_SECONDS_MAX)
            self._core.pass_point("copy-slice")

        try:
            for received in receive(parcels, on_parcel):
                if not copying.groups.intersection(groups):
                    return
                counted.update(received.counted)
                if not received.is_gone and not copying.is_stopped(received.group):
                    self._make_replica(slot, source, received)
                    counted["groups"] += 1
        finally:
            parcels.close()

    def _make_replica(self, slot: OperatorSlot, source: str, received: ReceivedGroup) -> None:
        group, core = received.group, self._core
        state = slot.engine.create_group()
        received.install(state, core.config.keyspace)
        with core.changed:
            if core.is_owner(group) or core.slots.get(slot.name) is not slot:
                return
            if core.machine.is_busy(slot.name, KeyGroup(group)):
                return  # a shadow transaction works on the replica before; copied again later
            slot.put(group, state, received.wear)
            self._arrivals.logs.drop(slot.name, (group,))
            assert received.log is not None
            origin = protocol.ReplicaOrigin(WorkerId(source), received.log)
            self._note_replica(slot, group, received.as_of, origin)

    def _note_replica(
        self, slot: OperatorSlot, group: int, as_of: int, origin: protocol.ReplicaOrigin | None
    ) -> None:
        changed = ((KeyGroup(group), epoch_of(as_of)),)
        self._core.dispatch(protocol.ReplicasChanged(slot.name, changed, origin))

    def _catch_up(self, order: orders.CatchUpOrder) -> OrderReply:
        counted: Counter[str] = Counter()
        source = self._remember(order.peer)
        self._limiter.set(order.rate)
        copying = self._start(order.groups, order.version)
        try:
            for slot in list(self._core.slots.values()):
                since, lost = self._replicas(slot, order.groups, source)
                lost += self._catch_up_groups(slot, source, since, copying, counted)
                wanted = [group for group in lost if not copying.is_stopped(group)]
                self._copy_groups(slot, source, wanted, copying, counted)
        finally:
            self._end(copying)
        self._core.count(counted)
        return OrderReply(counted)

    def _replicas(
        self, slot: OperatorSlot, groups: Iterable[int], source: str
    ) -> tuple[dict[int, ReplicaLog], list[int]]:
        """Replicas with their log and epoch; key groups that have none and are not owned here."""
        since: dict[int, ReplicaLog] = {}
        lost = []
        with self._core.changed:
            for group in groups:
                held = self._core.held(slot.name, group)
                replica = self._replica_of(slot, group, source)
                if self._core.is_owner(group):
                    continue
                if held is None or replica is None:
                    lost.append(group)
                else:
                    since[group] = ReplicaLog(replica.log, number_of(held.as_of))
        return since, lost

    def _catch_up_groups(
        self,
        slot: OperatorSlot,
        source: str,
        since: dict[int, ReplicaLog],
        copying: Copying,
        counted: Counter[str],
    ) -> list[int]:
        """Replay what has changed; the key groups that must be copied anew."""
        lost: list[int] = []
        if not since:
            return lost
        parcels = self._peers.stream(source, Deltas(slot.name, slot.definition_id, since))
        stopped = copying.is_stopped
        for received in receive(
            parcels, lambda g, size: self._limiter.take(size, lambda: stopped(g))
        ):
            counted.update(received.counted)
            as_of = since[received.group].as_of
            if received.is_gone:
                lost.append(received.group)
            elif received.as_of > as_of:
                self._bring_forward(slot, received, as_of)
                counted["groups"] += 1
        return lost

    def _bring_forward(self, slot: OperatorSlot, received: ReceivedGroup, since: int) -> None:
        """Not while a shadow transaction works on the replica, and only if it has not moved."""
        core, group = self._core, received.group
        core.wait_idle(slot.name, (group,), RELEASE_SECONDS_MAX)
        with slot.apply_lock:
            with core.changed:
                held, state = core.held(slot.name, group), slot.states.get(group)
                if held is None or state is None or core.is_owner(group):
                    return
                if core.machine.is_busy(slot.name, KeyGroup(group)):
                    return
                if number_of(held.as_of) != since:
                    return
                # Said first: should it be granted meanwhile, whoever needs it waits for the lock.
                slot.put(group, state, received.wear)
                self._note_replica(slot, group, received.as_of, held.replica)
            try:
                received.replay(state)
                if slot.engine.logs_rows:  # else rows pile up until it is granted
                    slot.engine.catch_up({group: state})
                    state.begin()
            except BaseException as error:
                self._lose_replica(slot, group, error)
                raise

    def _lose_replica(self, slot: OperatorSlot, group: int, error: BaseException) -> None:
        """It is not what was said: nobody may use it."""
        core = self._core
        with core.changed:
            if not core.is_owner(group):
                core.dispatch(protocol.GroupsDropped((KeyGroup(group),), None))
                return
        _log.critical("State of key group %s is broken, so this worker ends: %s", group, error)
        os._exit(1)  # it was granted meanwhile; the next process takes it from the store

    def _start(self, groups: Iterable[int], version: int) -> Copying:
        with self._copying_lock:
            copying = Copying({g for g in groups if self._cleaned.get(g, -1) <= version})
            self._copying.append(copying)
        return copying

    def _end(self, copying: Copying) -> None:
        with self._copying_lock:
            self._copying.remove(copying)

    # -- ownership --

    def _grant(self, order: orders.GrantOrder) -> OrderReply:
        source = None if order.source is None else self._remember(order.source)
        event = protocol.GroupsGranted(
            order.groups, order.version, source, order.arrival, order.ready_first
        )
        with self._core.changed:
            self._arrivals.take_on_demand(order.groups)  # of an earlier move
            self._core.dispatch(event)
        return OrderReply({"groups": len(order.groups)})

    def _release(self, order: orders.ReleaseOrder) -> OrderReply:
        groups, target = order.groups, self._remember(order.target)
        self._core.dispatch(protocol.GroupsReleased(groups, order.version, target))
        for operator in list(self._core.slots):
            self._core.wait_idle(operator, groups, RELEASE_SECONDS_MAX)
        return OrderReply({"groups": len(groups)})

    def _import(self, order: orders.ImportOrder) -> OrderReply:
        self._remember(order.peer)
        self._limiter.set(order.rate)
        counted = self._imports.run(order.groups, order.priority, order.by_bin, order.version)
        return OrderReply(counted)

    def _clean(self, order: orders.CleanOrder) -> OrderReply:
        groups, peer = order.groups, self._remember(order.peer)
        with self._core.changed:
            gone = {group for group in groups if not self._core.is_owner(group)}
        with self._copying_lock:
            for group in groups:
                self._cleaned[group] = max(self._cleaned.get(group, 0), order.version)
            for copying in self._copying:
                copying.groups -= gone
            is_copying = bool(self._copying)
        with self._core.changed:
            for operator in self._core.slots:  # of copies that came to nothing
                self._arrivals.logs.drop(operator, groups)
            self._core.dispatch(protocol.GroupsDropped(groups, order.version))
            used = new_owners(self._core.machine) | sources(self._core.machine)
        if not is_copying:
            self._peers.disconnect(peer, used)
        return OrderReply({"groups": len(gone)})

    def _lag(self, order: orders.LagOrder) -> OrderReply:
        operators = tuple(self._core.slots)
        source = self._peers.get(self._remember(order.peer))
        reply = source.call(AsOf(operators, order.groups), CALL_SECONDS_MAX)
        behind = 0
        with self._core.changed:
            for operator in operators:
                for group, as_of in reply.as_of[operator].items():
                    held = self._core.held(operator, group)
                    behind += held is None or number_of(held.as_of) < as_of
        counted = self._arrivals.take_on_demand(order.groups)
        counted["behind"] = behind
        return OrderReply(counted)

    # -- the store --

    def _save(self, order: orders.SaveOrder) -> SaveReply:
        refs, counted = self._snapshots.save(order.epochs)
        return SaveReply(counted, {operator: tuple(some) for operator, some in refs.items()})

    def _load(self, order: orders.LoadOrder) -> OrderReply:
        counted: Counter[str] = Counter()
        for slot in list(self._core.slots.values()):
            epoch = order.epochs.get(slot.name)
            if epoch is None:
                continue
            with self._core.changed:
                owned = [int(group) for group in self._core.machine.granted]
                groups = [g for g in owned if self._is_absent(slot, g)]
            read = slot.read(self._core.blobs, groups, epoch)
            for group, restored in read.items():
                with self._core.changed:
                    is_idle = not self._core.machine.is_busy(slot.name, KeyGroup(group))
                    if self._is_absent(slot, group) and is_idle:
                        slot.put(group, restored.state, restored.wear)
                        self._note_replica(slot, group, epoch, None)
                        counted["loaded"] += 1
                        counted["rows"] += restored.state.num_rows
        return OrderReply(counted)

    def _is_absent(self, slot: OperatorSlot, group: int) -> bool:
        place = slot.name, KeyGroup(group)
        return residency_of(self._core.machine, *place) is protocol.Residency.ABSENT
