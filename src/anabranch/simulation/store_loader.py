"""The store as a source: parts of key groups are read when needed, the rest in the background."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.model.ids import Epoch, KeyGroup
from anabranch.protocol import worker as protocol
from anabranch.simulation.oracle import OPERATOR, Changes, merge
from anabranch.simulation.parcels import ALL_BINS, NO_KEYS, Parcel, ParcelKind, Partial, bin_of

if TYPE_CHECKING:
    from anabranch.simulation.worker import WorkerProcess

REST_TICKS, EVICT_TICKS = 60, 150


class Stored:
    """What one process has left in the store."""

    __slots__ = ("process", "rng")

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.rng = process.cluster.store_rng

    # -- for a transaction --

    def read(self, effect: protocol.LoadGroups, groups: Iterable[KeyGroup]) -> list[KeyGroup]:
        """Put key groups, or what the transaction needs of them, into memory; those in part."""
        process = self.process
        partial = process.target.partial
        sources = dict(effect.sources)
        for group in groups:
            if group not in partial or sources.get(group) != protocol.STORE:
                process.target.forget([group])
                process.memory[group] = {}
                if effect.as_of is None or self.rng is None or self.rng.random() < 0.3:
                    process.memory[group] = process.cluster.store.restore(group, effect.as_of)
                    continue
                partial[group] = Partial(effect.as_of)
                self._later(group, partial[group])
            process.target.install(group, self._parcel(effect, group, partial[group]))
        return [group for group in groups if group in partial]

    def _parcel(self, effect: protocol.LoadGroups, group: KeyGroup, partial: Partial) -> Parcel:
        process = self.process
        exchange = process.exchanges[effect.tx]
        state = process.cluster.store.restore(group, effect.as_of)
        epoch = exchange.opened.epoch
        keys = {key for key, _, _ in exchange.rows.get(group, [])}
        keys |= {key for key, (_, due) in state.items() if due is not None and due <= epoch}
        wanted = frozenset(key for key in keys if partial.lacks(key))
        process.cluster.count("keys_from_store", len(wanted))
        entries: Changes = {key: state.get(key) for key in wanted}
        return Parcel(ParcelKind.PART, partial.origin, entries, frozenset(), wanted)

    # -- in the background --

    def _later(self, group: KeyGroup, partial: Partial) -> None:
        assert self.rng is not None
        scheduler = self.process.cluster.scheduler
        delay = 1 + int(self.rng.random() * REST_TICKS)
        scheduler.after(delay, "", self._bring_rest, group, partial)

    def _bring_rest(self, group: KeyGroup, partial: Partial) -> None:
        """Untouched since it was left in the store: as of any epoch from then up to now."""
        process = self.process
        machine, target = process.machine, process.target
        if not process.is_alive or target.partial.get(group) is not partial:
            return
        if machine.owners.sources[OPERATOR].get(group) != protocol.STORE:
            return
        if any(group in tx.loading for tx in machine.transactions.values()):
            self._later(group, partial)
            return
        assert self.rng is not None
        now = machine.held[OPERATOR][group].as_of
        is_committed = now in process.cluster.store.manifests
        epoch = now if is_committed and self.rng.random() < 0.5 else partial.origin
        state = process.cluster.store.restore(group, epoch)
        some = frozenset({min(partial.missing)}) if self.rng.random() < 0.5 else ALL_BINS
        found: Changes = {key: value for key, value in state.items() if bin_of(key) in some}
        target.install(group, Parcel(ParcelKind.PART, partial.origin, found, some, NO_KEYS))
        process.cluster.count("bins_from_store", len(some))
        if group in target.partial:
            self._later(group, partial)
            process.cluster.checks.contents(process)
        else:
            process.handle(protocol.GroupsImported(OPERATOR, ((group, partial.origin),)))

    # -- back into the store --

    def evict_later(self) -> None:
        """Take something out of memory, some time."""
        if self.rng is not None:
            delay = 1 + int(self.rng.random() * EVICT_TICKS)
            self.process.cluster.scheduler.after(delay, "", self._evict)

    def _evict(self) -> None:
        process, rng = self.process, self.rng
        if not process.is_alive or process.cluster.driver.is_finished or rng is None:
            return
        machine = process.machine
        for group in sorted(machine.held.get(OPERATOR, {})):
            if self._may_evict(group) and rng.random() < 0.5:
                self._evict_bins(group, {b for b in ALL_BINS if rng.random() < 0.6} or {0})
                groups = (KeyGroup(group),)
                process.cluster.count("groups_evicted")
                process.handle(protocol.GroupsEvicted(OPERATOR, groups))
        self.evict_later()

    def _may_evict(self, group: KeyGroup) -> bool:
        process, machine = self.process, self.process.machine
        held = machine.held[OPERATOR][group]
        source = machine.owners.sources[OPERATOR].get(group, protocol.STORE)
        return (
            machine.owners.is_owner(group)
            and source == protocol.STORE
            and not machine.is_busy(OPERATOR, group)
            and held.as_of in process.cluster.store.manifests
        )

    def _evict_bins(self, group: KeyGroup, bins: set[int]) -> None:
        process, target = self.process, self.process.target
        as_of = process.machine.held[OPERATOR][group].as_of
        before = target.partial.get(group)
        partial = Partial(Epoch(as_of) if as_of is not None else None, set(bins))
        if before is not None:
            partial.missing |= before.missing
            partial.keys = {key for key in before.keys if bin_of(key) not in bins}
        state = process.memory[group]
        process.source.replaced(group)
        process.memory[group] = merge({}, {k: v for k, v in state.items() if not partial.lacks(k)})
        target.partial[group] = partial
        assert self.rng is not None
        if self.rng.random() < 0.5:
            self._later(group, partial)
