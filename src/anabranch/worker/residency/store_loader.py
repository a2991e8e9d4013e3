"""Key groups that are partly in the store: transactions read what they need, a thread the rest."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.durability.lazy_reader import LazyReader
from anabranch.durability.manifest import DEFERRED, ROWS_WAIT
from anabranch.durability.pages import PAGE_BYTES
from anabranch.errors import AnabranchError
from anabranch.model.keyspace import HASH, Int64s
from anabranch.protocol.worker import STORE
from anabranch.state.channel import BIN, has_waiting, waiting_in
from anabranch.state.contract import GroupState, Sections
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.parcel_reader import NO_HASHES, not_in
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.residency.arrival_table import ArrivalTable, Arriving
from anabranch.worker.transactions.transaction import RunningTransaction

_log = logging.getLogger("anabranch.worker")

UNIT_BYTES = 2 << 20
"""About so much comes at a time in the background: transactions wait a few milliseconds for it."""

LOGGED_UNIT_BYTES = 16 << 20
"""The same of what is mostly in changelogs: these are not by bin, each unit reads all of them."""

PATIENCE = 2.0
"""For so many times as long as a unit took, the next one lets transactions go first."""

PAUSE_SECONDS = 0.02
REPORTED_STEP = 0.1

FULL_SHARE = 0.8
"""Of the memory limit: beyond it only what is needed is brought."""

Heat = npt.NDArray[np.float64]


class StoreLoader:
    """Reads of transactions, and the thread that brings the rest, hot bins first."""

    def __init__(self, core: WorkerCore, arriving: ArrivalTable) -> None:
        self._core = core
        self._arriving = arriving
        self._keyspace = core.config.keyspace
        self._work = threading.Event()
        self._thread: threading.Thread | None = None

    def reads_keys(self, slot: OperatorSlot) -> bool:
        """Whether key groups of an operator may be here in part."""
        return self._core.config.reads_keys and slot.engine.is_by_key

    def is_full(self) -> bool:
        """Whether there is no memory for more than what is needed now."""
        config = self._core.config
        if config.state == "remote":
            return True
        limit = config.state_memory_bytes
        return limit is not None and self._core.state_bytes() > FULL_SHARE * limit

    # -- for a transaction --

    def bring(
        self,
        slot: OperatorSlot,
        run: RunningTransaction,
        fresh: Collection[int],
        records: list[Arriving],
        as_of: int | None,
        stack: ExitStack,
        counted: Counter[str],
    ) -> list[Arriving]:
        """What a transaction needs of key groups, new ones or partly here; those still in part.

        The locks of `records` are held; those of new ones are put on the stack.
        """
        absent: list[Int64s] = []
        stored = slot.stored_at(self._core.blobs, as_of)
        groups = {*fresh, *(record.group for record in records)}
        stored.open(groups)
        # 1. Rows that wait are applied too: their keys are needed, and what was due by then.
        new = {group: slot.engine.create_group() for group in fresh}
        self._bring_channels(slot, stored, new, records)
        waiting = waiting_in([*new.values(), *(r.state for r in records if r.state is not None)])
        needed = self._needed(run, groups, [some.rows for some in waiting])
        late = {some.group for some in waiting}
        blobs = self._core.blobs
        due = self._by_group(slot.due_in(blobs, stored, groups - late, run.times))
        due.update(self._by_group(slot.due_in(blobs, stored, late, run.times, waiting)))
        # 2. New ones: whole, or empty for now.
        parts = {group: _joined(needed.get(group), due.get(group)) for group in groups}
        whole = [group for group in fresh if self._is_whole(stored.pages(group), parts[group])]
        if whole:
            self._arriving.logs.drop(slot.name, tuple(whole))
            slot.load(blobs, tuple(whole), as_of)
        for group in fresh:
            if group not in whole:
                records = [*records, self._leave(slot, group, new[group], stored, stack)]
        # 3. Keys that are missing.
        wanted: dict[int, Int64s] = {}
        for record in records:
            keys = self._missing(record, parts[record.group])
            if self._is_whole(stored.pages(record.group) * self._share(record), keys):
                self._put_bins(slot, record, stored, sorted(record.missing))
            else:
                wanted[record.group] = keys
            absent.append(keys)
        self._put_keys(slot, records, wanted, stored)
        missed = sum(map(len, wanted.values()))
        counted["keys_from_store"] += missed
        slot.rows_missed += _count_rows(run, whole, absent)
        left = [record for record in records if record.missing]
        for record in records:
            self._note(slot, record, stored)
        return left

    def start(self) -> None:
        """Something may be missing: bring it in the background."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="anabranch-stored", daemon=True)
            self._thread.start()
        self._work.set()

    def _is_whole(self, pages: float, wanted: Int64s) -> bool:
        """Whether reading all of it costs about as much as what is wanted."""
        is_worth_it = len(wanted) + 2 >= self._core.config.whole_share * pages
        return is_worth_it and not self.is_full()

    def _bring_channels(
        self,
        slot: OperatorSlot,
        stored: LazyReader,
        new: Mapping[int, GroupState],
        records: Collection[Arriving],
    ) -> None:
        """Put rows in place that wait in the store: once here, they do not come again."""
        notes = stored.manifest.extra
        is_any = notes.get(ROWS_WAIT) == "independent"  # of these, rows to be applied again
        known = {*notes.get(DEFERRED, ()), *(r.group for r in records if has_waiting(r.state))}
        absent = {r.group: r for r in records if BIN in r.missing and not r.has_channel}
        asked = {group for group in (*new, *absent) if is_any or group in known}
        found = stored.channels(asked, slot.engine.create_group) if asked else {}
        for group, sections in found.items():
            state = new[group] if group in new else absent[group].state
            assert state is not None
            state.install(sections)
        for record in absent.values():
            record.has_channel = True

    def _leave(
        self,
        slot: OperatorSlot,
        group: int,
        state: GroupState,
        stored: LazyReader,
        stack: ExitStack,
    ) -> Arriving:
        record = self._arriving.new_in_store(slot.name, group)
        stack.enter_context(record.lock)
        record.state, record.wear = state, stored.wear(group)
        record.as_of, record.has_channel = stored.epoch, True
        self._arriving.put_in_store(record)
        self._arriving.adopt(slot, record)
        return record

    def _needed(
        self, run: RunningTransaction, groups: Collection[int], waiting: list[pa.Table]
    ) -> dict[int, Int64s]:
        """Hashes of the transaction's rows and of those that wait, by key group."""
        tables = [*(chunk.rows for chunk in run.rows.chunks()), *waiting]
        parts = [rows.column(HASH).to_numpy() for rows in tables if rows.num_rows]
        if not parts:
            return {}
        by_group = self._by_group(np.unique(np.concatenate(parts)))
        return {group: hashes for group, hashes in by_group.items() if group in groups}

    def _by_group(self, hashes: Int64s) -> dict[int, Int64s]:
        groups = self._keyspace.group_of(hashes)
        order = np.argsort(groups, kind="stable")
        cuts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        parts = np.split(hashes[order], cuts[1:])
        return dict(zip(groups[order][cuts].tolist(), parts, strict=False))

    def _missing(self, record: Arriving, hashes: Int64s) -> Int64s:
        absent = np.zeros(self._keyspace.bins, bool)
        absent[list(record.missing)] = True
        wanted = hashes[absent[self._keyspace.bin_of(hashes)]]
        return wanted[not_in(record.fetched, wanted)]

    def _put_keys(
        self,
        slot: OperatorSlot,
        records: list[Arriving],
        wanted: dict[int, Int64s],
        stored: LazyReader,
    ) -> None:
        if not any(map(len, wanted.values())):
            return
        found = stored.keys(np.concatenate(list(wanted.values())), slot.engine.create_group)
        for record in records:
            keys = wanted.get(record.group, NO_HASHES)
            if len(keys):
                assert record.state is not None
                record.state.install(found.get(record.group, {}))
                record.fetched.update(keys.tolist())

    def _put_bins(
        self, slot: OperatorSlot, record: Arriving, stored: LazyReader, bins: list[int]
    ) -> None:
        """With the record's lock held; nobody works on the state meanwhile."""
        sections = stored.part(record.group, bins, slot.engine.create_group)
        self._install_bins(record, sections, bins)

    def _install_bins(self, record: Arriving, sections: Sections, bins: list[int]) -> None:
        assert record.state is not None
        record.state.install(record.absent_in(sections, self._keyspace))
        record.missing.difference_update(bins)
        record.forget_fetched(bins, self._keyspace)

    def _share(self, record: Arriving) -> float:
        return len(record.missing) / self._keyspace.bins

    def _note(self, slot: OperatorSlot, record: Arriving, stored: LazyReader) -> None:
        record.as_of = stored.epoch
        if record.missing:
            left = stored.pages(record.group) * self._share(record) * PAGE_BYTES
            slot.in_store[record.group] = round(left)
        else:
            slot.in_store.pop(record.group, None)
            record.is_done = True

    # -- in the background --

    def _run(self) -> None:
        reported: dict[str, float] = {}
        seconds = 0.0
        while True:
            self._let_others_go_first(seconds)
            started = time.monotonic()
            try:
                self._work.clear()
                unit = self._next()
                if unit is None:
                    self._work.wait()
                    continue
                self._bring_unit(*unit)
                self._report(unit[0], reported)
            except AnabranchError as error:  # the next transaction reads as of a later epoch
                _log.info("What is left in the store comes later: %s", error)
                time.sleep(1.0)
            except Exception:
                _log.exception("What is left in the store comes when it is needed")
                self._thread = None
                return
            seconds = time.monotonic() - started

    def _let_others_go_first(self, seconds: float) -> None:
        core = self._core
        with core.changed:
            core.changed.wait_for(lambda: not core.running, PAUSE_SECONDS + PATIENCE * seconds)

    def _next(self) -> tuple[OperatorSlot, Arriving, list[int]] | None:
        """The hottest bins that are missing, as many as make a unit."""
        best: tuple[float, OperatorSlot, Arriving] | None = None
        if self.is_full():
            return None
        for record in self._arriving.in_store():
            slot = self._core.slots.get(record.operator)
            missing = list(record.missing)
            if slot is None or not missing:
                continue
            heat = float(self._heat(slot, record.group)[missing].max())
            if best is None or heat > best[0]:
                best = heat, slot, record
        if best is None:
            return None
        _, slot, record = best
        heat_of = self._heat(slot, record.group)
        missing = sorted(record.missing, key=lambda bin_: -heat_of[bin_])
        size = 1 + slot.in_store.get(record.group, 0) // max(1, len(missing))
        return slot, record, sorted(missing[: max(1, self._unit_bytes(slot, record) // size)])

    def _unit_bytes(self, slot: OperatorSlot, record: Arriving) -> int:
        limit = self._core.config.state_memory_bytes
        stored = slot.stored_at(self._core.blobs, record.as_of)
        if not stored.is_mostly_logged(record.group):
            return UNIT_BYTES
        if limit is None:
            return LOGGED_UNIT_BYTES
        # It must fit above the share that is full, or it would be evicted at once.
        return min(LOGGED_UNIT_BYTES, max(UNIT_BYTES, round((1 - FULL_SHARE) / 2 * limit)))

    def _heat(self, slot: OperatorSlot, group: int) -> Heat:
        rows: Heat = slot.heat.reshape(self._keyspace.groups, self._keyspace.bins)[group]
        return rows

    def _bring_unit(self, slot: OperatorSlot, record: Arriving, bins: list[int]) -> None:
        with record.lock:
            if not record.is_coming or not record.missing.issuperset(bins):
                return
            stored = slot.stored_at(self._core.blobs, record.as_of)
            sections = stored.part(record.group, bins, slot.engine.create_group)
            with slot.apply_lock:
                if record.is_dead or slot.states.get(record.group) is not record.state:
                    return
                self._install_bins(record, sections, bins)
            self._core.pass_point("restored")
            if record.missing:
                self._note(slot, record, stored)
            elif self._arriving.settle(slot, record):
                slot.in_store.pop(record.group, None)

    def _report(self, slot: OperatorSlot, reported: dict[str, float]) -> None:
        left = self.bins_in_store(slot.name)
        with self._core.changed:
            total = len(self._core.machine.granted) * self._keyspace.bins
        share = 1 - left / max(1, total)
        if not left or share >= reported.get(slot.name, 0.0) + REPORTED_STEP:
            _log.info("Operator '%s': %d%% of its state is in memory", slot.name, 100 * share)
            reported[slot.name] = share if left else 0.0

    def bins_in_store(self, operator: str) -> int:
        """How many bins of key groups owned here are in no worker's memory."""
        core = self._core
        records = [r for r in self._arriving.in_store() if r.operator == operator]
        with core.changed:
            known = {*core.slots[operator].states, *(record.group for record in records)}
            others = [group for group in core.machine.granted if group not in known]
            unread = [g for g in others if core.source_of(operator, g) in (None, STORE)]
        return sum(len(r.missing) for r in records) + len(unread) * self._keyspace.bins


def _count_rows(run: RunningTransaction, groups: Collection[int], keys: list[Int64s]) -> int:
    """Rows of a transaction that are of some key groups or of other keys."""
    count = sum(run.rows.rows_of(groups))
    wanted = _joined(*keys)
    if len(wanted):
        for chunk in run.rows.chunks():
            hashes = chunk.rows.column(HASH).to_numpy()
            found = wanted.take(wanted.searchsorted(hashes), mode="clip") == hashes
            count += int(np.count_nonzero(found))
    return count


def _joined(*parts: Int64s | None) -> Int64s:
    some = [part for part in parts if part is not None and len(part)]
    return np.unique(np.concatenate(some)) if some else NO_HASHES
