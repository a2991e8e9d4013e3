"""The target's side of a move: what a transaction needs is fetched, or read from the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.errors import LocationNotWritable
from anabranch.migration.steps import Arrival
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.protocol import worker as protocol
from anabranch.simulation.calls import Call, ask
from anabranch.simulation.oracle import OPERATOR, merge
from anabranch.simulation.parcels import (
    ALL_BINS,
    NO_KEYS,
    Parcel,
    ParcelKind,
    Partial,
    SimulatedReplica,
    Want,
    bin_of,
)

if TYPE_CHECKING:
    from anabranch.simulation.worker import WorkerProcess

LOAD_TICKS, BLOCK_TICKS = 4, 80


class PendingLoad:
    """One LoadGroups that is being carried out."""

    __slots__ = ("awaited", "effect", "parcels")

    def __init__(self, effect: protocol.LoadGroups) -> None:
        self.effect = effect
        self.awaited: set[KeyGroup] = {
            group for group, source in effect.sources if source != protocol.STORE
        }
        self.parcels: dict[KeyGroup, Parcel] = {}


class Target:
    """What one process gets from others and from the store."""

    __slots__ = ("blocked", "not_imported", "partial", "process", "replicas")

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.partial: dict[KeyGroup, Partial] = {}
        self.replicas: dict[KeyGroup, SimulatedReplica] = {}
        self.blocked: dict[KeyGroup, PendingLoad] = {}
        """Loads that wait for the import."""
        self.not_imported: set[KeyGroup] = set()
        """Key groups whose import has ended without success: nobody waits for it."""

    def forget(self, groups: Iterable[KeyGroup]) -> None:
        """The state of key groups was dropped or replaced."""
        for group in groups:
            self.partial.pop(group, None)
            self.replicas.pop(group, None)
            self.process.source.replaced(group)

    # -- what a transaction needs --

    def load(self, effect: protocol.LoadGroups) -> None:
        """Bring key groups here, each from its source or from the store."""
        load = PendingLoad(effect)
        if not load.awaited:
            self._read(load)
            return
        arrival = self.process.machine.owners.arrival
        by_source: dict[WorkerId, list[KeyGroup]] = {}
        for group, source in effect.sources:
            if group not in load.awaited:
                continue
            if arrival[group] is Arrival.BLOCK and group not in self.not_imported:
                self.blocked[group] = load
                scheduler = self.process.cluster.scheduler
                scheduler.after(BLOCK_TICKS, "", self._stop_waiting, group, source, load)
            else:
                by_source.setdefault(source, []).append(group)
        for source, groups in by_source.items():
            self._fetch(load, source, groups)

    def _stop_waiting(self, group: KeyGroup, source: WorkerId, load: PendingLoad) -> None:
        if self.process.is_alive and self.blocked.get(group) is load:
            del self.blocked[group]
            self._fetch(load, source, [group])

    def _fetch(self, load: PendingLoad, source: WorkerId, groups: list[KeyGroup]) -> None:
        wants = [self._want(load, group) for group in groups]

        def serve(process: WorkerProcess, call: Call) -> None:
            process.source.fetch(call, wants)

        def then(parcels: list[Parcel | None] | None) -> None:
            for group, parcel in zip(groups, parcels or [None] * len(groups), strict=True):
                self._brought(load, group, parcel)

        tx = load.effect.tx
        ask(self.process, source, f"for {groups} as of {load.effect.as_of} (tx{tx})", serve, then)

    def _want(self, load: PendingLoad, group: KeyGroup) -> Want:
        process = self.process
        exchange = process.exchanges[load.effect.tx]
        mode = process.machine.owners.arrival[group]
        version = process.machine.granted.get(group, 0)  # 0: released meanwhile, will be refused
        partial = self.partial.get(group)
        origin = load.effect.as_of if partial is None else partial.origin
        keys = frozenset(key for key, _, _ in exchange.rows.get(group, []))
        bins = ALL_BINS
        if mode is Arrival.BIN:
            bins = frozenset(bin_of(key) for key in keys)
        elif mode is not Arrival.KEY:
            mode = Arrival.GROUP
        if partial is not None:
            bins = bins & partial.missing
            keys = frozenset(key for key in keys if partial.lacks(key))
        replica = self.replica_of(group)
        epoch = exchange.opened.epoch
        return Want(group, version, origin, False, mode, epoch, bins, keys, replica)

    def replica_of(self, group: KeyGroup) -> tuple[int, int | None] | None:
        """Copy session and epoch of a replica that a delta can complete."""
        replica = self.replicas.get(group)
        held = self.process.machine.held[OPERATOR].get(group)
        if replica is None or held is None or held.is_partial:
            return None
        return replica.session, held.as_of

    def _brought(self, load: PendingLoad, group: KeyGroup, parcel: Parcel | None) -> None:
        if not self.process.is_alive:
            return
        load.awaited.discard(group)
        if parcel is not None:
            load.parcels[group] = parcel
        if not load.awaited:
            self._read(load)

    def _read(self, load: PendingLoad) -> None:
        """Everything that no source had comes from the store."""
        effect = load.effect
        wanted = tuple(g for g in effect.groups if g not in load.parcels)
        fallbacks = sum(g in wanted for g, source in effect.sources if source != protocol.STORE)
        self.process.cluster.count("fallbacks", fallbacks)
        if not wanted:
            self._loaded(load, wanted)
            return
        scheduler = self.process.cluster.scheduler
        label = f"{self.process.name} tx{effect.tx} load {wanted} as of {effect.as_of}"
        scheduler.after(scheduler.delay(LOAD_TICKS), label, self._loaded, load, wanted)

    def _loaded(self, load: PendingLoad, wanted: tuple[KeyGroup, ...]) -> None:
        process, effect = self.process, load.effect
        if not process.is_alive:
            return
        if wanted and process.cluster.faults.load_fails():
            self.forget(effect.groups)
            process.failed(effect.tx, LocationNotWritable("simulated read failure"))
            return
        stored = tuple(process.stored.read(effect, wanted))
        for group, parcel in load.parcels.items():
            self.install(group, parcel)
        partial = tuple(group for group in effect.groups if group in self.partial)
        process.handle(protocol.GroupsLoaded(effect.tx, partial, stored))

    # -- what has arrived --

    def install(self, group: KeyGroup, parcel: Parcel) -> None:
        """Put what a source has sent into memory."""
        process = self.process
        if parcel.kind is ParcelKind.FULL and group not in self.partial:
            process.cluster.count("groups_fetched")
            self.forget([group])
            process.memory[group] = merge({}, parcel.entries)
            return
        if parcel.kind is ParcelKind.DELTA:
            process.cluster.count("deltas")
            process.memory[group] = merge(process.memory[group], parcel.entries)
            self.forget([group])
            return
        self._install_part(group, parcel)

    def _install_part(self, group: KeyGroup, parcel: Parcel) -> None:
        process = self.process
        partial = self.partial.get(group)
        if partial is None:
            self.forget([group])
            partial = self.partial[group] = Partial(parcel.as_of)
            process.memory[group] = {}
        wanted = {key: value for key, value in parcel.entries.items() if partial.lacks(key)}
        process.memory[group] = merge(process.memory[group], wanted)
        process.cluster.count("keys_fetched" if parcel.keys else "bins_fetched")
        partial.keys |= parcel.keys
        partial.missing -= parcel.bins
        if not partial.missing:
            del self.partial[group]

    # -- imports --

    def import_group(self, group: KeyGroup, parcel: Parcel | None) -> bool:
        """The import has brought all that is missing; False: it has to wait."""
        process = self.process
        sources = process.machine.owners.sources.get(OPERATOR, {})
        load = self.blocked.pop(group, None)
        if load is not None:
            if parcel is not None and parcel.as_of != load.effect.as_of:
                parcel = None
            self._brought(load, group, parcel)
            return True
        if any(group in tx.loading for tx in process.machine.transactions.values()):
            return False
        if self.is_shadowed(group):
            return False
        if sources.get(group) == protocol.STORE:
            return True
        if parcel is None or group not in sources:
            self.not_imported.add(group)
            return True
        partial = self.partial.get(group)
        if partial is not None and partial.origin != parcel.as_of:
            return True
        if partial is None and parcel.kind is ParcelKind.DELTA and self.replica_of(group) is None:
            return True
        self.install(group, parcel)
        process.cluster.count("groups_imported")
        process.handle(protocol.GroupsImported(OPERATOR, ((group, parcel.as_of),)))
        return True

    def is_shadowed(self, group: KeyGroup) -> bool:
        """Whether a shadow transaction that began before the grant still works on it."""
        return self.process.machine.is_busy(OPERATOR, group, shadows=True)

    def want_all(self, group: KeyGroup, bins: frozenset[int]) -> Want:
        """What an import asks for."""
        partial = self.partial.get(group)
        version = self.process.machine.granted.get(group, 0)
        replica = self.replica_of(group) if bins == ALL_BINS else None
        if partial is None:
            return Want(group, version, None, True, bins=bins, replica=replica)
        return Want(group, version, partial.origin, bins=bins, keys=NO_KEYS)
