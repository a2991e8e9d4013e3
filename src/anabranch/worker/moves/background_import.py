"""The order `import`: bring in the background what is missing of key groups owned here."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from anabranch.durability.group_restore import Restored
from anabranch.errors import AnabranchError
from anabranch.migration.steps import ImportPriority
from anabranch.model.ids import Epoch, KeyGroup, WorkerId, epoch_of
from anabranch.protocol import worker as protocol
from anabranch.protocol.arrivals import ArrivingGroup
from anabranch.protocol.residency import importable, is_needed
from anabranch.state.contract import GroupState
from anabranch.transport.messages.state import Fetch, GroupRequest, Heat
from anabranch.worker.core import Place, WorkerCore
from anabranch.worker.moves.parcel_reader import ReceivedGroup, receive
from anabranch.worker.moves.rate_limiter import RateLimiter
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.peers import Peers
from anabranch.worker.residency.arrival_table import ArrivalTable, PartContent
from anabranch.worker.residency.load import GroupLoader, ask_all

_log = logging.getLogger("anabranch.worker")

BATCH_GROUPS = 8
"""Key groups asked for at a time: the source exports one while the one before is put in place."""

UNIT_BYTES = 1 << 20
"""About so much is asked for at a time when bins come one by one: what is needed overtakes it."""

HEAT_SECONDS_MAX = 10.0
SHADOW_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class ImportUnit:
    """A key group and some of its bins, to be asked for."""

    operator: str
    request: protocol.SourceRequest
    bins: tuple[int, ...] | None = None
    """None: all that are missing."""

    @property
    def place(self) -> Place:
        """Operator and key group."""
        return self.operator, int(self.request.group)

    @property
    def kind(self) -> tuple[str, str, int]:
        """Units of one kind fit into one request."""
        return self.operator, self.request.source, self.request.version


class BackgroundImport:
    """Offers what it brings; transactions overtake it."""

    def __init__(
        self,
        core: WorkerCore,
        arrivals: ArrivalTable,
        loader: GroupLoader,
        peers: Peers,
        limiter: RateLimiter,
    ) -> None:
        self._core = core
        self._arrivals = arrivals
        self._loader = loader
        self._peers = peers
        self._limiter = limiter

    def run(
        self, groups: Sequence[int], priority: ImportPriority, by_bin: bool, version: int
    ) -> Counter[str]:
        """Bring everything that is missing; afterwards sources are not needed for it."""
        core, counted, wanted = self._core, Counter[str](), tuple(map(KeyGroup, groups))
        with core.changed:
            core.dispatch(protocol.ImportBegan(wanted, version))
            found = importable(core.machine, wanted, version)
        try:
            for units in self._ordered(found, priority, by_bin):
                self._bring(units, counted)
        finally:
            core.dispatch(protocol.ImportEnded(wanted))
        counted["left"] += sum(self._now(*each) is not None for each in found)
        core.count(counted)
        return counted + self._arrivals.take_on_demand(groups)  # counted already when it came

    # -- order --

    def _ordered(
        self,
        found: list[tuple[str, protocol.SourceRequest]],
        priority: ImportPriority,
        by_bin: bool,
    ) -> Iterator[list[ImportUnit]]:
        """Units to ask for together: of one source, version and operator."""
        heat, size = self._heat(found) if priority is not ImportPriority.INDEX else ({}, {})

        def rank(unit: ImportUnit) -> float:  # smaller is sooner
            rows = heat.get(unit.place, ())
            hot = float(np.sum([rows[b] for b in unit.bins] if unit.bins and rows else rows))
            is_by_size = priority is ImportPriority.WAITING
            return -hot / (1 + size.get(unit.place, 0)) if is_by_size else -hot

        todo = [
            unit
            for operator, request in found
            for unit in _units(operator, request, by_bin, heat, size)
        ]
        todo.sort(key=lambda unit: (rank(unit), unit.place, unit.bins or ()))
        together = 1 if priority is ImportPriority.WAITING else BATCH_GROUPS
        if by_bin and size:
            mean = sum(size.values()) // len(size)
            together = max(1, min(BATCH_GROUPS, UNIT_BYTES // (1 + mean)))
        while todo:
            if priority is ImportPriority.WAITING:  # anew each time: transactions come and go
                todo.sort(key=lambda unit: (not self._is_needed(unit), rank(unit)))
            chosen: list[ImportUnit] = []
            others: list[ImportUnit] = []
            groups: set[int] = set()
            for unit in todo[:together]:  # one unit of a key group in a request
                fits = unit.kind == todo[0].kind and unit.request.group not in groups
                (chosen if fits else others).append(unit)
                groups.add(unit.request.group)
            todo = others + todo[together:]
            yield chosen

    def _heat(
        self, found: list[tuple[str, protocol.SourceRequest]]
    ) -> tuple[dict[Place, tuple[float, ...]], dict[Place, int]]:
        """Recent rows of each bin and bytes of each key group, as their sources know them."""
        heat: dict[Place, tuple[float, ...]] = {}
        size: dict[Place, int] = {}
        groups_of: dict[tuple[str, str], list[int]] = {}
        for operator, request in found:
            groups_of.setdefault((operator, request.source), []).append(int(request.group))
        for (operator, source), groups in groups_of.items():
            question = Heat(operator, tuple(groups))
            try:
                reply = self._peers.get(source).call(question, HEAT_SECONDS_MAX)
            except AnabranchError:
                continue  # any order is right
            for group in groups:
                heat[operator, group] = reply.rows[group]
                size[operator, group] = reply.bytes.get(group, 0)
        return heat, size

    def _is_needed(self, unit: ImportUnit) -> bool:
        with self._core.changed:
            request = unit.request
            return is_needed(self._core.machine, unit.operator, request.group, request.session)

    def _now(self, operator: str, request: protocol.SourceRequest) -> protocol.SourceRequest | None:
        """The request as it would be now; None: nothing is to be asked for any more."""
        with self._core.changed:
            found = importable(self._core.machine, (request.group,), request.version)
        same = (r for name, r in found if name == operator and r.session == request.session)
        return next(same, None)

    # -- transfer --

    def _bring(self, units: list[ImportUnit], counted: Counter[str]) -> None:
        slot = self._core.slots.get(units[0].operator)
        if slot is None:
            return
        # A shadow transaction that began before the grant would come on top of what is brought.
        groups = [unit.request.group for unit in units]
        self._core.wait_idle(slot.name, groups, SHADOW_SECONDS_MAX, shadows=True)
        wanted: dict[int, ImportUnit] = {}
        for unit in units:
            now = self._now(unit.operator, unit.request)
            if now is not None and (unit.bins is None or set(unit.bins) & set(now.missing)):
                wanted[now.group] = ImportUnit(unit.operator, now, unit.bins)
        if not wanted:
            return
        first = units[0].request
        fetch = Fetch(
            slot.name,
            slot.definition_id,
            WorkerId(self._core.config.worker),
            self._core.address,
            first.version,
            None,
            tuple(self._ask(unit) for unit in wanted.values()),
        )
        left = dict(wanted)
        try:
            parcels = self._peers.stream(first.source, fetch)
            for received in receive(parcels, lambda g, size: self._piece(wanted[g], size)):
                unit = left[received.group]
                if received.is_gone:
                    self._receiving_ended([unit])
                    continue
                del left[received.group]
                self._offer(slot, unit, received, counted)
                self._core.pass_point("imported")
        except Exception as error:  # also that memory is short: the state comes another way
            _log.info("Import from worker %s: %r", first.source, error)
        finally:
            self._receiving_ended(wanted.values())
        if left:
            self._from_store(slot, list(left.values()), counted)

    def _ask(self, unit: ImportUnit) -> GroupRequest:
        request = ask_all(self._core, unit.request)
        if unit.bins is None:
            return request
        missing = unit.request.missing
        return replace(request, bins=tuple(bin_ for bin_ in unit.bins if bin_ in missing))

    def _piece(self, unit: ImportUnit, size: int) -> None:
        mine = ((unit.request.group, unit.request.session),)
        self._core.dispatch(protocol.PartReceiving(unit.operator, mine))
        self._limiter.take(size, lambda: self._is_needed(unit))

    def _receiving_ended(self, units: Iterable[ImportUnit]) -> None:
        for unit in units:
            mine = ((unit.request.group, unit.request.session),)
            self._core.dispatch(protocol.ReceivingEnded(unit.operator, mine))

    def _offer(
        self,
        slot: OperatorSlot,
        unit: ImportUnit,
        received: ReceivedGroup,
        counted: Counter[str],
    ) -> None:
        request, group = unit.request, received.group
        as_of = epoch_of(received.as_of)
        place = unit.operator, request.group, request.session

        def install(content: PartContent, record: ArrivingGroup) -> None:
            if received.is_replica:
                received.replay(slot.states[group])
                content.staged = slot.states[group]
            else:
                state = self._state_of(slot, content, record, group)
                content.add(state, received, record.missing, slot.keyspace)
            content.wear = received.wear

        if received.is_replica:
            assert request.replica is not None
            since, kind = request.replica[1], protocol.PartKind.DELTA
            bins = frozenset(request.missing)
        else:
            since, kind, bins = None, protocol.PartKind.BINS, frozenset(received.bins)
        offer = protocol.PartOffered(*place, kind, as_of, bins, since)
        if self._arrivals.offer(slot, offer, install):
            counted.update(received.counted)
            counted["bins"] += len(received.bins)
            counted["groups"] += self._now(unit.operator, request) is None

    def _state_of(
        self, slot: OperatorSlot, content: PartContent, record: ArrivingGroup, group: int
    ) -> GroupState:
        """What a part is added to: what transactions work on, or what is not theirs yet."""
        if record.phase is protocol.Residency.PARTIAL:
            return slot.states[group]
        if content.staged is None:
            content.staged = slot.engine.create_group()
        return content.staged

    # -- from the store --

    def _from_store(
        self, slot: OperatorSlot, units: list[ImportUnit], counted: Counter[str]
    ) -> None:
        """The source does not have it: the last epoch known to exist, if it has what is missing."""
        epoch = slot.committed
        if epoch is None:
            return  # the next transaction knows its base
        asked = [now for u in units if (now := self._now(u.operator, u.request)) is not None]
        whole = [r.group for r in asked if r.phase is not protocol.Residency.PARTIAL]
        try:  # together: every file is opened once
            restored = slot.read(self._core.blobs, whole, epoch) if whole else {}
        except AnabranchError as error:
            _log.info("Key groups %s are left to the next batch: %s", whole, error)
            return
        for request in asked:
            found = restored.pop(request.group, None)
            try:
                if found is not None:
                    is_done = self._offer_whole(slot, request, found, epoch)
                elif slot.engine.logs_rows:
                    continue  # not in parts: the next transaction takes all of it
                else:
                    is_done = self._offer_rest(slot, request, epoch)
            except AnabranchError as error:
                _log.info("Key group %s is left to the next batch: %s", request.group, error)
                continue
            counted["groups"] += is_done
            counted["from_store"] += is_done

    def _offer_whole(
        self,
        slot: OperatorSlot,
        request: protocol.SourceRequest,
        restored: Restored[GroupState],
        epoch: int,
    ) -> bool:
        def install(content: PartContent, record: ArrivingGroup) -> None:
            content.staged, content.wear = restored.state, restored.wear

        place = slot.name, request.group, request.session
        bins, kind = frozenset(request.missing), protocol.PartKind.WHOLE
        offer = protocol.PartOffered(*place, kind, Epoch(epoch), bins)
        return self._arrivals.offer(slot, offer, install)

    def _offer_rest(self, slot: OperatorSlot, request: protocol.SourceRequest, epoch: int) -> bool:
        group = int(request.group)
        sections = self._loader.read_missing(slot, group, request.missing, epoch)

        def install(content: PartContent, record: ArrivingGroup) -> None:
            slot.states[group].install(content.absent_in(sections, slot.keyspace))

        place = slot.name, request.group, request.session
        bins, kind = frozenset(request.missing), protocol.PartKind.REST
        offer = protocol.PartOffered(*place, kind, Epoch(epoch), bins)
        return self._arrivals.offer(slot, offer, install)


def _units(
    operator: str,
    request: protocol.SourceRequest,
    by_bin: bool,
    heat: Mapping[Place, tuple[float, ...]],
    size: Mapping[Place, int],
) -> list[ImportUnit]:
    if not by_bin or request.replica is not None:
        return [ImportUnit(operator, request)]
    place = operator, int(request.group)
    rows = heat.get(place, ())
    bins = sorted(request.missing, key=lambda b: (-rows[b] if rows else 0.0, b))
    count = max(1, UNIT_BYTES * len(bins) // (1 + size.get(place, UNIT_BYTES)))
    return [
        ImportUnit(operator, request, tuple(bins[n : n + count]))
        for n in range(0, len(bins), count)
    ]
