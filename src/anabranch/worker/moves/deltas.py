"""What a source remembers for replicas: the changes of each transaction since they were copied."""

from __future__ import annotations

import itertools
import secrets
import threading
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from anabranch.durability.group_restore import split_by_group
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.state.contract import Sections
from anabranch.worker.core import Place

LOG_BYTES_MAX = 64 << 20
"""Of all logs of a worker together; the largest is given up first, its replica is copied anew."""


@dataclass(slots=True)
class Delta:
    """The changes of one transaction in one key group."""

    epoch: int
    sections: Sections
    bytes: int
    rows: int


@dataclass(slots=True)
class DeltaLog:
    """The changes of one key group since an epoch, in order."""

    number: int
    """Tells a replica whether it belongs to this log: state may have been loaded anew since.

    Never used twice, also not by the process that replaces this one."""
    start: int
    """Changes up to this epoch are not here."""
    deltas: list[Delta] = field(default_factory=list)
    is_alive: bool = True

    @property
    def bytes(self) -> int:
        """Memory of the changes."""
        return sum(delta.bytes for delta in self.deltas)

    def since(self, epoch: int) -> list[Delta]:
        """Later changes."""
        return [delta for delta in self.deltas if delta.epoch > epoch]


def joined_deltas(deltas: list[Delta]) -> list[Delta]:
    """Fewer, larger ones with the same entries in the same order: each costs a message."""
    parts: list[list[Delta]] = []
    for delta in deltas:
        if parts and _schemas(parts[-1][-1]) == _schemas(delta):
            parts[-1].append(delta)
        else:
            parts.append([delta])
    return [_joined(part) if len(part) > 1 else part[0] for part in parts]


def _schemas(delta: Delta) -> dict[str, pa.Schema]:
    return {name: table.schema for name, table in delta.sections.items()}


def _joined(part: list[Delta]) -> Delta:
    sections = {
        name: pa.concat_tables([delta.sections[name] for delta in part]).combine_chunks()
        for name in part[0].sections
    }
    size, rows = sum(delta.bytes for delta in part), sum(delta.rows for delta in part)
    return Delta(part[-1].epoch, sections, size, rows)


class DeltaLogs:
    """The logs of all key groups that are being copied; empty, and free, without moves."""

    def __init__(self, keyspace: KeySpace, bytes_max: int = LOG_BYTES_MAX) -> None:
        self._keyspace = keyspace
        self._bytes_max = bytes_max
        self._logs: dict[Place, DeltaLog] = {}
        self._numbers = itertools.count(secrets.randbits(60))
        self._lock = threading.Lock()

    def open(self, place: Place, as_of: int) -> DeltaLog:
        """Start anew; call it while nothing changes the key group."""
        with self._lock:
            old = self._logs.pop(place, None)
            if old is not None:
                old.is_alive = False
            log = self._logs[place] = DeltaLog(next(self._numbers), as_of)
            return log

    def find(self, place: Place, number: int, since: int) -> DeltaLog | None:
        """The log of a replica, if it reaches back to what the replica has."""
        with self._lock:
            log = self._logs.get(place)
            if log is None or log.number != number or since < log.start:
                return None
            return log

    def trim(self, log: DeltaLog, epoch: int) -> None:
        """The replica has everything up to this epoch."""
        with self._lock:
            log.deltas = log.since(epoch)
            log.start = max(log.start, epoch)

    def drop(self, operator: str, groups: tuple[int, ...] | None) -> None:
        """Forget logs; replicas that need them are copied anew."""
        if not self._logs:
            return
        with self._lock:
            for place in list(self._logs):
                if place[0] == operator and (groups is None or place[1] in groups):
                    self._logs.pop(place).is_alive = False

    def note(self, operator: str, epoch: int, groups: tuple[int, ...], changes: Sections) -> None:
        """A transaction's changes are durable."""
        if not self._logs:
            return
        with self._lock:
            wanted = [group for group in groups if (operator, group) in self._logs]
        if not wanted:
            return
        for group, sections in split_by_group(changes, wanted, self._keyspace).items():
            # Slices of the transaction's changes would keep all of them alive.
            kept = {name: table.take(np.arange(len(table))) for name, table in sections.items()}
            size = sum(table.nbytes for table in kept.values())
            rows = sum(table.num_rows for table in kept.values())
            with self._lock:
                log = self._logs.get((operator, group))
                if log is not None:
                    log.deltas.append(Delta(epoch, kept, size, rows))
        self._limit()

    def _limit(self) -> None:
        with self._lock:
            sizes = {place: log.bytes for place, log in self._logs.items()}
            total = sum(sizes.values())
            for place in sorted(sizes, key=lambda p: -sizes[p]):
                if total <= self._bytes_max:
                    return
                total -= sizes[place]
                self._logs.pop(place).is_alive = False


def only_bins_before(
    sections: Sections, epoch: int, as_of_bin: dict[int, int], keyspace: KeySpace
) -> Sections:
    """Changes of an epoch to bins that were copied before it."""
    if all(as_of < epoch for as_of in as_of_bin.values()):
        return sections
    wanted = np.zeros(keyspace.bins, bool)
    wanted[[bin_ for bin_, as_of in as_of_bin.items() if as_of < epoch]] = True
    kept = {}
    for name, table in sections.items():
        at = np.flatnonzero(wanted[keyspace.bin_of(table.column(HASH).to_numpy())])
        if len(at):
            kept[name] = table.take(at)
    return kept
