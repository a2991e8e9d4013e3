"""How much memory a worker needs for large values, as the system counts it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.integration import mapped, pair
from tests.integration.harness import Cluster
from tests.unit.durability.large import Keeper
from tests.unit.processor.rows.support import define

from anabranch.model.ids import Epoch
from anabranch.model.keyspace import HASH
from anabranch.processor.readers import reader_of
from anabranch.state.hashing import hash_rows
from anabranch.transport.messages.control import Committed
from anabranch.transport.messages.state import LookUp
from anabranch.transport.packing import pack_keys

KEEPER = define(Keeper("value"), "k long, size long", ["k"], "k long")
VALUES, SIZE = 3, 33 << 20
PAYLOAD = 2 * VALUES * SIZE
"""Bytes, and as much text; below 32 MiB, the C library would keep what is freed for the next."""


def sized(sizes: list[int]) -> pa.RecordBatch:
    keys = pa.array(range(len(sizes)), pa.int64())
    hashes = pa.array(hash_rows([keys], len(keys)))
    return pa.record_batch({HASH: hashes, "k": keys, "size": pa.array(np.array(sizes))})


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is resident")
def test_large_values_are_in_memory_twice_at_most(tmp_path: Path) -> None:
    """While a batch replaces them; once it is committed, only the new ones are left."""
    with Cluster(tmp_path, workers=1, definition=KEEPER) as cluster:

        def worker() -> dict[str, Any]:
            (found,) = cluster.coordinator.status()["workers"].values()
            return dict(found)

        cluster.run_lanes(0, 1, sized([1] * VALUES))
        base = worker()["resident_bytes"]
        assert 0 < base <= worker()["peak_resident_bytes"]
        for epoch in (1, 2, 3):
            cluster.run_lanes(epoch, 1, sized([SIZE + epoch] * VALUES))
        until(lambda: worker()["resident_bytes"] - base < 1.3 * PAYLOAD)
        assert worker()["bytes"] >= PAYLOAD
        assert worker()["peak_resident_bytes"] - base < 2.5 * PAYLOAD


def test_what_was_replaced_goes_with_the_commit(tmp_path: Path) -> None:
    with pair.Pair(tmp_path, mapped.DEFINITION) as both:
        w1 = both.w1

        def batch(epoch: int, size: int = 20_000) -> Any:
            rows = iter([mapped.rows_of(epoch, {7: size})])
            answer = w1.worker.exchange(pair.header_of(epoch, pair.ALL, 1), rows)
            return answer.report.transactions

        def undoable() -> int:
            records = [r for s in w1.slot.states.values() for r in s.inner.records.values()]
            return sum(len(record[2].undo_log) for record in records)

        def looked_up(as_of: int) -> dict[int, int]:
            reader = reader_of(pair.NAME, mapped.DEFINITION, "entries", pair.KEYSPACE)
            keys = pack_keys(reader.keys.table([7])[1])
            asked = LookUp(pair.NAME, 1, reader.section, as_of, keys)
            answers = [dict(tables) for _, tables in w1.worker.stream(asked)]
            (found,) = reader.values(answers).values()
            return {key.u: value.batch for key, value in found.items()}

        def tell(epoch: int) -> None:
            w1.worker.call(Committed(pair.NAME, Epoch(epoch)))

        size = 200_000
        both.commit(0, batch(0, size))
        assert undoable() == size
        tell(0)
        assert undoable() == 0
        assert looked_up(0) == mapped.expected(0, size)
        # Something small stays until the next batch: lookups of the batch before need it.
        both.commit(1, batch(1, size))
        tell(1)
        assert undoable() > 0
        # A batch is told of while the next one is applied, and not committed: it may be undone.
        w1.slot.much_changed.update(pair.ALL)
        done = batch(2, size)
        tell(1)
        assert undoable() > 0
        assert looked_up(1) == mapped.expected(1, size)
        both.commit(2, done)
        tell(2)
        assert undoable() == 0
        assert looked_up(2) == mapped.expected(2, size)
