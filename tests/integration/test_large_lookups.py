"""Lookups of large maps: made piece by piece, as of one batch, while batches go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration import pair
from tests.integration.harness import Cluster
from tests.integration.mapped import DEFINITION, expected, rows_of

from anabranch.processor.readers import reader_of
from anabranch.state.rows import pieces
from anabranch.transport.messages.state import LookUp
from anabranch.transport.packing import pack_keys

SIZE = 4 * pieces.ENTRIES_MAX


class One(pair.Pair):
    """One worker with one map."""

    def batch(self, epoch: int) -> Any:
        """What its transaction reports."""
        header = pair.header_of(epoch, pair.ALL, 1)
        answer = self.w1.worker.exchange(header, iter([rows_of(epoch, {7: SIZE})]))
        return answer.report.transactions

    def ask(self, as_of: int) -> tuple[Any, Any]:
        """The pieces of the map as of an epoch, and who reads them."""
        reader = reader_of(pair.NAME, DEFINITION, "entries", pair.KEYSPACE)
        _, keys = reader.keys.table([7])
        request = LookUp(pair.NAME, 1, reader.section, as_of, pack_keys(keys))
        return self.w1.worker.stream(request), reader


def read(reader: Any, *tables: Any) -> dict[int, int]:
    (found,) = reader.values(tables).values()
    return {key.u: value.batch for key, value in found.items()}


@pytest.fixture
def one(tmp_path: Path) -> Iterator[One]:
    with One(tmp_path, DEFINITION) as found:
        yield found


@pytest.mark.parametrize("before", [False, True])
def test_transactions_between_the_pieces_change_nothing(one: One, before: bool) -> None:
    for epoch in (0, 1):
        one.commit(epoch, one.batch(epoch))
    if before:  # applied, but not committed: the lookup looks behind it
        done = one.batch(2)
    asked, reader = one.ask(as_of=1)
    first = next(asked)[1]
    if not before:
        done = one.batch(2)
    one.commit(2, done)
    one.commit(3, one.batch(3))
    rest = [tables for _, tables in asked]
    assert len(rest) >= 4
    assert all(len(tables["entries"]) <= pieces.ENTRIES_MAX for tables in [first, *rest])
    assert read(reader, first, *rest) == expected(1, SIZE)
    again, reader = one.ask(as_of=3)
    assert read(reader, *(tables for _, tables in again)) == expected(3, SIZE)


@pytest.mark.slow
def test_batches_go_on_while_a_million_entries_are_looked_up(tmp_path: Path) -> None:
    """Real processes; the worker is asked directly, so that only its own work counts."""
    size, small = 1_000_000, 100
    with Cluster(tmp_path, workers=1, definition=DEFINITION) as cluster:
        cluster.run_lanes(0, 1, rows_of(0, {7: size, **dict.fromkeys(range(20, 30), small)}))
        state = cluster.coordinator.lookups.state("counts", "entries")
        reader = state._reader
        _, keys = reader.keys.table([7])
        applied: list[int] = []
        over = threading.Event()

        def batches() -> None:
            epoch = 1
            while not over.is_set():
                sizes = {7: size, **dict.fromkeys(range(20, 30), small)}
                cluster.run_lanes(epoch, 1, rows_of(epoch, sizes))
                applied.append(epoch)
                epoch += 1

        thread = threading.Thread(target=batches)
        thread.start()
        try:
            (peer,) = cluster.coordinator._pool.peers().values()
            view = cluster.coordinator._machine.operators["counts"]
            request = LookUp("counts", 1, reader.section, view.committed, pack_keys(keys))
            begun = len(applied)
            parcels = list(peer.stream(request, 120))
            meanwhile = len(applied) - begun
            epoch, (found,) = state.read([7])
        finally:
            over.set()
            thread.join()
        assert read(reader, *(parcel.tables for parcel in parcels)) == expected(
            request.as_of or 0, size
        )
        assert {key.u: value.batch for key, value in found.items()} == expected(epoch or 0, size)
        assert meanwhile >= 5, (meanwhile, len(applied))
