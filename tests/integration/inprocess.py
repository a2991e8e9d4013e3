"""A worker without a process of its own: real state, real files, and a test may look inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from tests.integration.harness import KEYSPACE

from anabranch.coordinator.operator_record import install_message
from anabranch.durability.blobs import BlobStore
from anabranch.model.ids import Epoch, KeyGroup, Lane
from anabranch.model.keyspace import GROUP
from anabranch.processes.worker_config import WorkerConfig
from anabranch.processor.contract import BatchTimes
from anabranch.transport.auth import Credentials
from anabranch.transport.messages.lanes import TransactionHeader
from anabranch.transport.messages.names import Request
from anabranch.transport.messages.orders import GrantOrder
from anabranch.worker.core import WorkerCore
from anabranch.worker.moves.exports import Exports
from anabranch.worker.operator_slot import OperatorSlot
from anabranch.worker.peers import Peers
from anabranch.worker.residency.arrival_table import ArrivalTable
from anabranch.worker.residency.store_loader import StoreLoader
from anabranch.worker.worker import Worker

NAME = "counts"
GROUPS = list(range(KEYSPACE.groups))


class InProcess:
    """Owns all key groups; what it knows is in the folder, as of an epoch, or none (-1)."""

    def __init__(
        self,
        folder: Path,
        definition: Any,
        base: int,
        blobs: BlobStore | None = None,
        **settings: Any,
    ) -> None:
        sizes = KEYSPACE.groups, KEYSPACE.bins
        where = Credentials("token"), "127.0.0.1", str(folder)
        config = WorkerConfig("w1", f"again-{base}-1", *where, *sizes, **settings)
        self.epoch = base
        self.version = 1
        self._source: Callable[[pa.RecordBatch], Iterator[pa.RecordBatch]] = _at_once
        self.blobs = blobs or BlobStore(str(folder))
        self._worker = Worker(config, self.blobs)
        self._worker.call(install_message(NAME, 1, definition))
        self._worker.call(GrantOrder(tuple(map(KeyGroup, GROUPS)), None, 1))

    def batch(self, rows: pa.RecordBatch, times: BatchTimes) -> list[dict[str, Any]]:
        """The next epoch; its outputs."""
        outputs = self.transaction(rows, times)
        self.epoch += 1
        return outputs

    def transaction(
        self, rows: pa.RecordBatch, times: BatchTimes, lane: int = 0, lanes: int = 1
    ) -> list[dict[str, Any]]:
        """One lane of the next epoch; its outputs."""
        header = TransactionHeader(
            operator=NAME,
            definition=1,
            epoch=Epoch(self.epoch + 1),
            base=None if self.epoch < 0 else Epoch(self.epoch),
            lane=Lane(lane),
            lanes=lanes,
            attempt=1,
            groups=tuple(KeyGroup(group) for group in GROUPS if group % lanes == lane),
            version=self.version,
            times=times,
        )
        answer = self._worker.exchange(header, self._source(rows))
        return [row for some in answer.batches() for row in _plain(some)]

    def rows_come_slowly(self, receiving: Event, go_on: Event) -> None:
        """From now on: transactions are open before they have their rows."""

        def source(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
            receiving.set()
            go_on.wait()
            yield rows

        self._source = source

    def call(self, request: Request) -> Any:
        """As the coordinator does."""
        return self._worker.call(request)

    @property
    def core(self) -> WorkerCore:
        """What all its parts share."""
        return self._worker._core

    @property
    def slot(self) -> OperatorSlot:
        """The operator's state."""
        return self._worker._core.slots[NAME]

    @property
    def store_loader(self) -> StoreLoader:
        """What brings key groups from the store."""
        return self._worker._store

    @property
    def arrivals(self) -> ArrivalTable:
        """What is on its way here."""
        return self._worker._orders._arrivals

    @property
    def exports(self) -> Exports:
        """What gives key groups to others."""
        return self._worker._exports

    @property
    def peers(self) -> Peers:
        """Its connections to other workers."""
        return self._worker._exports._peers

    def close(self) -> None:
        self._worker.close()


def _at_once(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return iter([rows] if rows.num_rows else [])


def _plain(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = batch.drop_columns([GROUP]).to_pylist()
    return rows
