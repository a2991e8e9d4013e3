"""The order `import`: bring in the background what is missing of key groups owned here."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np

from anabranch.durability.group_restore import Restored
from anabranch.errors import AnabranchError
from anabranch.migration.steps import ImportPriority
from anabranch.model.ids import WorkerId
from anabranch.state.contract import GroupState
from anabranch.transport.messages.state import Fetch, GroupRequest, Heat, Need
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.parcel_reader import ReceivedGroup, receive
from anabranch.worker.moves.rate_limiter import RateLimiter
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.peers import Peers
from anabranch.worker.residency.arrival_table import ArrivalTable, Arriving
from anabranch.worker.residency.load import GroupLoader

_log = logging.getLogger("anabranch.worker")

BATCH_GROUPS = 8
"""Key groups asked for at a time: the source exports one while the one before is put in place."""

UNIT_BYTES = 1 << 20
"""About so much is asked for at a time when bins come one by one: what is needed overtakes it."""

HEAT_SECONDS_MAX = 10.0
SHADOW_SECONDS_MAX = 60.0

Unit = tuple[Arriving, list[int] | None]
"""A key group and some of its bins; None: all that are missing."""


class BackgroundImport:
    """Background arrivals; transactions overtake them."""

    def __init__(
        self,
        core: WorkerCore,
        arriving: ArrivalTable,
        arrivals: GroupLoader,
        peers: Peers,
        limiter: RateLimiter,
    ) -> None:
        self._core = core
        self._arriving = arriving
        self._arrivals = arrivals
        self._peers = peers
        self._limiter = limiter

    def run(
        self, groups: Sequence[int], order: ImportPriority, by_bin: bool, version: int
    ) -> Counter[str]:
        """Bring everything that is missing; afterwards sources are not needed for it."""
        counted: Counter[str] = Counter()
        records = self._arriving.of_groups(groups, version)
        for record in records:
            record.importing = True
        try:
            for units in self._ordered(records, order, by_bin):
                self._bring(units, counted)
        finally:
            for record in records:
                record.importing = False
            self._arriving.tell()
        counted["left"] += sum(not (r.is_done or r.is_dead) for r in records)
        self._core.count(counted)
        return counted + self._arriving.take_on_demand(groups)  # counted already when it came

    # -- order --

    def _ordered(
        self, records: list[Arriving], order: ImportPriority, by_bin: bool
    ) -> Iterator[list[Unit]]:
        """Units to ask for together: of one source, version and operator."""
        heat, size = self._heat(records) if order is not ImportPriority.INDEX else ({}, {})

        def priority(unit: Unit) -> float:  # smaller is sooner
            record, bins = unit
            rows = heat.get(record.place, ())
            hot = float(np.sum([rows[b] for b in bins] if bins and rows else rows))
            return (
                -hot / (1 + size.get(record.place, 0)) if order is ImportPriority.WAITING else -hot
            )

        todo: list[Unit] = []
        for record in records:
            if by_bin and record.replica is None:
                rows = heat.get(record.place, ())
                bins = sorted(record.missing, key=lambda b: (-rows[b] if rows else 0.0, b))
                count = max(1, UNIT_BYTES * len(bins) // (1 + size.get(record.place, UNIT_BYTES)))
                todo += [(record, bins[n : n + count]) for n in range(0, len(bins), count)]
            else:
                todo.append((record, None))
        todo.sort(key=lambda unit: (priority(unit), unit[0].place, unit[1] or []))
        together = 1 if order is ImportPriority.WAITING else BATCH_GROUPS
        if by_bin and size:
            mean = sum(size.values()) // len(size)
            together = max(1, min(BATCH_GROUPS, UNIT_BYTES // (1 + mean)))
        while todo:
            if order is ImportPriority.WAITING:  # anew each time: transactions come and go
                todo.sort(key=lambda unit: (not unit[0].waiting, priority(unit)))
            first = _kind(todo[0])
            chosen: list[Unit] = []
            others: list[Unit] = []
            groups: set[int] = set()
            for unit in todo[:together]:  # one unit of a key group in a request
                fits = _kind(unit) == first and unit[0].group not in groups
                (chosen if fits else others).append(unit)
                groups.add(unit[0].group)
            todo = others + todo[together:]
            yield chosen

    def _heat(
        self, records: list[Arriving]
    ) -> tuple[dict[tuple[str, int], tuple[float, ...]], dict[tuple[str, int], int]]:
        """Rows of each bin lately and bytes of each key group, as their sources know them."""
        heat: dict[tuple[str, int], tuple[float, ...]] = {}
        size: dict[tuple[str, int], int] = {}
        for operator, source in {(record.operator, record.source) for record in records}:
            groups = [r.group for r in records if (r.operator, r.source) == (operator, source)]
            question = Heat(operator, tuple(groups))
            try:
                reply = self._peers.get(source).call(question, HEAT_SECONDS_MAX)
            except AnabranchError:
                continue  # any order is right
            for group in groups:
                heat[operator, group] = reply.rows[group]
                size[operator, group] = reply.bytes.get(group, 0)
        return heat, size

    # -- transfer --

    def _bring(self, units: list[Unit], counted: Counter[str]) -> None:
        wanted = {
            record.group: (record, bins)
            for record, bins in units
            if self._is_wanted(record) and (bins is None or record.missing.intersection(bins))
        }
        if not wanted:
            return
        some = next(iter(wanted.values()))[0]
        slot = self._core.slots.get(some.operator)
        if slot is None:
            return
        # A shadow transaction that began before the grant would come on top of what is brought.
        self._core.wait_idle(slot.name, wanted, SHADOW_SECONDS_MAX, shadows=True)
        fetch = Fetch(
            slot.name,
            slot.definition_id,
            WorkerId(self._core.config.worker),
            self._core.address,
            some.version,
            None,
            tuple(self._request(record, bins) for record, bins in wanted.values()),
        )
        left = dict(wanted)
        try:
            parcels = self._peers.stream(some.source, fetch)
            for received in receive(parcels, lambda g, size: self._piece(wanted[g][0], size)):
                record, _ = left[received.group]
                if not received.is_gone:
                    self._put(slot, record, received, counted)
                    del left[received.group]
                    self._core.pass_point("imported")
                self._no_longer_receiving(record)
        except Exception as error:  # also that memory is short: the state comes another way
            _log.info("Import from worker %s: %r", some.source, error)
        finally:
            for record, _ in wanted.values():
                self._no_longer_receiving(record)
        if left:
            self._from_store(slot, [record for record, _ in left.values()], counted)

    def _is_wanted(self, record: Arriving) -> bool:
        if record.is_done or record.is_dead:
            return False
        with self._core.changed:
            return self._core.source_of(*record.place) == record.source

    def _request(self, record: Arriving, bins: list[int] | None) -> GroupRequest:
        missing = tuple(sorted(record.missing))
        return GroupRequest(
            record.group,
            None if record.state is None else record.as_of,
            self._arriving.have(record),
            record.session,
            missing,
            Need.ALL,
            missing if bins is None else tuple(bins),
        )

    def _piece(self, record: Arriving, size: int) -> None:
        record.receiving = True
        self._arriving.pieces += 1
        self._limiter.take(size, lambda: record.waiting > 0 or record.is_dead)

    def _no_longer_receiving(self, record: Arriving) -> None:
        record.receiving = False
        self._arriving.tell()

    def _put(
        self, slot: OperatorSlot, record: Arriving, received: ReceivedGroup, counted: Counter[str]
    ) -> None:
        with record.lock:
            if not self._is_wanted(record):
                return  # a transaction was faster
            if record.state is not None and received.as_of != record.as_of:
                return
            # Transactions may work on what came before.
            is_shared = record.is_adopted or received.is_replica
            try:
                with slot.apply_lock if is_shared else nullcontext():
                    self._arriving.put_in(slot, record, received)
            except BaseException:
                # Who knows what is in there: the next batch takes it from the store.
                self._arriving.give_up(record)
                raise
            counted.update(received.counted)
            counted["bins"] += len(received.bins)
            if not record.missing and self._arriving.settle(slot, record):
                counted["groups"] += 1

    def _from_store(
        self, slot: OperatorSlot, records: list[Arriving], counted: Counter[str]
    ) -> None:
        """The source does not have it: the last epoch known to exist, if it has what is missing."""
        epoch = slot.committed
        if epoch is None:
            return  # the next transaction knows its base
        whole = [r.group for r in records if self._is_wanted(r) and not r.is_adopted]
        try:  # together: every file is opened once
            restored = slot.read(self._core.blobs, whole, epoch) if whole else {}
        except AnabranchError as error:
            _log.info("Key groups %s are left to the next batch: %s", whole, error)
            return
        for record in records:
            with record.lock:
                self._put_stored(slot, record, epoch, restored.pop(record.group, None), counted)

    def _put_stored(
        self,
        slot: OperatorSlot,
        record: Arriving,
        epoch: int,
        restored: Restored[GroupState] | None,
        counted: Counter[str],
    ) -> None:
        """With the record's lock held."""
        if not self._is_wanted(record):
            return
        if record.state is not None and epoch < record.as_of:
            return  # what is here is newer: the next transaction knows its base
        if record.is_adopted:
            if slot.engine.logs_rows:
                return  # not in parts: the next transaction takes all of it
            try:
                with slot.apply_lock:
                    self._arrivals.complete_from_store(slot, record, epoch)
            except AnabranchError as error:
                _log.info("Key group %s is left to the next batch: %s", record.group, error)
                return
        elif restored is not None:
            record.state, record.as_of = restored.state, epoch
            record.wear, record.missing = restored.wear, set()
        else:
            return
        if self._arriving.settle(slot, record):
            counted["groups"] += 1
            counted["from_store"] += 1


def _kind(unit: Unit) -> tuple[str, str, int]:
    return unit[0].operator, unit[0].source, unit[0].version
