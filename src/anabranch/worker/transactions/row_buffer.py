"""The rows of one transaction on their way in: in memory, or on disk divided by key group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from anabranch.model.keyspace import HASH, Int64s, KeySpace
from anabranch.processor.contract import RowChunk
from anabranch.transport.spool import Spool

BUCKETS = 16
SAMPLE_ROWS = 4096


class RowBuffer:
    """Collects rows; gives them back as chunks with disjoint key groups.

    A transaction that fits into memory is one chunk. A larger one is divided into buckets of key
    groups on disk, so that the operator sees all rows of a key without all rows being in memory.
    """

    def __init__(
        self,
        groups: Iterable[int],
        keyspace: KeySpace,
        memory_bytes_max: int,
        buckets: int = BUCKETS,
    ) -> None:
        self._groups = tuple(sorted(groups))
        self.keyspace = keyspace
        self._memory_bytes_max = memory_bytes_max
        self._buckets = max(1, min(buckets, len(self._groups)))
        self._batches: list[pa.RecordBatch] = []
        self._num_bytes = 0
        self._rows = np.zeros(keyspace.groups, dtype=np.int64)
        self._sample: Int64s = np.empty(0, np.int64)
        self._spools: list[Spool] = []
        self._bucket_of_group = np.zeros(keyspace.groups, dtype=np.int64)
        for position, group in enumerate(self._groups):
            self._bucket_of_group[group] = position * self._buckets // len(self._groups)

    def append(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        hashes = batch.column(HASH).to_numpy(zero_copy_only=False)
        groups = self.keyspace.group_of(hashes)
        if not len(self._sample):
            self._sample = hashes[:SAMPLE_ROWS].copy()
        self._rows += np.bincount(groups, minlength=self.keyspace.groups)
        self._num_bytes += batch.nbytes
        if self._spools:
            self._divide(batch)
            return
        self._batches.append(batch)
        if self._num_bytes > self._memory_bytes_max:
            bucket_bytes_max = max(1 << 20, self._memory_bytes_max // (2 * self._buckets))
            self._spools = [Spool(bucket_bytes_max) for _ in range(self._buckets)]
            for held in self._batches:
                self._divide(held)
            self._batches = []

    def rows_of(self, groups: Iterable[int]) -> tuple[int, ...]:
        """Number of rows of each key group."""
        return tuple(self._rows[list(groups)].tolist())

    @property
    def mean_bytes(self) -> float:
        """Of a row."""
        return self._num_bytes / max(1, int(self._rows.sum()))

    def sample(self) -> Int64s:
        """Hashes of the first rows."""
        return self._sample

    def chunks(self) -> Iterator[RowChunk]:
        """The rows; may be called again."""
        if not self._spools:
            if self._batches:
                yield RowChunk(self._groups, pa.Table.from_batches(self._batches))
            return
        for bucket, spool in enumerate(self._spools):
            if spool.num_rows:
                groups = tuple(g for g in self._groups if self._bucket_of_group[g] == bucket)
                yield RowChunk(groups, pa.Table.from_batches(list(spool)))

    def clear(self) -> None:
        """Free memory and files."""
        self._batches = []
        self._spools = []

    def _divide(self, batch: pa.RecordBatch) -> None:
        hashes = batch.column(HASH).to_numpy(zero_copy_only=False)
        buckets = self._bucket_of_group[self.keyspace.group_of(hashes)]
        order = np.argsort(buckets, kind="stable")
        divided = batch.take(pa.array(order))
        ends = np.searchsorted(buckets[order], np.arange(self._buckets), side="right")
        start = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > start:
                # A slice would keep the whole batch alive.
                piece = divided.slice(start, end - start)
                self._spools[bucket].append(
                    pa.RecordBatch.from_arrays(
                        [pa.concat_arrays([column]) for column in piece.columns],
                        schema=piece.schema,
                    )
                )
            start = end
