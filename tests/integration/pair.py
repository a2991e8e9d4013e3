"""Two workers without processes of their own: a test holds one up wherever it likes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.integration.counting import Counting
from tests.integration.rig import make_order

from anabranch.coordinator.operator_record import install_message
from anabranch.coordinator.order_message import order_message
from anabranch.durability.blobs import BlobStore
from anabranch.durability.manifest import Manifest, next_manifest, parse_refs
from anabranch.durability.names import manifest_path
from anabranch.model.ids import Epoch, KeyGroup, Lane
from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processor.contract import BatchTimes
from anabranch.transport.access import Access
from anabranch.transport.auth import Credentials
from anabranch.transport.client import forget
from anabranch.transport.messages.lanes import TransactionDone, TransactionHeader
from anabranch.transport.messages.orders import GrantOrder
from anabranch.transport.server import Server
from anabranch.worker.worker import Worker

KEYSPACE = KeySpace(4, 4)
NAME = "counts"
ALL = list(range(KEYSPACE.groups))
MOVED = 1
"""The key group that goes from w1 to w2."""
KEYS = np.arange(4096, 4160, dtype=np.int64)
"""Each is its own hash."""


def rows_of(keys: Any = KEYS) -> pa.RecordBatch:
    return pa.record_batch({HASH: pa.array(keys), "k": pa.array(keys)})


def keys_of(group: int) -> Any:
    return KEYS[KEYSPACE.group_of(KEYS) == group]


def header_of(
    epoch: int, groups: list[int], version: int, attempt: int = 1, shadow: bool = False
) -> TransactionHeader:
    return TransactionHeader(
        operator=NAME,
        definition=1,
        epoch=Epoch(epoch),
        base=None if epoch == 0 else Epoch(epoch - 1),
        lane=Lane(0),
        lanes=1,
        attempt=attempt,
        groups=tuple(map(KeyGroup, groups)),
        version=version,
        times=BatchTimes(0, 0, 0),
        is_shadow=shadow,
    )


class Member:
    """A worker, and its door to the other one."""

    def __init__(self, name: str, folder: Path, definition: Any, **settings: Any) -> None:
        sizes = KEYSPACE.groups, KEYSPACE.bins
        where = Credentials("token"), "127.0.0.1", str(folder)
        config = WorkerConfig(name, f"{name}-0", *where, *sizes, fsync=False, **settings)
        self.name = name
        self.tallies = b""
        """Of the last answer."""
        self.worker = Worker(config, BlobStore(folder))
        self.server = Server("127.0.0.1", Access("token"), self.worker)
        self.worker.listens_at(self.server.address)
        self.worker.call(install_message(NAME, 1, definition))

    @property
    def slot(self) -> Any:
        return self.worker._core.slots[NAME]

    def is_busy(self) -> bool:
        with self.worker._core.changed:
            return self.worker._core.machine.is_busy(NAME, KeyGroup(MOVED))

    def wait(self, busy: bool) -> None:
        limit = time.monotonic() + 20
        while self.is_busy() != busy:
            assert time.monotonic() < limit
            time.sleep(0.005)

    def exchange(
        self,
        epoch: int,
        groups: list[int],
        version: int,
        rows: Iterator[pa.RecordBatch] | None = None,
        attempt: int = 1,
        shadow: bool = False,
    ) -> tuple[dict[int, int], tuple[TransactionDone, ...]]:
        """A lane's transaction: counts by key, reports."""
        keys = KEYS[np.isin(KEYSPACE.group_of(KEYS), groups)]
        header = header_of(epoch, groups, version, attempt, shadow)
        answer = self.worker.exchange(header, rows or iter([rows_of(keys)]))
        self.tallies = answer.report.tallies
        counts = {row["k"]: row["n"] for some in answer.batches() for row in some.to_pylist()}
        return counts, answer.report.transactions

    def close(self) -> None:
        self.server.stop()
        forget(self.server.address)
        self.worker.close()


class Pair(ExitStack):
    """w1 owns everything, w2 nothing yet."""

    def __init__(self, folder: Path, definition: Any = None, **settings: Any) -> None:
        super().__init__()
        definition = definition or Counting()
        self.blobs = BlobStore(folder)
        self.w1 = Member("w1", folder, definition, **settings)
        self.w2 = Member("w2", folder, definition, **settings)
        self.w1.worker.call(GrantOrder(tuple(map(KeyGroup, ALL)), None, 1))
        self._manifest: Manifest | None = None
        self.callback(self.w1.close)
        self.callback(self.w2.close)

    def order(
        self, to: Member, what: str, version: int, rate: float | None = None, **more: Any
    ) -> dict[str, int]:
        """As the coordinator gives it, about the key group that moves."""
        peer = self.w1 if to is self.w2 else self.w2
        order = make_order(what, peer=peer.name, version=version, **{"groups": [MOVED], **more})
        reply: Any = to.worker.call(order_message(order, peer.server.address, rate, {}))
        counters: dict[str, int] = reply.counters
        return counters

    def flip(self, **how: Any) -> None:
        self.order(self.w2, "grant", 4, **how)
        self.order(self.w1, "release", 5)

    def commit(self, epoch: int, done: tuple[TransactionDone, ...]) -> None:
        """The epoch's manifest."""
        refs = [
            ref.only(set(each.report.groups) & set(ref.groups))
            for each in done
            if each.report.changelog
            for ref in parse_refs(each.report.changelog)
        ]
        self._manifest = next_manifest(
            self._manifest,
            epoch,
            refs,
            operator=NAME,
            query_id="query",
            keyspace=KEYSPACE,
            description=Counting.description,
            committed_at=0,
            extra={},
        )
        self.blobs.write(manifest_path(NAME, epoch), self._manifest.encode())
