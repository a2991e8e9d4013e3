"""What memory has of key groups that arrive: the content beside the protocol's records.

The protocol (`protocol/residency.py`) decides what is asked for, awaited, put in place and used.
Here is what it never sees: states, the keys that came one by one, and the threads that wait.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.errors import ServiceUnavailable
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.protocol import worker as protocol
from anabranch.protocol.arrivals import ArrivingGroup
from anabranch.protocol.exhaustive import unhandled
from anabranch.state.channel import BIN, CHANNEL
from anabranch.state.contract import GroupState, Sections
from anabranch.worker.core import Place, WorkerCore
from anabranch.worker.moves.deltas import DeltaLogs
from anabranch.worker.moves.parcel_reader import ReceivedGroup, joined, without
from anabranch.worker.operator_slot import OperatorSlot

UNKNOWN_WEAR = (-1, 0)


@dataclass(eq=False, slots=True)
class PartContent:
    """What is known of a key group of which something is missing."""

    staged: GroupState | None = None
    """What imports have brought and no transaction has used."""
    fetched: set[int] = field(default_factory=set)
    """Keys of missing bins that came one by one."""
    has_channel: bool = False
    """Whether deferred rows are here although their bin is missing: then the store's are old."""
    wear: list[int] = field(default_factory=lambda: list(UNKNOWN_WEAR))

    def copy(self) -> PartContent:
        """As it is now."""
        return replace(self, fetched=set(self.fetched))

    def absent_in(self, sections: Sections, keyspace: KeySpace) -> Sections:
        """What the store has of missing bins, without what is here."""
        if self.has_channel:
            sections = {name: table for name, table in sections.items() if name != CHANNEL}
        return without(sections, None, self.fetched, keyspace)

    def forget_fetched(self, bins: Collection[int], keyspace: KeySpace) -> None:
        """Keys of these bins are not known one by one any more: all are here, or none."""
        self.has_channel &= BIN not in bins
        if self.fetched:
            known = np.fromiter(self.fetched, np.int64, len(self.fetched))
            gone = np.isin(keyspace.bin_of(known), list(bins))
            self.fetched.difference_update(known[gone].tolist())

    def add(
        self, state: GroupState, received: ReceivedGroup, missing: Collection[int], keys: KeySpace
    ) -> list[int]:
        """Put what a source has sent into a state; the bins that are complete now."""
        wanted = {bin_: None for bin_ in received.bins if bin_ in missing}
        if received.slices and wanted:
            bins = None if len(wanted) == len(received.bins) else wanted
            sections = joined(received.slices)
            state.install(without(sections, bins, self.fetched, keys))
            if self.fetched:  # only of bins that are missing
                for table in sections.values():
                    self.fetched.difference_update(table.column(HASH).to_pylist())
        if received.keys is not None:
            state.install(without(received.keys, None, self.fetched, keys))
            self.fetched.update(received.due.tolist())
        return list(wanted)


PutInPlace = Callable[[PartContent, ArrivingGroup], None]
"""Puts a part in place; nobody works on the state meanwhile."""


class ArrivalTable:
    """Contents by place, offers that are not decided, and what transactions have fetched."""

    def __init__(self, core: WorkerCore, logs: DeltaLogs) -> None:
        self.core = core
        self.logs = logs
        self._contents: dict[Place, PartContent] = {}
        """Guarded by `core.changed`."""
        self._offers: dict[
            tuple[str, int, int], Future[protocol.InstallPart | protocol.DiscardPart]
        ] = {}
        self._on_demand: dict[int, Counter[str]] = {}
        """What transactions have fetched of each key group since it is owned here; before, how
        often they have brought its replica forward."""
        self._counting = threading.Lock()
        core.perform_arrival = self.perform
        core.on_drop.append(self._drop)

    # -- contents --

    def content(self, operator: str, group: int) -> PartContent:
        """What is known of a key group; nothing, if it begins to arrive."""
        with self.core.changed:
            return self._contents.setdefault((operator, group), PartContent())

    def renew(self, operator: str, group: int, content: PartContent) -> None:
        """A key group is here in part: this is known of it."""
        with self.core.changed:
            self._contents[operator, group] = content

    def _drop(self, operator: str, groups: tuple[int, ...] | None) -> None:
        """The state of key groups (None: all) is gone. With `core.changed` taken."""
        for place in list(self._contents):
            if place[0] == operator and (groups is None or place[1] in groups):
                del self._contents[place]

    def adopt(self, slot: OperatorSlot, group: int, state: GroupState, wear: list[int]) -> None:
        """A transaction takes over what was brought."""
        with self.core.changed:
            slot.put(group, state, wear)
            self.logs.drop(slot.name, (group,))

    # -- what the protocol orders, with `core.changed` taken --

    def perform(self, effect: protocol.ArrivalEffect) -> None:
        """An effect that concerns key groups on their way."""
        match effect:
            case protocol.ForgetParts():
                self._drop(effect.operator, effect.groups)
            case protocol.AdoptPart():
                content = self._contents[effect.operator, effect.group]
                assert content.staged is not None
                slot = self.core.slots[effect.operator]
                self.adopt(slot, effect.group, content.staged, content.wear)
                content.staged = None
            case protocol.InstallPart() | protocol.DiscardPart():
                decided = self._offers.pop((effect.operator, effect.group, effect.session), None)
                if decided is not None:
                    decided.set_result(effect)
            case _:
                unhandled(effect)

    # -- offers, from threads beside transactions --

    def offer(self, slot: OperatorSlot, offer: protocol.PartOffered, install: PutInPlace) -> bool:
        """Whether a part was of use; waits while a transaction brings the key group here."""
        core, place = self.core, (offer.operator, int(offer.group), offer.session)
        decided: Future[protocol.InstallPart | protocol.DiscardPart] = Future()
        with core.changed:
            if place in self._offers:
                return False  # another thread brings the same
            self._offers[place] = decided
            core.dispatch(offer)
            mine = ((offer.group, offer.session),)
            core.dispatch(protocol.ReceivingEnded(offer.operator, mine))
        effect = decided.result()  # no limit: dispatch() has decided, or raised
        if isinstance(effect, protocol.DiscardPart):
            return False
        self._install(slot, offer, install, effect.is_staged)
        return True

    def _install(
        self, slot: OperatorSlot, offer: protocol.PartOffered, install: PutInPlace, is_staged: bool
    ) -> None:
        core = self.core
        done = protocol.PartInstalled(offer.operator, offer.group, offer.session)
        # Transactions may work on what came before; a replica may still be catching up.
        is_shared = not is_staged or offer.kind is protocol.PartKind.DELTA
        try:
            with slot.apply_lock if is_shared else nullcontext():
                with core.changed:
                    record = core.machine.arrivals.current(done)
                    content = self.content(offer.operator, offer.group)
                if record is not None and core.slots.get(slot.name) is slot:
                    install(content, record)
                core.dispatch(done)
        except BaseException:
            core.dispatch(protocol.PartFailed(offer.operator, offer.group, offer.session))
            raise

    # -- what transactions do --

    def note_on_demand(self, group: int, counted: Mapping[str, int]) -> None:
        """A transaction has fetched something itself, or had to wait."""
        with self._counting:
            self._on_demand.setdefault(group, Counter()).update(counted)

    def note_shadow(self, groups: Iterable[int]) -> None:
        """A transaction has brought replicas forward, beside their owner's."""
        for group in groups:
            self.note_on_demand(group, {"shadowed": 1})

    def take_on_demand(self, groups: Iterable[int]) -> Counter[str]:
        """What transactions have done, for the report of the move."""
        with self._counting:
            found = [self._on_demand.pop(group, Counter()) for group in groups]
        return sum(found, Counter())

    def stop(self) -> None:
        """Whoever waits for a decision hears that there will be none."""
        with self.core.changed:
            offers, self._offers = list(self._offers.values()), {}
        for decided in offers:
            decided.set_exception(ServiceUnavailable("The worker was stopped."))
