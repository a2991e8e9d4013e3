"""The source's side of a move: gives state to other workers while it works, or after it let go."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager

import numpy as np

from anabranch.model.ids import KeyGroup, number_of
from anabranch.model.keyspace import Int64s, KeySpace
from anabranch.processor.contract import BatchTimes
from anabranch.protocol.worker import GroupsReleased
from anabranch.state.channel import has_waiting
from anabranch.state.contract import GroupState
from anabranch.transport.messages import state as messages
from anabranch.transport.messages.state import GoneHead, GroupRequest, Need
from anabranch.transport.packing import pack_hashes, unpack_hashes
from anabranch.transport.signs_of_life import Item
from anabranch.worker.core import Place, WorkerCore
from anabranch.worker.moves.deltas import Delta, DeltaLogs, joined_deltas
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.peers import Peers

SLICE_BYTES = 2 << 20
"""Exported at a time while transactions wait: a few milliseconds."""

FROZEN_SLICE_BYTES = 8 << 20
QUIET_SECONDS_MAX = 0.1
"""A copy with a rate waits so long for a moment between transactions, whose batch needs the cores.
Short batches have one by then; under long ones a copy must not fall far behind its rate."""

COPY_TRIES = 3
IDLE_SECONDS_MAX = 20.0
"""How long another worker waits for a transaction here before it turns to the store."""


class Gone(Exception):
    """The state is not here (any more), or not as it is wanted."""


class Exports:
    """Streams of state for other workers."""

    def __init__(self, core: WorkerCore, logs: DeltaLogs, peers: Peers) -> None:
        self._core = core
        self._logs = logs
        self._peers = peers
        self._keyspace = core.config.keyspace
        self._served: dict[Place, tuple[str, set[int]]] = {}
        """Keys that were given one by one, with the session of the worker that has them."""
        self._served_lock = threading.Lock()
        core.on_drop.append(self._forget)

    def _forget(self, operator: str, groups: tuple[int, ...] | None) -> None:
        self._logs.drop(operator, groups)
        with self._served_lock:
            for place in list(self._served):
                if place[0] == operator and (groups is None or place[1] in groups):
                    del self._served[place]

    # -- while the source goes on --

    def copy(self, request: messages.CopyGroups) -> Iterator[Item]:
        """Key groups slice by slice; slices of a group may be as of different epochs."""
        slot = self._core.slot(request.operator, request.definition)
        quiet = QUIET_SECONDS_MAX if request.is_limited else 0.0
        for group in request.groups:
            for _ in range(COPY_TRIES):
                if (yield from self._copy_group(slot, group, quiet)):
                    break
                yield messages.RestartHead(group), {}
            else:
                yield GoneHead(group), {}

    def _copy_group(
        self, slot: OperatorSlot, group: int, quiet_seconds: float
    ) -> Generator[Item, None, bool]:
        """False: the state was loaded anew meanwhile, so that its log does not continue."""
        try:
            with self._still(slot, group) as (state, as_of):
                log = self._logs.open((slot.name, group), as_of)
                # Rows in the place of changes concern all bins: slices of one epoch only.
                limit = math.inf if slot.engine.logs_rows else SLICE_BYTES
                slices = slices_of(state, self._keyspace, range(self._keyspace.bins), limit)
            for bins in slices:
                self._core.wait_quiet(quiet_seconds)
                with self._still(slot, group) as (state, as_of):
                    sections = state.export_packed(bins)
                if not log.is_alive:
                    return False
                yield messages.SliceHead(group, tuple(bins), as_of), sections
                self._core.pass_point("copy-slice")
            with self._still(slot, group) as (_, as_of):
                deltas = log.since(log.start)
                wear = slot.wear_of(group)
            if not log.is_alive:
                return False
        except Gone:
            yield GoneHead(group), {}
            return True
        yield from _deltas(group, deltas)
        yield messages.DoneHead(group, as_of, tuple(wear), log.number), {}
        return True

    def deltas(self, request: messages.Deltas) -> Iterator[Item]:
        """What has changed since the replicas were brought up to date last."""
        slot = self._core.slot(request.operator, request.definition)
        for group, replica in request.replicas.items():
            place, since = (slot.name, group), replica.as_of
            try:
                with self._still(slot, group) as (_, as_of):
                    log = self._logs.find(place, replica.log, since)
                    deltas = log.since(since) if log is not None else []
                    wear = slot.wear_of(group)
            except Gone:
                log = None
            if log is None:
                yield GoneHead(group), {}
                continue
            self._logs.trim(log, since)
            yield from _deltas(group, joined_deltas(deltas))
            yield messages.DoneHead(group, as_of, tuple(wear), replica.log), {}
        self._core.pass_point("deltas-served")

    @contextmanager
    def _still(self, slot: OperatorSlot, group: int) -> Iterator[tuple[GroupState, int]]:
        """A key group between two transactions, which wait as long as this lasts."""
        core = self._core
        while True:
            with slot.apply_lock:
                with core.changed:
                    held = core.held(slot.name, group)
                    state = slot.states.get(group)
                    if core.slots.get(slot.name) is not slot:
                        raise Gone
                    if held is None or state is None or held.is_partial:
                        raise Gone
                    is_busy = core.machine.is_busy(slot.name, KeyGroup(group))
                    as_of = number_of(held.as_of)
                if not is_busy:
                    yield state, as_of
                    return
            core.wait_idle(slot.name, (group,), IDLE_SECONDS_MAX)

    # -- after the source let go --

    def fetch(self, request: messages.Fetch) -> Iterator[Item]:
        """Key groups that the caller owns now, or parts of them. Asking is as good as a release."""
        core = self._core
        slot = core.slot(request.operator, request.definition)
        groups = tuple(KeyGroup(each.group) for each in request.groups)
        self._peers.remember(request.target, request.address)
        core.dispatch(GroupsReleased(groups, request.version, request.target))
        with core.changed:
            refused = {group for group in groups if core.is_owner(group)}
        core.wait_idle(slot.name, (g for g in groups if g not in refused), IDLE_SECONDS_MAX)
        core.pass_point("fetch-asked")
        for each in request.groups:
            if each.group in refused:
                yield GoneHead(each.group), {}
            else:
                yield from self._give(slot, each, request.times)
        core.pass_point("fetch-served")

    def _give(
        self, slot: OperatorSlot, request: GroupRequest, times: BatchTimes | None
    ) -> Iterator[Item]:
        group = request.group
        try:
            with self._frozen(slot, group, request.as_of) as (state, as_of):
                deltas = self._deltas_for(slot.name, request, as_of)
                wear = tuple(slot.wear_of(group))
                due = self._due(slot, state, request, times)
            if deltas is not None:
                yield from _deltas(group, joined_deltas(deltas))
            elif request.need is Need.KEYS and not has_waiting(state):
                yield from self._give_keys(slot, request, due, as_of)
            else:
                bins = set(request.bins) | set(self._bins_of(due))
                if has_waiting(state):
                    bins = set(request.missing)
                wanted = sorted(bins & set(request.missing))
                limit = FROZEN_SLICE_BYTES
                for some in slices_of(state, self._keyspace, wanted, limit):
                    with self._frozen(slot, group, as_of) as (state, _):
                        sections = state.export_packed(some)
                    yield messages.SliceHead(group, tuple(some), as_of), sections
            is_replica = deltas is not None
            yield messages.DoneHead(group, as_of, wear, None, is_replica), {}
        except Gone:
            yield GoneHead(group), {}

    def _deltas_for(self, operator: str, request: GroupRequest, as_of: int) -> list[Delta] | None:
        if request.replica is None:
            return None
        since = request.replica.as_of
        log = self._logs.find((operator, request.group), request.replica.log, since)
        return log.since(since) if log is not None and since <= as_of else None

    def _due(
        self,
        slot: OperatorSlot,
        state: GroupState,
        request: GroupRequest,
        times: BatchTimes | None,
    ) -> Int64s:
        """Keys of missing bins for which the caller's transaction has something to do."""
        if times is None or request.need is Need.ALL:
            return np.empty(0, np.int64)
        due = slot.engine.due_hashes(state, times)
        missing = np.zeros(self._keyspace.bins, bool)
        missing[list(request.missing)] = True
        return due[missing[self._keyspace.bin_of(due)]]

    def _give_keys(
        self, slot: OperatorSlot, request: GroupRequest, due: Int64s, as_of: int
    ) -> Iterator[Item]:
        group, session = request.group, request.session
        asked = unpack_hashes(request.hashes)
        place = slot.name, group
        with self._served_lock:
            known, served = self._served.get(place, (session, set()))
            if known != session:
                served = set()
            self._served[place] = session, served
        served.update(asked.tolist())
        due = np.array(sorted(set(due.tolist()) - served), np.int64)
        hashes = np.concatenate((asked, due))
        with self._frozen(slot, group, as_of) as (state, _):
            sections = state.export(hashes=hashes)
        served.update(due.tolist())
        yield messages.KeysHead(group, pack_hashes(due)), sections

    def _bins_of(self, hashes: Int64s) -> list[int]:
        found: list[int] = np.unique(self._keyspace.bin_of(hashes)).tolist()
        return found

    @contextmanager
    def _frozen(
        self, slot: OperatorSlot, group: int, wanted: int | None
    ) -> Iterator[tuple[GroupState, int]]:
        """A key group that is not owned here; should it be again, transactions wait."""
        core = self._core
        with core.changed:
            held = core.held(slot.name, group)
            state = slot.states.get(group)
            if held is None or state is None or held.is_partial or core.is_owner(group):
                raise Gone
            as_of = number_of(held.as_of)
            if wanted is not None and as_of != wanted:
                raise Gone
            if core.machine.is_busy(slot.name, KeyGroup(group), shadows=True):
                raise Gone  # it is about to come back, and being brought forward
            slot.pins[group] += 1
        try:
            yield state, as_of
        finally:
            with core.changed:
                slot.pins[group] -= 1
                if not slot.pins[group]:
                    del slot.pins[group]
                core.changed.notify_all()

    # -- small questions --

    def as_of(self, request: messages.AsOf) -> messages.GroupEpochs:
        """The epochs of key groups, by operator."""
        core = self._core
        found: dict[str, dict[int, int]] = {}
        with core.changed:
            for operator in request.operators:
                found[operator] = {}
                for group in request.groups:
                    held = core.held(operator, group)
                    if held is not None:
                        found[operator][group] = number_of(held.as_of)
        core.pass_point("lag-served")
        return messages.GroupEpochs(found)

    def heat(self, request: messages.Heat) -> messages.GroupHeat:
        """Recent rows for each bin of key groups."""
        slot = self._core.slot(request.operator)
        rows = slot.heat.reshape(self._keyspace.groups, self._keyspace.bins)
        states = {group: slot.states.get(group) for group in request.groups}
        return messages.GroupHeat(
            {group: tuple(rows[group].round(2).tolist()) for group in states},
            {group: state.num_bytes for group, state in states.items() if state is not None},
        )


def slices_of(
    state: GroupState, keyspace: KeySpace, bins: Collection[int], bytes_max: float
) -> list[list[int]]:
    """Bins in parts that have at most so many bytes, as far as can be told without looking."""
    if not bins:
        return []
    size = state.num_bytes * len(bins) // keyspace.bins
    count = max(1, min(len(bins), math.ceil(size / bytes_max)))
    return [part.tolist() for part in np.array_split(np.array(sorted(bins)), count)]


def _deltas(group: int, deltas: list[Delta]) -> Iterator[Item]:
    for delta in deltas:
        yield messages.DeltaHead(group, delta.epoch, delta.rows), delta.sections
