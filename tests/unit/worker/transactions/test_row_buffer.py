"""Rows of a transaction in memory and on disk."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from anabranch.model.keyspace import HASH, KeySpace
from anabranch.transport.spool import Spool
from anabranch.worker.transactions.row_buffer import RowBuffer

KEYSPACE = KeySpace(64, 4)


def batch(start: int, count: int) -> pa.RecordBatch:
    values = np.arange(start, start + count, dtype=np.int64)
    hashes = values * np.int64(0x5851F42D4C957F2D)
    return pa.record_batch({HASH: pa.array(hashes), "v": pa.array(values), "s": values.astype(str)})


@pytest.mark.parametrize("limit", [1 << 30, 20_000])
def test_every_row_once_and_each_group_in_one_chunk(limit: int) -> None:
    groups = range(0, 64, 2)
    buffer = RowBuffer(groups, KEYSPACE, limit)
    sent: list[int] = []
    for start in range(0, 20_000, 1000):
        rows = batch(start, 1000)
        mine = rows.filter(pa.array(KEYSPACE.group_of(rows.column(HASH).to_numpy()) % 2 == 0))
        sent += mine.column("v").to_pylist()
        buffer.append(mine)
    chunks = list(buffer.chunks())
    assert (len(chunks) > 1) == (limit == 20_000)
    seen_groups: set[int] = set()
    received: list[int] = []
    for chunk in chunks:
        assert seen_groups.isdisjoint(chunk.groups)
        seen_groups.update(chunk.groups)
        found = KEYSPACE.group_of(chunk.rows.column(HASH).to_numpy())
        assert set(found.tolist()) <= set(chunk.groups)
        values = chunk.rows.column("v").to_pylist()
        for group in chunk.groups:  # order of arrival is kept within a key group
            mine_of_group = [v for v, g in zip(values, found, strict=True) if g == group]
            assert mine_of_group == sorted(mine_of_group)
        received += values
    assert sorted(received) == sent
    assert [c.rows.num_rows for c in buffer.chunks()] == [c.rows.num_rows for c in chunks]


def test_spool_gives_back_what_it_got_and_frees_its_files() -> None:
    spool = Spool(memory_bytes_max=10_000)
    for start in range(0, 5000, 500):
        spool.append(batch(start, 500))
    assert spool.has_spilled
    assert spool.num_rows == 5000
    for _ in range(2):
        assert [v for b in spool for v in b.column("v").to_pylist()] == list(range(5000))
    spool.clear()
    assert list(spool) == []
