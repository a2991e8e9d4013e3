"""A tiny operator for tests of the runtime: counts rows of a long key, in a plain dict."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import ServiceUnavailable
from anabranch.model.keyspace import DELETE, GROUP, HASH, OP, UPSERT, Int64s, KeySpace
from anabranch.processor.contract import BatchTimes, CodePlace, OperatorStats, Transaction, View
from anabranch.state.backend import MEMORY, Backend
from anabranch.state.contract import GroupState, Sections

OUTPUT = pa.schema([("k", pa.int64()), ("n", pa.int64())])


class CountingGroup:
    def __init__(self, keyspace: KeySpace) -> None:
        self.counts: dict[int, tuple[int, int]] = {}
        self._old: dict[int, tuple[int, int] | None] = {}
        self._keyspace = keyspace

    def begin(self) -> None:
        self._old = {}

    def undo(self) -> None:
        for key, value in self._old.items():
            if value is None:
                self.counts.pop(key, None)
            else:
                self.counts[key] = value
        self._old = {}

    def add(self, key: int, hashed: int) -> int:
        self._old.setdefault(key, self.counts.get(key))
        count = self.counts.get(key, (hashed, 0))[1] + 1
        self.counts[key] = (hashed, count)
        return count

    def export(self, bins: Collection[int] | None = None, hashes: Int64s | None = None) -> Sections:
        items = sorted(self.counts.items(), key=lambda i: (self._bin(i[1][0]), i[0]))
        items = [i for i in items if bins is None or self._bin(i[1][0]) in bins]
        if hashes is not None:
            items = [i for i in items if i[1][0] in set(hashes.tolist())]
        columns = {
            HASH: pa.array([v[0] for _, v in items], pa.int64()),
            "k": pa.array([k for k, _ in items], pa.int64()),
            "n": pa.array([v[1] for _, v in items], pa.int64()),
        }
        return {"counts": pa.table(columns)}

    def export_packed(self, bins: Collection[int]) -> Sections:
        return self.export(bins)

    def install(self, sections: Sections) -> None:
        for row in sections["counts"].to_pylist():
            self.counts[row["k"]] = (row[HASH], row["n"])

    def replay(self, sections: Sections) -> None:
        for row in sections["counts"].to_pylist():
            assert row[OP] in (UPSERT, DELETE)
            self.counts[row["k"]] = (row[HASH], row["n"])

    def discard(self, bins: Collection[int]) -> None:
        for key, (hashed, _) in list(self.counts.items()):
            if self._bin(hashed) in bins:
                del self.counts[key]

    @property
    def num_rows(self) -> int:
        return len(self.counts)

    @property
    def num_bytes(self) -> int:
        return 100 * len(self.counts)

    def _bin(self, hashed: int) -> int:
        return (hashed // self._keyspace.groups) % self._keyspace.bins


class CountingEngine:
    logs_since_begin = False
    due_column = None
    is_due_once = True
    is_by_key = True
    expiring: Mapping[str, str] = {}
    group = CountingGroup

    def __init__(self, keyspace: KeySpace) -> None:
        self._keyspace = keyspace

    def create_group(self) -> CountingGroup:
        return self.group(self._keyspace)

    def apply(self, tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        changed: dict[int, tuple[int, int]] = {}
        for chunk in tx.chunks():
            for row in chunk.rows.to_pylist():
                hashed, key = row[HASH], row["k"]
                group = hashed % self._keyspace.groups
                changed[key] = hashed, states[group].add(key, hashed)
        hashes = pa.array([h for h, _ in changed.values()], pa.int64())
        keys = pa.array(list(changed), pa.int64())
        counts = pa.array([n for _, n in changed.values()], pa.int64())
        groups = pa.array([h % self._keyspace.groups for h, _ in changed.values()], pa.int32())
        ops = pa.array([UPSERT] * len(changed), pa.uint8())
        tx.log("counts", pa.table({HASH: hashes, OP: ops, "k": keys, "n": counts}))
        tx.emit(pa.table({GROUP: groups, "k": keys, "n": counts}))
        return OperatorStats(rows_updated=len(changed))

    def place(self) -> CodePlace | None:
        return None

    def due_limit(self, times: BatchTimes) -> int:
        return 0

    def due_hashes(self, state: GroupState, times: BatchTimes) -> Int64s:
        return np.empty(0, np.int64)

    def look_up(
        self, views: Mapping[int, View], keys: pa.Table, section: str
    ) -> Iterator[pa.Table]:
        raise NotImplementedError

    def close(self) -> None:
        pass


class Counting:
    """The definition."""

    description: Mapping[str, Any] = {"kind": "test-counting", "key": "long"}
    placed_by = None
    output_schema = OUTPUT
    engine = CountingEngine

    def unreadable(self, stored: Mapping[str, Any]) -> list[str]:
        return [f"stored {stored}"]

    def after(self, stored: Mapping[str, Any]) -> Counting:
        return self

    def open(self, keyspace: KeySpace, backend: Backend = MEMORY) -> CountingEngine:
        return self.engine(keyspace)


class FailingEngine(CountingEngine):
    def apply(self, tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        stats = super().apply(tx, states)
        if tx.epoch == 1:
            raise ValueError("user code says no")
        return stats


class Failing(Counting):
    """Fails in epoch 1, after it has changed the state."""

    engine = FailingEngine


class ExitingEngine(CountingEngine):
    def apply(self, tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        super().apply(tx, states)
        raise SystemExit(3)


class Exiting(Counting):
    """Calls sys.exit() in the middle."""

    engine = ExitingEngine


class Uninstallable(Counting):
    """Cannot be opened in a worker."""

    def open(self, keyspace: KeySpace, backend: Backend = MEMORY) -> CountingEngine:
        raise RuntimeError("not on this machine")


class SlowEngine(CountingEngine):
    def apply(self, tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        if 0 in tx.groups and tx.epoch > 0:
            time.sleep(0.6)
        return super().apply(tx, states)


class Slow(Counting):
    """Takes long in every epoch but the first, on one of the lanes."""

    engine = SlowEngine


class HangingEngine(CountingEngine):
    def apply(self, tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        if tx.epoch == 1:
            time.sleep(1000)
        return super().apply(tx, states)


class Hanging(Counting):
    """Never comes back from epoch 1."""

    engine = HangingEngine


class BrokenGroup(CountingGroup):
    """Some of a process's first replays fail half way, as if the disk were full."""

    replays = 0

    def replay(self, sections: Sections) -> None:
        BrokenGroup.replays += 1
        if BrokenGroup.replays in (2, 5, 11, 23, 47, 95):
            super().replay({name: table.slice(0, 1) for name, table in sections.items()})
            raise ServiceUnavailable("No space left on the device.")
        super().replay(sections)


class BrokenEngine(CountingEngine):
    group = BrokenGroup


class Broken(Counting):
    """Changes cannot always be replayed: bringing replicas up to date fails now and then."""

    engine = BrokenEngine


class FullGroup(CountingGroup):
    """The first two key groups that come to a process find no memory, half way."""

    installs = 0

    def install(self, sections: Sections) -> None:
        FullGroup.installs += 1
        if FullGroup.installs <= 2:
            super().install({name: table.slice(0, 1) for name, table in sections.items()})
            raise pa.ArrowMemoryError("malloc of size 1234 failed")
        super().install(sections)


class FullEngine(CountingEngine):
    group = FullGroup


class Full(Counting):
    """Memory is short in workers that get key groups."""

    engine = FullEngine


class WaitingEngine(CountingEngine):
    row_seconds = 0.005

    def apply(self, tx: Transaction, states: Mapping[int, Any]) -> OperatorStats:
        stats = super().apply(tx, states)
        time.sleep(self.row_seconds * (stats.rows_updated or 0))
        return stats


class Waiting(Counting):
    """Each key costs waiting, as a call to another service would."""

    engine = WaitingEngine
