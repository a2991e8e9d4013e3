"""Brings the key groups that a transaction needs: from their source, else from the store."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace

import numpy as np

from anabranch.errors import AnabranchError
from anabranch.migration.steps import Arrival
from anabranch.model.ids import KeyGroup, WorkerId, epoch_of, number_of
from anabranch.model.keyspace import HASH, Int64s
from anabranch.protocol import worker as protocol
from anabranch.state.channel import has_waiting
from anabranch.state.contract import Sections
from anabranch.transport.messages.state import Fetch, GroupRequest, Need, ReplicaLog
from anabranch.transport.packing import pack_hashes, unpack_hashes
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.parcel_reader import NO_HASHES, ReceivedGroup, not_in, receive
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.peers import Peers
from anabranch.worker.residency.arrival_table import ArrivalTable, PartContent
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.transactions.transaction import RunningTransaction

_log = logging.getLogger("anabranch.worker")

FETCH_SECONDS_MAX = 300.0


class GroupLoader:
    """Performs FetchGroups and LoadGroups."""

    def __init__(
        self, core: WorkerCore, arrivals: ArrivalTable, peers: Peers, store: StoreLoader
    ) -> None:
        self._core = core
        self._arrivals = arrivals
        self._peers = peers
        self._store = store
        self._keyspace = core.config.keyspace

    # -- from sources --

    def fetch(
        self, slot: OperatorSlot, run: RunningTransaction, effect: protocol.FetchGroups
    ) -> protocol.GroupsFetched:
        """Ask the sources, each for all its key groups at once."""
        counted: Counter[str] = Counter()
        if run.applied:  # what was here went first
            counted["ready_first"] += 1
            self._arrivals.note_on_demand(effect.requests[0].group, {"ready_first": 1})
        parts: list[protocol.FetchedPart] = []
        broken: list[KeyGroup] = []
        with run.timed("load_ms"):
            needed = self._needed(run, effect)
            asked: dict[tuple[str, int], list[protocol.SourceRequest]] = {}
            for request in effect.requests:
                asked.setdefault((request.source, request.version), []).append(request)
            for (source, version), some in asked.items():
                fetch = Fetch(
                    slot.name,
                    slot.definition_id,
                    WorkerId(self._core.config.worker),
                    self._core.address,
                    version,
                    run.times,
                    tuple(self._ask(slot, request, needed) for request in some),
                )
                parts += self._fetch(slot, source, fetch, some, broken, counted)
        arrived = {part.group for part in parts}
        lost = [request.group for request in effect.requests if request.group not in arrived]
        counted["from_store"] += len(lost)
        for group in lost:
            self._arrivals.note_on_demand(group, {"from_store": 1})
        if slot.engine.logs_rows:
            # Changelogs have rows of whole key groups: a part cannot be completed from them.
            broken = lost
        self._core.pass_point("fetched")
        self._core.count(counted)
        return protocol.GroupsFetched(effect.tx, tuple(parts), tuple(broken))

    def _needed(self, run: RunningTransaction, effect: protocol.FetchGroups) -> dict[int, Int64s]:
        """Hashes of the transaction's rows, by key group."""
        by_part = [r.group for r in effect.requests if r.arrival in (Arrival.BIN, Arrival.KEY)]
        if not by_part:
            return {}
        found: dict[int, list[Int64s]] = {}
        for chunk in run.rows.chunks():
            hashes = np.unique(chunk.rows.column(HASH).to_numpy())
            groups = self._keyspace.group_of(hashes)
            for group in by_part:
                found.setdefault(group, []).append(hashes[groups == group])
        return {group: np.concatenate(parts) for group, parts in found.items()}

    def _ask(
        self, slot: OperatorSlot, asked: protocol.SourceRequest, needed: dict[int, Int64s]
    ) -> GroupRequest:
        request = replace(ask_all(self._core, asked), as_of=number_of(asked.as_of))
        if is_here(asked) and has_waiting(slot.states.get(asked.group)):
            return request  # who knows which keys those rows have
        hashes = needed.get(asked.group, NO_HASHES)
        bin_of = self._keyspace.bin_of(hashes)
        missing = np.zeros(self._keyspace.bins, bool)
        missing[list(asked.missing)] = True
        if asked.arrival is Arrival.BIN:
            bins = np.unique(bin_of[missing[bin_of]]).tolist()
            return replace(request, need=Need.BINS, bins=tuple(bins))
        if asked.arrival is Arrival.KEY:
            content = self._arrivals.content(slot.name, asked.group)
            wanted = hashes[missing[bin_of]]
            wanted = wanted[not_in(content.fetched, wanted)]
            packed = pack_hashes(wanted)
            return replace(request, need=Need.KEYS, hashes=packed, asked=len(wanted))
        return request

    def _fetch(
        self,
        slot: OperatorSlot,
        source: str,
        fetch: Fetch,
        asked: list[protocol.SourceRequest],
        broken: list[KeyGroup],
        counted: Counter[str],
    ) -> list[protocol.FetchedPart]:
        parts: list[protocol.FetchedPart] = []
        left = {int(request.group): request for request in asked}
        requests = {request.group: request for request in fetch.groups}
        try:
            for received in receive(self._peers.stream(source, fetch, FETCH_SECONDS_MAX)):
                if received.is_gone:
                    continue
                group = received.group
                try:
                    parts.append(
                        self._arrived(slot, left[group], requests[group], received, counted)
                    )
                except AnabranchError:
                    broken.append(KeyGroup(group))  # who knows what is in there
                    raise
                del left[group]
        except AnabranchError as error:
            _log.info("Key groups %s come from the store: %s", sorted(left), error)
        return parts

    def _arrived(
        self,
        slot: OperatorSlot,
        asked: protocol.SourceRequest,
        request: GroupRequest,
        received: ReceivedGroup,
        counted: Counter[str],
    ) -> protocol.FetchedPart:
        fetched = Counter(received.counted)
        content = self._arrivals.content(slot.name, asked.group)
        # A replica may be in the middle of a catch-up that began before the grant.
        with slot.apply_lock if received.is_replica else nullcontext():
            bins = self._take_in(slot, asked, content, received)
        if received.is_replica or request.need is Need.ALL:
            fetched["on_demand_groups"] += 1
        elif request.need is Need.KEYS:
            content.fetched.update(unpack_hashes(request.hashes).tolist())
            fetched["on_demand_keys"] += request.asked
            fetched["due_pushed"] += len(received.due)
        else:
            fetched["on_demand_bins"] += len(received.bins)
            fetched["due_pushed"] += len(received.bins) - len(request.bins)
        self._arrivals.note_on_demand(asked.group, fetched)
        counted.update(fetched)
        as_of, is_whole = epoch_of(received.as_of), received.is_replica
        return protocol.FetchedPart(asked.group, asked.session, as_of, tuple(bins), is_whole)

    def _take_in(
        self,
        slot: OperatorSlot,
        asked: protocol.SourceRequest,
        content: PartContent,
        received: ReceivedGroup,
    ) -> list[int]:
        """Put in place what has come; the bins that are complete."""
        group = int(asked.group)
        if received.is_replica:
            state = slot.states[group]
            received.replay(state)
            self._arrivals.adopt(slot, group, state, received.wear)
            return []
        if is_here(asked):
            return content.add(slot.states[group], received, asked.missing, self._keyspace)
        state = slot.engine.create_group()
        bins = content.add(state, received, asked.missing, self._keyspace)
        self._arrivals.adopt(slot, group, state, received.wear)
        return bins

    # -- from the store --

    def load(
        self, slot: OperatorSlot, run: RunningTransaction, effect: protocol.LoadGroups
    ) -> protocol.GroupsLoaded:
        """Read everything that is not here, or what the transaction needs of it."""
        counted: Counter[str] = Counter()
        parts = {int(group): set(missing) for group, missing in effect.parts}
        with run.timed("load_ms"):
            if self._store.reads_keys(slot) and slot.has_stored(effect.as_of):
                left = self._store.bring(slot, run, effect.groups, parts, effect.as_of, counted)
            else:
                self._load_whole(slot, run, effect.groups, effect.as_of)
                for group, missing in parts.items():
                    sections = self.read_missing(slot, group, missing, effect.as_of)
                    content = self._arrivals.content(slot.name, group)
                    slot.states[group].install(content.absent_in(sections, self._keyspace))
                left = {}
        self._core.count(counted)
        stored = tuple((KeyGroup(group), tuple(sorted(bins))) for group, bins in left.items())
        return protocol.GroupsLoaded(effect.tx, stored)

    def _load_whole(
        self,
        slot: OperatorSlot,
        run: RunningTransaction,
        groups: tuple[KeyGroup, ...],
        as_of: int | None,
    ) -> None:
        if not groups:
            return
        self._arrivals.logs.drop(slot.name, groups)
        slot.load(self._core.blobs, groups, as_of)
        if as_of is not None:
            slot.rows_missed += sum(run.rows.rows_of(groups))

    def read_missing(
        self, slot: OperatorSlot, group: int, missing: Collection[int], as_of: int | None
    ) -> Sections:
        """Bins that never came: no transaction has touched them, so any later epoch has them."""
        if not slot.has_stored(as_of):
            return {}
        read = slot.read(self._core.blobs, (group,), as_of, sorted(missing))
        return read[group].state.export()


def is_here(asked: protocol.SourceRequest) -> bool:
    """Whether transactions work on a part of the key group already."""
    return asked.phase is not protocol.Residency.AWAITED


def ask_all(core: WorkerCore, asked: protocol.SourceRequest) -> GroupRequest:
    """A request for all that is missing of a key group, as of any epoch where nothing is here."""
    replica = asked.replica
    return GroupRequest(
        asked.group,
        number_of(asked.as_of) if is_here(asked) else None,
        None if replica is None else ReplicaLog(replica[0].log, number_of(replica[1])),
        f"{core.config.incarnation}-{asked.session}",
        asked.missing,
        Need.ALL,
        asked.missing,
    )
