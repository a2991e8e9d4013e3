"""The store as a source: parts of key groups are read when needed, the rest in the background."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import LocationNotWritable
from anabranch.model.ids import Epoch, KeyGroup
from anabranch.protocol import worker as protocol
from anabranch.protocol.residency import may_evict
from anabranch.protocol.residency_messages import Residency
from anabranch.simulation.oracle import OPERATOR, Changes, merge
from anabranch.simulation.parcels import ALL_BINS, NO_KEYS, ParcelKind, SimulatedParcel, bin_of

if TYPE_CHECKING:
    from anabranch.simulation.worker import WorkerProcess

LOAD_TICKS, REST_TICKS, EVICT_TICKS = 4, 60, 150


class Stored:
    """What one process has left in the store."""

    __slots__ = ("process", "rng")

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.rng = process.cluster.store_rng

    # -- for a transaction --

    def load(self, effect: protocol.LoadGroups) -> None:
        """Read key groups, or what the transaction needs of them."""
        scheduler = self.process.scheduler
        groups = (*effect.groups, *dict(effect.parts))
        label = f"{self.process.name} tx{effect.tx} load {groups} as of {effect.as_of}"
        scheduler.after(scheduler.delay(LOAD_TICKS), label, self._loaded, effect)

    def _loaded(self, effect: protocol.LoadGroups) -> None:
        process = self.process
        if not process.is_alive:
            return
        if process.cluster.faults.load_fails():
            process.target.forget((*effect.groups, *dict(effect.parts)))
            process.failed(effect.tx, LocationNotWritable("simulated read failure"))
            return
        stored = [*self._read_new(effect), *self._read_parts(effect)]
        process.handle(protocol.GroupsLoaded(effect.tx, tuple(stored)))
        for group, _ in stored:
            self._later(group)

    def _read_new(self, effect: protocol.LoadGroups) -> list[tuple[KeyGroup, tuple[int, ...]]]:
        process, stored = self.process, []
        for group in effect.groups:
            process.target.forget([group])
            process.memory[group] = {}
            if effect.as_of is None or self.rng is None or self.rng.random() < 0.3:
                process.memory[group] = process.cluster.store.restore(group, effect.as_of)
                continue
            process.target.put(group, self._parcel(effect, group, ALL_BINS), ALL_BINS)
            stored.append((group, tuple(ALL_BINS)))
        return stored

    def _read_parts(self, effect: protocol.LoadGroups) -> list[tuple[KeyGroup, tuple[int, ...]]]:
        stored = []
        for group, bins in effect.parts:
            missing = frozenset(bins)
            self.process.target.put(group, self._parcel(effect, group, missing), missing)
            stored.append((group, bins))
        return stored

    def _parcel(
        self, effect: protocol.LoadGroups, group: KeyGroup, missing: frozenset[int]
    ) -> SimulatedParcel:
        process = self.process
        exchange = process.exchanges[effect.tx]
        state = process.cluster.store.restore(group, effect.as_of)
        epoch = exchange.opened.epoch
        keys = {key for key, _, _ in exchange.rows.get(group, [])}
        keys |= {key for key, (_, due) in state.items() if due is not None and due <= epoch}
        wanted = frozenset(key for key in keys if process.target.lacks(group, key, missing))
        process.cluster.count("keys_from_store", len(wanted))
        entries: Changes = {key: state.get(key) for key in wanted}
        return SimulatedParcel(ParcelKind.PART, effect.as_of, entries, frozenset(), wanted)

    # -- in the background --

    def _later(self, group: KeyGroup) -> None:
        record = self.process.machine.arrivals.find(OPERATOR, group)
        if self.rng is None or record is None:
            return
        delay = 1 + int(self.rng.random() * REST_TICKS)
        scheduler = self.process.scheduler
        scheduler.after(delay, "", self._bring_rest, group, record.session)

    def _bring_rest(self, group: KeyGroup, session: int) -> None:
        """Untouched since it was left in the store: as of any epoch from then up to now."""
        process, machine, rng = self.process, self.process.machine, self.rng
        record = machine.arrivals.find(OPERATOR, group)
        is_same = record is not None and record.session == session
        if not process.is_alive or record is None or not is_same or rng is None:
            return
        if record.phase is not Residency.STORED or record.is_broken:
            return
        if (group, session) in process.target.offers:
            return
        held = machine.held[OPERATOR].get(group)
        now = held.as_of if held is not None else None
        is_committed = now in process.cluster.store.manifests
        epoch = now if is_committed and rng.random() < 0.5 else record.origin
        state = process.cluster.store.restore(group, epoch)
        some = frozenset({min(record.missing)}) if rng.random() < 0.5 else frozenset(record.missing)
        found: Changes = {key: value for key, value in state.items() if bin_of(key) in some}
        parcel = SimulatedParcel(ParcelKind.PART, epoch, found, some, NO_KEYS)
        kind = protocol.PartKind.REST
        offer = protocol.PartOffered(OPERATOR, group, session, kind, epoch, some)
        process.target.offer(offer, parcel, lambda done: self._brought(group, len(some), done))

    def _brought(self, group: KeyGroup, bins: int, is_done: bool) -> None:
        if is_done:
            self.process.cluster.count("bins_from_store", bins)
        self._later(group)

    # -- back into the store --

    def evict_later(self) -> None:
        """Take something out of memory, some time."""
        if self.rng is not None:
            delay = 1 + int(self.rng.random() * EVICT_TICKS)
            self.process.scheduler.after(delay, "", self._evict)

    def _evict(self) -> None:
        process, rng = self.process, self.rng
        if not process.is_alive or process.cluster.driver.is_finished or rng is None:
            return
        for group in sorted(process.machine.held.get(OPERATOR, {})):
            if self._may_evict(group) and rng.random() < 0.5:
                self._evict_bins(group, {b for b in ALL_BINS if rng.random() < 0.6} or {0})
        self.evict_later()

    def _may_evict(self, group: KeyGroup) -> bool:
        process = self.process
        as_of = process.machine.held[OPERATOR][group].as_of
        is_committed = as_of is not None and as_of in process.cluster.store.manifests
        return is_committed and may_evict(process.machine, OPERATOR, group, Epoch(as_of or 0))

    def _evict_bins(self, group: KeyGroup, bins: set[int]) -> None:
        process, target = self.process, self.process.target
        record = process.machine.arrivals.find(OPERATOR, group)
        missing = bins | (record.missing if record is not None else set())
        target.keys[group] = {k for k in target.keys.get(group, ()) if bin_of(k) not in bins}
        process.source.replaced(group)
        kept: Changes = {
            k: v for k, v in process.memory[group].items() if not target.lacks(group, k, missing)
        }
        process.memory[group] = merge({}, kept)
        as_of = process.machine.held[OPERATOR][group].as_of
        assert as_of is not None
        process.cluster.count("groups_evicted")
        process.handle(protocol.GroupsEvicted(OPERATOR, ((group, tuple(sorted(bins))),), as_of))
        assert self.rng is not None
        if self.rng.random() < 0.5:
            self._later(group)
