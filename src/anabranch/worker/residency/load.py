"""Bring the key groups that a transaction needs: from their source, else from the store."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace

import numpy as np

from anabranch.errors import AnabranchError
from anabranch.migration.steps import Arrival
from anabranch.model.ids import KeyGroup, WorkerId, number_of
from anabranch.model.keyspace import HASH, Int64s
from anabranch.protocol.worker import STORE, LoadGroups
from anabranch.state.channel import has_waiting
from anabranch.transport.messages.state import Fetch, GroupRequest, Need
from anabranch.transport.packing import pack_hashes, unpack_hashes
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.parcel_reader import NO_HASHES, ReceivedGroup, not_in, receive, without
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.peers import Peers
from anabranch.worker.residency.arrival_table import ArrivalTable, Arriving
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.transactions.transaction import RunningTransaction

_log = logging.getLogger("anabranch.worker")

FETCH_SECONDS_MAX = 300.0


class GroupLoader:
    """Performs LoadGroups."""

    def __init__(
        self, core: WorkerCore, arriving: ArrivalTable, peers: Peers, stored: StoreLoader
    ) -> None:
        self._core = core
        self._stored = stored
        self._arriving = arriving
        self._peers = peers
        self._keyspace = core.config.keyspace

    def load(
        self, slot: OperatorSlot, run: RunningTransaction, effect: LoadGroups
    ) -> tuple[tuple[KeyGroup, ...], tuple[KeyGroup, ...]]:
        """Key groups as of the base, in memory: those of which only a part is here, and of these
        those whose rest is in the store."""
        counted: Counter[str] = Counter()
        records = self._records(slot.name, effect)
        if run.applied and records:  # what was here went first
            self._arriving.note_on_demand(records[0].group, {"ready_first": 1})
            counted["ready_first"] += 1
        try:
            with run.timed("load_ms"), self._locked(records, counted) as locks:
                coming = [r for r in records if r.source != STORE or r.is_done]
                lost = self._bring(slot, run, coming, number_of(effect.as_of), counted)
                here = {r.group for r in coming if r not in lost}
                stored = self._from_store(slot, run, effect, here, records, lost, locks, counted)
        except BaseException:
            for record in records:
                self._arriving.give_up(record)
            raise
        if records:
            self._core.pass_point("fetched")
        self._core.count(counted)
        partial = [r for r in coming if r not in lost and not r.is_done and r.missing]
        in_store = tuple(KeyGroup(record.group) for record in stored)
        return (*(KeyGroup(record.group) for record in partial), *in_store), in_store

    def _records(self, operator: str, effect: LoadGroups) -> list[Arriving]:
        sources = dict(effect.sources)
        found = []
        for group in effect.groups:
            record = self._arriving.find(operator, group)
            if record is None:
                continue
            if sources.get(group) == record.source:
                found.append(record)
            else:  # the protocol has given its source up, or wants another epoch than came
                self._arriving.give_up(record)
        return sorted(found, key=lambda record: record.group)

    @contextmanager
    def _locked(self, records: list[Arriving], counted: Counter[str]) -> Iterator[ExitStack]:
        with ExitStack() as stack:
            for record in records:
                self._arriving.note_waiting(record, 1)
                stack.callback(self._arriving.note_waiting, record, -1)
            # First wait for all: an import needs the locks.
            waited = [self._arriving.wait_for_import(record) for record in records]
            counted["waited"] += sum(waited)
            for record in records:
                stack.enter_context(record.lock)
            yield stack

    # -- from sources --

    def _bring(
        self,
        slot: OperatorSlot,
        run: RunningTransaction,
        records: list[Arriving],
        base: int,
        counted: Counter[str],
    ) -> list[Arriving]:
        """Ask the sources; the records for which only the store is left."""
        lost: list[Arriving] = []
        asked: dict[tuple[str, int], list[Arriving]] = {}
        for record in records:
            if record.is_dead or (record.state is not None and not self._fits(slot, record, base)):
                lost.append(record)
            elif not record.is_done:
                asked.setdefault((record.source, record.version), []).append(record)
        needed = self._needed(run, records) if asked else {}
        for (source, version), some in asked.items():
            fetch = Fetch(
                slot.name,
                slot.definition_id,
                WorkerId(self._core.config.worker),
                self._core.address,
                version,
                run.times,
                tuple(self._request(record, base, needed) for record in some),
            )
            lost += self._fetch(slot, source, fetch, some, counted)
        return lost

    def _fits(self, slot: OperatorSlot, record: Arriving, base: int) -> bool:
        """Whether what an import or an earlier transaction brought is as of the base."""
        if not record.is_adopted:
            if record.as_of != base:
                return False
            if not record.is_done:
                self._arriving.adopt(slot, record)
        return True

    def _needed(self, run: RunningTransaction, records: list[Arriving]) -> dict[int, Int64s]:
        """Hashes of the transaction's rows, by key group."""
        by_part = [r.group for r in records if r.arrival in (Arrival.BIN, Arrival.KEY)]
        if not by_part:
            return {}
        found: dict[int, list[Int64s]] = {}
        for chunk in run.rows.chunks():
            hashes = np.unique(chunk.rows.column(HASH).to_numpy())
            groups = self._keyspace.group_of(hashes)
            for group in by_part:
                found.setdefault(group, []).append(hashes[groups == group])
        return {group: np.concatenate(parts) for group, parts in found.items()}

    def _request(self, record: Arriving, base: int, needed: dict[int, Int64s]) -> GroupRequest:
        hashes = needed.get(record.group, NO_HASHES)
        bin_of = self._keyspace.bin_of(hashes)
        missing = np.zeros(self._keyspace.bins, bool)
        missing[list(record.missing)] = True
        request = GroupRequest(
            record.group,
            base if record.state is None else record.as_of,
            self._arriving.have(record),
            record.session,
            tuple(sorted(record.missing)),
            Need.ALL,
            tuple(sorted(record.missing)),
        )
        if has_waiting(record.state):
            return request  # who knows which keys those rows have
        if record.arrival is Arrival.BIN:
            bins = np.unique(bin_of[missing[bin_of]]).tolist()
            return replace(request, need=Need.BINS, bins=tuple(bins))
        if record.arrival is Arrival.KEY:
            wanted = hashes[missing[bin_of]]
            wanted = wanted[not_in(record.fetched, wanted)]
            packed = pack_hashes(wanted)
            return replace(request, need=Need.KEYS, hashes=packed, asked=len(wanted))
        return request

    def _fetch(
        self,
        slot: OperatorSlot,
        source: str,
        fetch: Fetch,
        records: list[Arriving],
        counted: Counter[str],
    ) -> list[Arriving]:
        left = {record.group: record for record in records}
        requests = {request.group: request for request in fetch.groups}
        try:
            parcels = self._peers.stream(source, fetch, FETCH_SECONDS_MAX)
            for received in receive(parcels):
                if received.is_gone:
                    continue
                record = left[received.group]
                try:
                    self._arrived(slot, record, requests[received.group], received, counted)
                except AnabranchError:
                    record.is_adopted = False  # who knows what is in there: the store has all
                    raise
                del left[received.group]
        except AnabranchError as error:
            _log.info("Key groups %s come from the store: %s", sorted(left), error)
        return list(left.values())

    def _arrived(
        self,
        slot: OperatorSlot,
        record: Arriving,
        request: GroupRequest,
        received: ReceivedGroup,
        counted: Counter[str],
    ) -> None:
        fetched = Counter(received.counted)
        # A replica may be in the middle of a catch-up that began before the grant.
        with slot.apply_lock if received.is_replica else nullcontext():
            self._arriving.put_in(slot, record, received)
        if request.need is Need.KEYS and not received.is_replica:
            record.fetched.update(unpack_hashes(request.hashes).tolist())
            fetched["on_demand_keys"] += request.asked
            fetched["due_pushed"] += len(received.due)
        elif request.need is Need.BINS and not received.is_replica:
            fetched["on_demand_bins"] += len(received.bins)
            fetched["due_pushed"] += len(received.bins) - len(request.bins)
        else:
            fetched["on_demand_groups"] += 1
        self._arriving.note_on_demand(record.group, fetched)
        counted.update(fetched)
        self._arriving.adopt(slot, record)
        if not record.missing:
            record.is_done = True
            self._arriving.tell()

    # -- from the store --

    def _from_store(
        self,
        slot: OperatorSlot,
        run: RunningTransaction,
        effect: LoadGroups,
        here: set[int],
        records: list[Arriving],
        lost: list[Arriving],
        locks: ExitStack,
        counted: Counter[str],
    ) -> list[Arriving]:
        """Everything that is not here; the key groups that are in the store for a part."""
        counted["from_store"] += len(lost)
        for record in lost:
            self._arriving.note_on_demand(record.group, {"from_store": 1})
        # Where changelogs have rows, these are of the whole key group: a part cannot be completed.
        adopted = [r for r in lost if r.is_adopted and not slot.engine.logs_rows]
        known = [r for r in records if r.source == STORE and r.is_coming]
        in_part = {record.group for record in (*adopted, *known)}
        whole = [g for g in effect.groups if g not in here and g not in in_part]
        for record in lost:
            self._arriving.give_up(record)
        if not (whole or known or adopted):
            return []  # the sources had everything: the store is not asked
        if self._stored.reads_keys(slot) and slot.has_stored(effect.as_of):
            for record in adopted:
                known.append(self._arriving.turn_to_store(record))
                locks.enter_context(known[-1].lock)
            return self._stored.bring(slot, run, whole, known, effect.as_of, locks, counted)
        if whole:
            self._arriving.logs.drop(slot.name, tuple(whole))
            slot.load(self._core.blobs, tuple(whole), effect.as_of)
            if effect.as_of is not None:
                slot.rows_missed += sum(run.rows.rows_of(whole))
        for record in adopted:
            self.complete_from_store(slot, record, effect.as_of)
        return []

    def complete_from_store(self, slot: OperatorSlot, record: Arriving, as_of: int | None) -> None:
        """Bins that never came: no transaction has touched them, so any later epoch has them."""
        assert record.state is not None
        if slot.has_stored(as_of):
            read = slot.read(self._core.blobs, (record.group,), as_of, sorted(record.missing))
            sections = read[record.group].state.export()
            record.state.install(without(sections, None, record.fetched, self._keyspace))
        record.missing = set()
