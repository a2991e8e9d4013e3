"""The target's side of a stream of state: pieces put together to key groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.model.keyspace import HASH, Int64s, KeySpace
from anabranch.protocol.exhaustive import unhandled
from anabranch.state.contract import GroupState, Sections
from anabranch.transport.messages import state as messages
from anabranch.transport.packing import unpack_hashes
from anabranch.transport.parcel import Parcel
from anabranch.worker.moves.deltas import Delta, only_bins_before

NO_HASHES: Int64s = np.empty(0, np.int64)


@dataclass(slots=True)
class ReceivedGroup:
    """What a source sent of one key group."""

    group: int
    is_gone: bool = False
    is_replica: bool = False
    """Only the changes since the replica here, not the state."""
    slices: list[Sections] = field(default_factory=list)
    bins: dict[int, int] = field(default_factory=dict)
    """Bins in the slices, with the epoch that each is as of."""
    deltas: list[Delta] = field(default_factory=list)
    keys: Sections | None = None
    due: Int64s = field(default_factory=lambda: NO_HASHES)
    """Keys that were not asked for but have something due."""
    as_of: int = 0
    wear: list[int] = field(default_factory=lambda: [-1, 0])
    log: int | None = None
    counted: Counter[str] = field(default_factory=Counter)

    def install(self, state: GroupState, keyspace: KeySpace) -> None:
        """Make the state of a whole key group: slices, then changes since each was taken."""
        if self.slices:
            state.install(joined(self.slices))
        for delta in self.deltas:
            kept = only_bins_before(delta.sections, delta.epoch, self.bins, keyspace)
            if kept:
                state.begin()
                state.replay(kept)
        state.begin()

    def replay(self, state: GroupState) -> None:
        """Bring a replica up to date."""
        for delta in self.deltas:
            state.begin()
            state.replay(delta.sections)
        state.begin()


def receive(
    parcels: Iterator[Parcel[messages.GroupHead]],
    on_parcel: Callable[[int, int], None] = lambda group, size: None,
) -> Iterator[ReceivedGroup]:
    """Key groups as they become complete; `on_parcel` hears of each parcel and may wait."""
    current: ReceivedGroup | None = None
    for parcel in parcels:
        head, tables, is_over = parcel.head, parcel.tables, False
        if current is None or current.group != head.group:
            current = ReceivedGroup(head.group)
        match head:
            case messages.SliceHead():
                current.slices.append(tables)
                current.bins.update(dict.fromkeys(head.bins, head.as_of))
                current.counted["rows"] += count_rows(tables)
            case messages.DeltaHead():
                current.deltas.append(Delta(head.epoch, tables, parcel.bytes, head.rows))
                current.counted["delta_rows"] += head.rows
            case messages.KeysHead():
                current.keys, current.due = tables, unpack_hashes(head.due)
                current.counted["rows"] += count_rows(tables)
            case messages.RestartHead():
                current = ReceivedGroup(head.group)
            case messages.DoneHead():
                current.as_of, current.wear = head.as_of, list(head.wear)
                current.log, current.is_replica = head.log, head.is_replica
                is_over = True
            case messages.GoneHead():
                current.is_gone = is_over = True
            case _:
                unhandled(head)
        current.counted["bytes"] += parcel.bytes
        on_parcel(head.group, parcel.bytes)
        if is_over:
            yield current
            current = None


def joined(slices: list[Sections]) -> Sections:
    """The sections of several slices together."""
    if len(slices) == 1:
        return slices[0]
    names = list(dict.fromkeys(name for sections in slices for name in sections))
    return {
        name: pa.concat_tables([sections[name] for sections in slices if name in sections])
        for name in names
    }


def without(
    sections: Sections, bins: Mapping[int, object] | None, hashes: set[int], keyspace: KeySpace
) -> Sections:
    """Entries of some bins (None: all) except those of keys that came before."""
    if bins is not None and len(bins) == keyspace.bins:
        bins = None
    if bins is None and not hashes:
        return sections
    kept = {}
    for name, table in sections.items():
        of_row = table.column(HASH).to_numpy()
        mask = np.ones(len(of_row), bool)
        if bins is not None:
            wanted = np.zeros(keyspace.bins, bool)
            wanted[list(bins)] = True
            mask = wanted[keyspace.bin_of(of_row)]
        if hashes:
            mask &= not_in(hashes, of_row)
        kept[name] = table if mask.all() else table.take(np.flatnonzero(mask))
    return kept


def not_in(known: set[int], hashes: Int64s) -> npt.NDArray[np.bool_]:
    """Which hashes are new. A set: it is asked about few keys at a time, and grows all the time."""
    return np.fromiter((hash_ not in known for hash_ in hashes.tolist()), bool, len(hashes))


def count_rows(tables: Mapping[str, pa.Table]) -> int:
    """Entries of all sections."""
    return sum(table.num_rows for table in tables.values())
