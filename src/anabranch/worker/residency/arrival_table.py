"""Key groups on their way to this worker: what of each is here already, and who waits for it."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from anabranch.migration.steps import Arrival
from anabranch.model.ids import BEFORE_FIRST, KeyGroup, epoch_of, number_of
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.protocol.worker import STORE, GroupsImported
from anabranch.state.channel import BIN, CHANNEL
from anabranch.state.contract import GroupState, Sections
from anabranch.transport.messages.state import ReplicaLog
from anabranch.worker.core import Place, WorkerCore
from anabranch.worker.moves.deltas import DeltaLogs
from anabranch.worker.moves.parcel_reader import ReceivedGroup, joined, without
from anabranch.worker.operator_slot import OperatorSlot

RECEIVE_SECONDS_MAX = 60.0
"""How long a transaction waits for an import that is under way before it asks for itself."""


@dataclass(slots=True)
class Replica:
    """A copy of a key group that is not owned here."""

    source: str
    log: int
    """The source's log of changes that continues it."""


@dataclass(eq=False, slots=True)
class Arriving:
    """One key group of one operator that is owned here while a source has (some of) its state."""

    operator: str
    group: int
    source: str
    version: int
    arrival: Arrival
    session: str
    replica: Replica | None
    missing: set[int]
    """Bins that are not here."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while something is brought here for a transaction, or put in place."""
    state: GroupState | None = None
    """What is here; private until a transaction needs it."""
    as_of: int = BEFORE_FIRST
    """Epoch of what the source has: it does not change after the flip. Of the store, the last one
    that was used: what is missing has not changed since."""
    fetched: set[int] = field(default_factory=set)
    """Keys of missing bins that came one by one."""
    has_channel: bool = False
    """Whether rows that wait are here although their bin is missing: then the store's are old."""
    wear: list[int] = field(default_factory=lambda: [-1, 0])
    is_adopted: bool = False
    """Whether a transaction works on the state."""
    is_done: bool = False
    is_dead: bool = False
    waiting: int = 0
    """Transactions that need it now."""
    importing: bool = False
    """Whether an import is going to bring it."""
    receiving: bool = False
    """Whether it is coming in just now."""

    @property
    def place(self) -> Place:
        """Operator and key group."""
        return self.operator, self.group

    @property
    def is_coming(self) -> bool:
        """Whether something is missing, and its source is of use."""
        return not self.is_done and not self.is_dead

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


class ArrivalTable:
    """The table of them, and of replicas."""

    def __init__(self, core: WorkerCore, logs: DeltaLogs) -> None:
        self.core = core
        self.logs = logs
        self.keyspace = core.config.keyspace
        self.replicas: dict[Place, Replica] = {}
        """Guarded by `core.changed`, as is the table."""
        self._arriving: dict[Place, Arriving] = {}
        self._on_demand: dict[int, Counter[str]] = {}
        """What transactions have fetched of each key group since it is owned here; before, how
        often they have brought its replica forward."""
        self._sessions = itertools.count(1)
        self.progress = threading.Condition()
        """Told whenever something has come, or is given up."""
        self.pieces = 0
        """Counts what imports receive."""
        core.on_drop.append(self.drop)

    # -- the table --

    def granted(self, groups: Iterable[int], version: int, source: str | None) -> None:
        """New owner: note what must be asked of the source. Call it with `core.changed` taken."""
        owners = self.core.machine.owners
        for group in groups:
            self._on_demand.pop(group, None)
        for operator in self.core.slots:
            for group in groups:
                place = operator, group
                known = self._arriving.get(place)
                if known is not None and known.version == version:
                    continue  # said twice
                if owners.granted.get(KeyGroup(group)) != version:
                    continue  # a newer message came before
                self._give_up(place)
                replica = self.replicas.pop(place, None)
                if source is None or self.core.source_of(operator, group) != source:
                    continue
                if replica is not None and replica.source != source:
                    replica = None
                self._arriving[place] = Arriving(
                    operator,
                    group,
                    source,
                    version,
                    owners.arrival[KeyGroup(group)],
                    f"{self.core.config.incarnation}-{next(self._sessions)}",
                    replica,
                    set(range(self.keyspace.bins)),
                )

    def new_in_store(self, operator: str, group: int) -> Arriving:
        """A record of a key group that is in the store; not in the table yet."""
        with self.core.changed:
            version = self.core.machine.granted.get(KeyGroup(group), 0)
        bins = set(range(self.keyspace.bins))
        return Arriving(operator, group, STORE, version, Arrival.KEY, "", None, bins)

    def put_in_store(self, record: Arriving) -> None:
        """The store has what is missing of a key group."""
        with self.core.changed:
            if self._arriving.get(record.place) is not record:
                self._give_up(record.place)
                self._arriving[record.place] = record

    def turn_to_store(self, record: Arriving) -> Arriving:
        """The source is gone in the middle: what never came is in the store, as of any epoch."""
        later = self.new_in_store(record.operator, record.group)
        later.state, later.wear, later.is_adopted = record.state, record.wear, True
        later.missing, later.fetched = set(record.missing), set(record.fetched)
        self.put_in_store(later)
        return later

    def in_store(self) -> list[Arriving]:
        """Key groups whose rest is in the store, as far as the protocol knows."""
        with self.core.changed:
            return [
                record
                for record in self._arriving.values()
                if record.source == STORE
                and record.is_coming
                and self.core.source_of(*record.place) == STORE
            ]

    def drop(self, operator: str, groups: tuple[int, ...] | None) -> None:
        """The state of key groups (None: all) is gone."""
        with self.core.changed:
            for table in (self._arriving, self.replicas):
                for place in list(table):
                    if place[0] == operator and (groups is None or place[1] in groups):
                        self._give_up(place)
                        self.replicas.pop(place, None)

    def released(self, groups: Iterable[int]) -> None:
        """They belong to others now."""
        with self.core.changed:
            for operator in self.core.slots:
                for group in groups:
                    if not self.core.is_owner(group):
                        self._give_up((operator, group))

    def applied(self, operator: str, groups: Iterable[int]) -> None:
        """A transaction runs on them: what has arrived is no news any more."""
        if not self._arriving:
            return
        with self.core.changed:
            for group in groups:
                record = self._arriving.get((operator, group))
                if record is not None and record.is_done:
                    del self._arriving[operator, group]

    def find(self, operator: str, group: int) -> Arriving | None:
        """The record of a key group."""
        with self.core.changed:
            return self._arriving.get((operator, group))

    def of_groups(self, groups: Iterable[int], version: int) -> list[Arriving]:
        """What is still on its way from other workers, over all operators.

        Not what was granted after that version: lanes perhaps do not come here for it yet, and its
        source lets go of what it is asked for.
        """
        wanted = set(groups)
        with self.core.changed:
            records = list(self._arriving.values())
        coming = [r for r in records if r.source != STORE and r.is_coming and r.version <= version]
        return [record for record in coming if record.group in wanted]

    def sources(self) -> set[str]:
        """Workers that are still needed."""
        with self.core.changed:
            coming = [r for r in self._arriving.values() if r.is_coming]
        return {record.source for record in coming} - {STORE}

    def give_up(self, record: Arriving) -> None:
        """The source is of no use for it; the state comes from the store."""
        with self.core.changed:
            if self._arriving.get(record.place) is record:
                self._give_up(record.place)
            record.is_dead = True
        self.tell()

    def _give_up(self, place: Place) -> None:
        record = self._arriving.pop(place, None)
        if record is not None:
            record.is_dead = True

    def note_waiting(self, record: Arriving, more: int) -> None:
        """A transaction needs it now, or no longer."""
        with self.progress:
            record.waiting += more

    def note_on_demand(self, group: int, counted: Mapping[str, int]) -> None:
        """A transaction has fetched something itself, or had to wait."""
        with self.progress:
            self._on_demand.setdefault(group, Counter()).update(counted)

    def note_shadow(self, groups: Iterable[int]) -> None:
        """A transaction has brought replicas forward, beside their owner's."""
        for group in groups:
            self.note_on_demand(group, {"shadowed": 1})

    def take_on_demand(self, groups: Iterable[int]) -> Counter[str]:
        """What transactions have done, for the report of the move."""
        with self.progress:
            found = [self._on_demand.pop(group, Counter()) for group in groups]
        return sum(found, Counter())

    def tell(self) -> None:
        """Something has come or was given up."""
        with self.progress:
            self.progress.notify_all()

    def have(self, record: Arriving) -> ReplicaLog | None:
        """Log and epoch of the replica, if there is one that the source may bring up to date."""
        if record.replica is None or record.state is not None:
            return None
        with self.core.changed:
            held = self.core.held(record.operator, record.group)
        if held is None or held.is_partial:
            return None
        return ReplicaLog(record.replica.log, number_of(held.as_of))

    # -- arrivals, with the record's lock held --

    def wait_for_import(self, record: Arriving) -> bool:
        """Let an import bring it if one is about to; whether there was anything to wait for."""

        def is_over() -> bool:
            if record.is_done or record.is_dead:
                return True
            is_block = record.arrival is Arrival.BLOCK
            return not (record.receiving or (is_block and record.importing))

        with self.progress:
            if is_over():
                return False
            self.note_on_demand(record.group, {"waited": 1})  # before the import ends
            pieces = self.pieces
            while not self.progress.wait_for(is_over, RECEIVE_SECONDS_MAX):
                if record.arrival is not Arrival.BLOCK or pieces == self.pieces:
                    break
                pieces = self.pieces  # it is slow, but it comes
            return True

    def put_in(self, slot: OperatorSlot, record: Arriving, received: ReceivedGroup) -> None:
        """Add what has come; nobody works on the state meanwhile."""
        if received.is_replica:
            state = slot.states[record.group]
            slot.views.pop(record.group, None)
            received.replay(state)
            record.state, record.missing = state, set()
        else:
            if record.state is None:
                record.state = slot.engine.create_group()
            self._add(record, record.state, received)
        record.as_of, record.wear, record.replica = received.as_of, received.wear, None
        if not record.missing:
            record.fetched.clear()

    def _add(self, record: Arriving, state: GroupState, received: ReceivedGroup) -> None:
        wanted = {bin_: None for bin_ in received.bins if bin_ in record.missing}
        if received.slices and wanted:
            bins = None if len(wanted) == len(received.bins) else wanted
            sections = joined(received.slices)
            state.install(without(sections, bins, record.fetched, self.keyspace))
            record.missing.difference_update(wanted)
            if record.fetched:  # only of bins that are missing
                for table in sections.values():
                    record.fetched.difference_update(table.column(HASH).to_pylist())
        if received.keys is not None:
            state.install(without(received.keys, None, record.fetched, self.keyspace))
            record.fetched.update(received.due.tolist())

    def adopt(self, slot: OperatorSlot, record: Arriving) -> None:
        """A transaction takes over what is here."""
        assert record.state is not None
        if record.is_adopted:
            return
        with self.core.changed:
            slot.put(record.group, record.state, record.wear)
            self.logs.drop(record.operator, (record.group,))
            record.is_adopted = True

    def settle(self, slot: OperatorSlot, record: Arriving) -> bool:
        """All of it is here: tell the protocol, unless it has moved on."""
        assert record.state is not None
        core = self.core
        with core.changed:
            current = self._arriving.get(record.place) is record
            if not current or core.source_of(*record.place) != record.source:
                record.is_dead = True
                return False
            if not record.is_adopted:
                slot.put(record.group, record.state, record.wear)
                self.logs.drop(record.operator, (record.group,))
            epoch = epoch_of(record.as_of)
            core.dispatch(GroupsImported(record.operator, ((KeyGroup(record.group), epoch),)))
            record.is_done = True
        self.tell()
        return True
