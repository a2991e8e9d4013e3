"""Key groups that are partly in the store: transactions read what they need, a thread the rest."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.durability.heat import BinHeat
from anabranch.durability.lazy_reader import LazyReader
from anabranch.durability.manifest import DEFERRED, ROWS_WAIT
from anabranch.durability.pages import PAGE_BYTES
from anabranch.errors import AnabranchError
from anabranch.model.ids import KeyGroup, epoch_of
from anabranch.model.keyspace import HASH, Int64s, KeySpace
from anabranch.protocol import worker as protocol
from anabranch.protocol.arrivals import ArrivingGroup
from anabranch.protocol.residency import in_store
from anabranch.state.channel import BIN, has_waiting, waiting_in
from anabranch.state.contract import GroupState, Sections
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.parcel_reader import NO_HASHES, not_in
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.residency.arrival_table import ArrivalTable, PartContent
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


@dataclass(slots=True)
class StoredPart:
    """A key group whose rest is in the store, as a transaction sees it while it loads."""

    group: int
    missing: set[int]
    content: PartContent
    state: GroupState

    def install(self, sections: Sections, bins: Collection[int], keyspace: KeySpace) -> None:
        """Put in place what the store has of missing bins."""
        self.state.install(self.content.absent_in(sections, keyspace))
        self.missing.difference_update(bins)
        self.content.forget_fetched(bins, keyspace)


@dataclass(frozen=True, slots=True)
class Unit:
    """Bins to be read at a time in the background."""

    slot: OperatorSlot
    group: KeyGroup
    session: int
    as_of: int | None
    bins: list[int]


class StoreLoader:
    """Reads of transactions, and the thread that brings the rest, hot bins first."""

    def __init__(self, core: WorkerCore, arrivals: ArrivalTable) -> None:
        self._core = core
        self._arrivals = arrivals
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
        known: Mapping[int, set[int]],
        as_of: int | None,
        counted: Counter[str],
    ) -> dict[int, set[int]]:
        """What a transaction needs of key groups, new ones or partly here, with missing bins.

        Returns those that are still here in part, with what is missing then.
        """
        parts = [self._part(slot, group, missing) for group, missing in known.items()]
        stored = slot.stored_at(self._core.blobs, as_of)
        groups = {*fresh, *known}
        stored.open(groups)
        # 1. Deferred rows are applied too: their keys are needed, and what was due by then.
        new = {group: slot.engine.create_group() for group in fresh}
        self._bring_channels(slot, stored, new, parts)
        waiting = waiting_in([*new.values(), *(part.state for part in parts)])
        needed = self._needed(run, groups, [some.rows for some in waiting])
        late = {some.group for some in waiting}
        blobs = self._core.blobs
        due = self._by_group(slot.due_in(blobs, stored, groups - late, run.times))
        due.update(self._by_group(slot.due_in(blobs, stored, late, run.times, waiting)))
        # 2. New ones: whole, or empty for now.
        keys_of = {group: _joined(needed.get(group), due.get(group)) for group in groups}
        whole = [group for group in fresh if self._is_whole(stored.pages(group), keys_of[group])]
        if whole:
            self._arrivals.logs.drop(slot.name, tuple(whole))
            slot.load(blobs, tuple(whole), as_of)
        parts += [
            self._leave(slot, group, new[group], stored) for group in fresh if group not in whole
        ]
        # 3. Keys that are missing.
        absent = self._bring_keys(slot, parts, keys_of, stored, counted)
        slot.rows_missed += _count_rows(run, whole, absent)
        for part in parts:
            self._note(slot, part.group, part.missing, stored)
        return {part.group: part.missing for part in parts if part.missing}

    def _part(self, slot: OperatorSlot, group: int, missing: set[int]) -> StoredPart:
        content = self._arrivals.content(slot.name, group)
        return StoredPart(group, set(missing), content, slot.states[group])

    def _bring_keys(
        self,
        slot: OperatorSlot,
        parts: list[StoredPart],
        keys_of: Mapping[int, Int64s],
        stored: LazyReader,
        counted: Counter[str],
    ) -> list[Int64s]:
        """Read the keys that are not here, or all that is missing where that costs as much."""
        absent: list[Int64s] = []
        wanted: dict[int, Int64s] = {}
        for part in parts:
            keys = self._missing(part, keys_of[part.group])
            if self._is_whole(stored.pages(part.group) * self._share(part.missing), keys):
                bins = sorted(part.missing)
                sections = stored.part(part.group, bins, slot.engine.create_group)
                part.install(sections, bins, self._keyspace)
            else:
                wanted[part.group] = keys
            absent.append(keys)
        self._put_keys(slot, parts, wanted, stored)
        counted["keys_from_store"] += sum(map(len, wanted.values()))
        return absent

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
        parts: Collection[StoredPart],
    ) -> None:
        """Put deferred rows in place that are in the store: once here, they do not come again."""
        notes = stored.manifest.extra
        is_any = notes.get(ROWS_WAIT) == "independent"  # of these, rows to be applied again
        known = {*notes.get(DEFERRED, ()), *(p.group for p in parts if has_waiting(p.state))}
        absent = {p.group: p for p in parts if BIN in p.missing and not p.content.has_channel}
        asked = {group for group in (*new, *absent) if is_any or group in known}
        found = stored.channels(asked, slot.engine.create_group) if asked else {}
        for group, sections in found.items():
            state = new[group] if group in new else absent[group].state
            state.install(sections)
        for part in absent.values():
            part.content.has_channel = True

    def _leave(
        self, slot: OperatorSlot, group: int, state: GroupState, stored: LazyReader
    ) -> StoredPart:
        """Nothing of a key group but its deferred rows is here."""
        content = PartContent(has_channel=True)
        self._arrivals.renew(slot.name, group, content)
        self._arrivals.adopt(slot, group, state, stored.wear(group))
        return StoredPart(group, set(range(self._keyspace.bins)), content, state)

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

    def _missing(self, part: StoredPart, hashes: Int64s) -> Int64s:
        absent = np.zeros(self._keyspace.bins, bool)
        absent[list(part.missing)] = True
        wanted = hashes[absent[self._keyspace.bin_of(hashes)]]
        return wanted[not_in(part.content.fetched, wanted)]

    def _put_keys(
        self,
        slot: OperatorSlot,
        parts: list[StoredPart],
        wanted: dict[int, Int64s],
        stored: LazyReader,
    ) -> None:
        if not any(map(len, wanted.values())):
            return
        found = stored.keys(np.concatenate(list(wanted.values())), slot.engine.create_group)
        for part in parts:
            keys = wanted.get(part.group, NO_HASHES)
            if len(keys):
                part.state.install(found.get(part.group, {}))
                part.content.fetched.update(keys.tolist())

    def _share(self, missing: Collection[int]) -> float:
        return len(missing) / self._keyspace.bins

    def _note(
        self, slot: OperatorSlot, group: int, missing: Collection[int], stored: LazyReader
    ) -> None:
        if missing:
            slot.in_store[group] = round(stored.pages(group) * self._share(missing) * PAGE_BYTES)
        else:
            slot.in_store.pop(group, None)

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
                    self._work.wait()  # no limit: start() sets it when there is work
                    continue
                self._bring_unit(unit)
                self._report(unit.slot, reported)
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

    def _next(self) -> Unit | None:
        """The hottest bins that are missing, as many as make a unit."""
        if self.is_full():
            return None
        best: tuple[float, OperatorSlot, KeyGroup, ArrivingGroup] | None = None
        with self._core.changed:
            found = [(o, g, replace(r, missing=set(r.missing))) for o, g, r in self._in_store()]
        for operator, group, record in found:
            slot = self._core.slots.get(operator)
            if slot is None:
                continue
            heat = float(self._heat(slot, group)[list(record.missing)].max())
            if best is None or heat > best[0]:
                best = heat, slot, group, record
        if best is None:
            return None
        _, slot, group, record = best
        heat_of = self._heat(slot, group)
        missing = sorted(record.missing, key=lambda bin_: -heat_of[bin_])
        size = 1 + slot.in_store.get(group, 0) // max(1, len(missing))
        count = max(1, self._unit_bytes(slot, group, record.origin) // size)
        return Unit(slot, group, record.session, record.origin, sorted(missing[:count]))

    def _in_store(self) -> list[tuple[str, KeyGroup, ArrivingGroup]]:
        return in_store(self._core.machine)

    def _unit_bytes(self, slot: OperatorSlot, group: int, as_of: int | None) -> int:
        limit = self._core.config.state_memory_bytes
        stored = slot.stored_at(self._core.blobs, as_of)
        if not stored.is_mostly_logged(group):
            return UNIT_BYTES
        if limit is None:
            return LOGGED_UNIT_BYTES
        # It must fit above the share that is full, or it would be evicted at once.
        return min(LOGGED_UNIT_BYTES, max(UNIT_BYTES, round((1 - FULL_SHARE) / 2 * limit)))

    def _heat(self, slot: OperatorSlot, group: int) -> BinHeat:
        rows: BinHeat = slot.heat.reshape(self._keyspace.groups, self._keyspace.bins)[group]
        return rows

    def _bring_unit(self, unit: Unit) -> None:
        slot, group = unit.slot, unit.group
        mine = ((group, unit.session),)
        # Transactions wait for it, or it would be as of an epoch that they have passed.
        self._core.dispatch(protocol.PartReceiving(slot.name, mine))
        try:
            self._read_unit(unit)
        finally:
            self._core.dispatch(protocol.ReceivingEnded(slot.name, mine))

    def _read_unit(self, unit: Unit) -> None:
        slot, group, bins = unit.slot, unit.group, unit.bins
        stored = slot.stored_at(self._core.blobs, unit.as_of)
        sections = stored.part(group, bins, slot.engine.create_group)

        def install(content: PartContent, record: ArrivingGroup) -> None:
            part = StoredPart(group, set(record.missing), content, slot.states[group])
            part.install(sections, bins, self._keyspace)
            self._note(slot, group, part.missing, stored)

        kind, as_of = protocol.PartKind.REST, epoch_of(stored.epoch)
        place = slot.name, group, unit.session
        offer = protocol.PartOffered(*place, kind, as_of, frozenset(bins))
        if self._arrivals.offer(slot, offer, install):
            self._core.pass_point("restored")

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
        with core.changed:
            missing = {g: len(r.missing) for o, g, r in self._in_store() if o == operator}
            known = {*core.slots[operator].states, *missing}
            others = [group for group in core.machine.granted if group not in known]
            unread = [g for g in others if core.source_of(operator, g) in (None, protocol.STORE)]
        return sum(missing.values()) + len(unread) * self._keyspace.bins


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
