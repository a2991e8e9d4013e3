"""Parts of a key group: export by hashes, what is due, installs that an undo keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.processor.columnar.support import MemoryWorker
from tests.unit.processor.columnar.test_engine import session_rows, sessions, window_rows, windowed

from anabranch.model.keyspace import HASH, KeySpace
from anabranch.processor.contract import BatchTimes
from anabranch.state.columnar.layout import SECTION, ColumnarLayout
from anabranch.state.columnar.table import GroupTable

ROWS = [(sensor, window, sensor + window) for sensor in range(60) for window in (0, 1, 2)]


def entries(table: Any) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def filled() -> MemoryWorker:
    worker = windowed(append=True)
    worker.run(window_rows(ROWS))
    return worker


def test_export_by_hashes() -> None:
    for group, table in filled().tables.items():
        whole = table.export()[SECTION]
        known = whole.column(HASH).to_numpy()
        wanted = np.append(known[::3][::-1], [group + 12345 * 8])  # unsorted, one not there
        some = table.export(hashes=wanted)[SECTION]
        expected = whole.filter(np.isin(known, wanted))
        assert entries(some) == entries(expected)
        bins = KeySpace(8, 4).bin_of(some.column(HASH).to_numpy())
        assert (np.diff(bins) >= 0).all()
        assert table.export(hashes=np.empty(0, np.int64))[SECTION].num_rows == 0


def test_keys_with_one_hash_go_together() -> None:
    worker = sessions(append=True)
    rows = session_rows([(sensor, 0, sensor) for sensor in range(6)])
    worker.run(rows.set_column(0, HASH, pa.array([8, 8, 8, 16, 16, 24])))
    some = worker.tables[0].export(hashes=np.array([8, 24]))[SECTION]
    assert sorted(some.column("sensor").to_pylist()) == [0, 1, 2, 5]


def test_what_is_installed_while_a_transaction_runs_survives_its_undo() -> None:
    source, target = filled(), windowed(append=True)
    for group, table in source.tables.items():
        target.tables[group].install(table.export([0, 1]))
    before = target.dump()
    here = {h for t in target.tables.values() for h in t.index.entries()[0].tolist()}
    some = window_rows(ROWS)
    target.run(some.filter(np.isin(some.column(HASH).to_numpy(), list(here))), 1000)
    assert target.dump() != before
    for group, table in source.tables.items():
        target.tables[group].install(table.export([2, 3]))
    for table in target.tables.values():
        table.undo()
    assert target.dump() == source.dump()
    target.epoch = source.epoch
    assert entries(target.run(window_rows(ROWS), 2000)) == entries(
        source.run(window_rows(ROWS), 2000)
    )
    assert target.dump() == source.dump()


def test_installed_where_entries_were_removed_in_any_order() -> None:
    layout = ColumnarLayout(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]))

    def section(*keys: int) -> Any:
        return pa.table({HASH: pa.array(keys), "k": pa.array(keys), "v": pa.array(keys)})

    table = GroupTable(layout, KeySpace(1, 1))
    table.install({SECTION: section(10, 20, 30)})
    for gone in ([10, 30], [20]):
        table.begin()
        hashes = np.array(gone)
        table.remove(hashes, table.index.find(hashes))
    table.begin()
    table.install({SECTION: section(1, 2, 3, 4, 5)})
    assert table.export()[SECTION].equals(section(1, 2, 3, 4, 5))


@pytest.mark.parametrize("watermark_ms", [0, 999, 1000, 2500, 10**9])
def test_due_windows(watermark_ms: int) -> None:
    worker = filled()
    before = worker.dump()
    times = BatchTimes(0, watermark_ms, 0)
    due = np.concatenate([worker.engine.due_hashes(t, times) for t in worker.tables.values()])
    assert np.array_equal(
        due, np.concatenate([worker.engine.due_hashes(t, times) for t in worker.tables.values()])
    )
    assert worker.dump() == before
    closed = worker.run(window_rows([]), watermark_ms)
    assert len(due) == closed.num_rows == worker.stats.rows_removed
    left = {h for t in worker.tables.values() for h in t.index.entries()[0].tolist()}
    assert left.isdisjoint(due.tolist())


def test_due_sessions() -> None:
    worker = sessions(append=True)
    worker.run(session_rows([(1, 0, 1), (1, 25, 2), (2, 5, 3)]))
    tables = worker.tables.values()

    def due(watermark_ms: int) -> int:
        times = BatchTimes(0, watermark_ms, 0)
        return sum(len(worker.engine.due_hashes(table, times)) for table in tables)

    assert [due(9999), due(10_000), due(15_000), due(10**6)] == [0, 1, 2, 2]


@pytest.mark.parametrize("kind", ["fixed", "arenas"])
def test_packed_entries(kind: str) -> None:
    """Sessions are lists: their records point into arenas."""
    rows = session_rows([(sensor, second, 1) for sensor in range(50) for second in (0, 30)])
    source = filled() if kind == "fixed" else sessions(append=True)
    target = windowed(append=True) if kind == "fixed" else sessions(append=True)
    if kind == "arenas":
        source.run(rows)
    for group, table in source.tables.items():
        for bins in ([0, 2], [1, 3]):
            packed = table.export_packed(bins)
            plain = table.export(bins)[SECTION]
            for name, section in packed.items():
                assert set(section.column(HASH).to_pylist()) == set(plain.column(HASH).to_pylist())
                half = section.num_rows // 2  # a slice has an offset
                target.tables[group].install({name: section.slice(half)})
                target.tables[group].install({name: section.slice(0, half)})
    assert target.dump() == source.dump()
    target.epoch = source.epoch
    if kind == "arenas":
        later = target.run(rows, 20_000), source.run(rows, 20_000)
    else:
        later = target.run(window_rows(ROWS), 2000), source.run(window_rows(ROWS), 2000)
    assert entries(later[0]) == entries(later[1])
    assert target.dump() == source.dump()
