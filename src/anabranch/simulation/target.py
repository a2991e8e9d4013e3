"""The target's side of a move: what a transaction needs is fetched, what imports bring is put in.

The machine decides; this only carries its effects out on the simulated memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.migration.steps import Arrival
from anabranch.model.ids import KeyGroup, WorkerId
from anabranch.protocol import worker as protocol
from anabranch.simulation.calls import SimulatedCall, ask
from anabranch.simulation.oracle import OPERATOR, Changes, KeyStates, merge
from anabranch.simulation.parcels import ALL_BINS, ParcelKind, SimulatedParcel, Want, bin_of

if TYPE_CHECKING:
    from anabranch.simulation.worker import WorkerProcess

AWAIT_TICKS, INSTALL_TICKS = 80, 2

Then = Callable[[bool], None]


class PendingFetch:
    """One FetchGroups that is being carried out."""

    __slots__ = ("awaited", "effect", "parts")

    def __init__(self, effect: protocol.FetchGroups) -> None:
        self.effect = effect
        self.awaited = {request.group for request in effect.requests}
        self.parts: list[protocol.FetchedPart] = []


class Target:
    """What one process gets from others."""

    __slots__ = ("keys", "offers", "process", "staged")

    def __init__(self, process: WorkerProcess) -> None:
        self.process = process
        self.keys: dict[KeyGroup, set[int]] = {}
        """Keys of missing bins that came one by one: left out when their bin arrives."""
        self.staged: dict[KeyGroup, KeyStates] = {}
        """What imports have brought and no transaction has used."""
        self.offers: dict[
            tuple[KeyGroup, int], tuple[protocol.PartOffered, SimulatedParcel, Then]
        ] = {}

    def forget(self, groups: Collection[KeyGroup]) -> None:
        """The state of key groups was dropped or replaced."""
        self.forget_parts(groups)
        for group in groups:
            self.process.source.replaced(group)

    def forget_parts(self, groups: Collection[KeyGroup]) -> None:
        """Key groups arrive no longer."""
        for group in groups:
            self.keys.pop(group, None)
            self.staged.pop(group, None)

    def lacks(self, group: KeyGroup, key: int, missing: Iterable[int]) -> bool:
        """Whether a key's state is not here."""
        return bin_of(key) in missing and key not in self.keys.get(group, ())

    # -- what a transaction needs --

    def await_arrivals(self, effect: protocol.AwaitArrivals) -> None:
        """Not for ever."""
        self.process.cluster.count("awaited")
        self._expire_later(effect.tx)

    def _expire_later(self, tx: int) -> None:
        self.process.scheduler.after(AWAIT_TICKS, "", self._expire, tx)

    def _expire(self, tx: int) -> None:
        self.process.handle(protocol.AwaitingExpired(tx))
        found = self.process.machine.transactions.get(tx)
        is_alive = self.process.is_alive
        if is_alive and found is not None and found.phase is protocol.TxPhase.AWAITING:
            self._expire_later(tx)

    def fetch(self, effect: protocol.FetchGroups) -> None:
        """Ask the sources."""
        fetch = PendingFetch(effect)
        by_source: dict[WorkerId, list[protocol.SourceRequest]] = {}
        for request in effect.requests:
            by_source.setdefault(request.source, []).append(request)
        for source, some in by_source.items():
            self._ask(fetch, source, some)

    def _ask(
        self, fetch: PendingFetch, source: WorkerId, some: list[protocol.SourceRequest]
    ) -> None:
        wants = [self._want(fetch, request) for request in some]

        def serve(process: WorkerProcess, call: SimulatedCall) -> None:
            process.source.fetch(call, wants)

        def then(parcels: list[SimulatedParcel | None] | None) -> None:
            for request, parcel in zip(some, parcels or [None] * len(some), strict=True):
                self._brought(fetch, request, parcel)

        tx, groups = fetch.effect.tx, [request.group for request in some]
        ask(self.process, source, f"for {groups} (tx{tx})", serve, then)

    def _want(self, fetch: PendingFetch, request: protocol.SourceRequest) -> Want:
        exchange = self.process.exchanges[fetch.effect.tx]
        group, mode = request.group, request.arrival
        keys = frozenset(key for key, _, _ in exchange.rows.get(group, []))
        bins = frozenset(request.missing)
        if mode is Arrival.BIN:
            bins &= frozenset(bin_of(key) for key in keys)
        elif mode is not Arrival.KEY:
            mode = Arrival.GROUP
        keys = frozenset(key for key in keys if self.lacks(group, key, request.missing))
        epoch, replica = exchange.opened.epoch, replica_of(request)
        version, as_of = request.version, request.as_of
        return Want(group, version, as_of, False, mode, epoch, bins, keys, replica)

    def _brought(
        self, fetch: PendingFetch, request: protocol.SourceRequest, parcel: SimulatedParcel | None
    ) -> None:
        process = self.process
        if not process.is_alive:
            return
        fetch.awaited.discard(request.group)
        if parcel is not None:
            fetch.parts.append(self._take_in(request, parcel))
        if not fetch.awaited:
            lost = len(fetch.effect.requests) - len(fetch.parts)
            process.cluster.count("fallbacks", lost)
            process.handle(protocol.GroupsFetched(fetch.effect.tx, tuple(fetch.parts)))

    def _take_in(
        self, request: protocol.SourceRequest, parcel: SimulatedParcel
    ) -> protocol.FetchedPart:
        process, group = self.process, request.group
        is_whole = parcel.kind is ParcelKind.DELTA
        bins: tuple[int, ...] = ()
        if parcel.kind is ParcelKind.DELTA:
            process.cluster.count("deltas")
            self.forget([group])
            process.memory[group] = merge(process.memory[group], parcel.entries)
        elif parcel.kind is ParcelKind.FULL and not is_here(request):
            process.cluster.count("groups_fetched")
            self.forget([group])
            process.memory[group], is_whole = merge({}, parcel.entries), True
        else:
            process.cluster.count("keys_fetched" if parcel.keys else "bins_fetched")
            if not is_here(request):
                self.forget([group])
                process.memory[group] = {}
            self.put(group, parcel, request.missing)
            bins = tuple(sorted(parcel.bins.intersection(request.missing)))
        return protocol.FetchedPart(group, request.session, parcel.as_of, bins, is_whole)

    def put(self, group: KeyGroup, parcel: SimulatedParcel, missing: Iterable[int]) -> None:
        """Add what is not here of a part."""
        self.process.memory[group] = merge(
            self.process.memory[group], self._new_in(group, parcel, missing)
        )
        self.keys.setdefault(group, set()).update(parcel.keys)

    def _new_in(self, group: KeyGroup, parcel: SimulatedParcel, missing: Iterable[int]) -> Changes:
        entries = parcel.entries.items()
        return {key: value for key, value in entries if self.lacks(group, key, missing)}

    # -- what imports and the store offer --

    def offer(self, offer: protocol.PartOffered, parcel: SimulatedParcel, then: Then) -> None:
        """Something was brought; `then` hears whether it was of use."""
        self.offers[offer.group, offer.session] = offer, parcel, then
        self.process.handle(offer)

    def discard(self, effect: protocol.DiscardPart) -> None:
        """It is not."""
        _, _, then = self.offers.pop((effect.group, effect.session))
        self.process.scheduler.after(1, "", then, False)

    def install(self, effect: protocol.InstallPart) -> None:
        """It is: put it in place, which takes a moment."""
        scheduler = self.process.scheduler
        label = f"{self.process.name} installs {effect.group}"
        scheduler.after(scheduler.delay(INSTALL_TICKS), label, self._installed, effect)

    def _installed(self, effect: protocol.InstallPart) -> None:
        process, group = self.process, effect.group
        if not process.is_alive:
            return
        offer, parcel, then = self.offers.pop((group, effect.session))
        record = process.machine.arrivals.find(OPERATOR, group)
        is_current = record is not None and record.session == effect.session
        if record is not None and is_current:
            if process.cluster.faults.install_fails():
                half = replace(parcel, entries=dict(list(parcel.entries.items())[::2]))
                self._put_in_place(offer, half, effect.is_staged, record.missing)
                process.handle(protocol.PartFailed(OPERATOR, group, effect.session))
                then(False)
                return
            self._put_in_place(offer, parcel, effect.is_staged, record.missing)
        process.handle(protocol.PartInstalled(OPERATOR, group, effect.session))
        then(is_current)

    def _put_in_place(
        self,
        offer: protocol.PartOffered,
        parcel: SimulatedParcel,
        is_staged: bool,
        missing: set[int],
    ) -> None:
        group = offer.group
        if not is_staged:
            self.put(group, parcel, missing.intersection(offer.bins))
        elif offer.kind is protocol.PartKind.DELTA:
            self.staged[group] = merge(self.process.memory[group], parcel.entries)
        elif offer.kind is protocol.PartKind.WHOLE:
            self.staged[group] = merge({}, parcel.entries)
        else:
            self.staged[group] = merge(self.staged.get(group, {}), parcel.entries)

    def adopt(self, effect: protocol.AdoptPart) -> None:
        """What was staged is the state."""
        state = self.staged[effect.group]
        self.forget([effect.group])
        self.process.memory[effect.group] = state


def replica_of(request: protocol.SourceRequest) -> tuple[int, int | None] | None:
    """Copy session and epoch of a replica that a delta can complete."""
    if request.replica is None:
        return None
    origin, as_of = request.replica
    return origin.log, as_of


def want_all(request: protocol.SourceRequest, bins: frozenset[int]) -> Want:
    """What an import asks for."""
    replica = replica_of(request) if bins == ALL_BINS else None
    here = is_here(request)
    as_of = request.as_of if here else None
    return Want(request.group, request.version, as_of, not here, bins=bins, replica=replica)


def is_here(request: protocol.SourceRequest) -> bool:
    """Whether a part of the key group is here already."""
    return request.phase is not protocol.Residency.AWAITED
