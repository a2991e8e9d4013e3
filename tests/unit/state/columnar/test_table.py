"""Tables of key groups: transactions, undo, moving, restoring; with good and with bad hashes."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.processor.columnar.support import MemoryWorker
from tests.unit.processor.columnar.test_engine import session_rows, sessions, window_rows, windowed
from tests.unit.state.columnar.samples import entries, make, rows_of, simple_table

from anabranch.model.keyspace import DELETE, HASH, UPSERT, KeySpace
from anabranch.processor.contract import BatchTimes
from anabranch.state.columnar.layout import SECTION, ColumnarLayout
from anabranch.state.columnar.table import GroupTable

KEYS: dict[str, tuple[Any, list[Any]]] = {
    "long": (pa.int64(), [None, 0, -1, 2**63 - 1]),
    "boolean": (pa.bool_(), [None, True, False]),
    "double": (pa.float64(), [None, 0.0, float("nan"), -1.5]),
    "string": (pa.string(), [None, "", "a", "b" * 300]),
    "binary": (pa.binary(), [None, b"", b"\x00"]),
    "decimal": (pa.decimal128(38, 2), [None, Decimal("1.00"), Decimal("-1.00")]),
    "date": (pa.date32(), [None, datetime.date(2020, 1, 1)]),
    "array": (pa.list_(pa.string()), [None, [], [None], ["a"], ["a", "b"]]),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))]),
        [None, {"a": None, "b": None}, {"a": 1, "b": []}, {"a": 1, "b": [0.0]}],
    ),
}


@pytest.mark.parametrize("weak", [None, 1, 3])
@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_type(name: str, weak: int | None) -> None:
    kind, values = KEYS[name]
    worker = make(kind)
    rng = np.random.default_rng(1)
    counts = np.zeros(len(values), int)
    last: dict[int, str | None] = {}
    for batch in range(4):
        codes = rng.integers(0, len(values) if batch else 2, 50)
        rows = rows_of(codes, kind, values, weak, f"b{batch}-")
        before = worker.dump()
        output = worker.run(rows)
        after = worker.dump()
        for table in worker.tables.values():
            table.undo()
            table.undo()
        assert worker.dump() == before
        again = worker.run(rows)
        assert sorted(map(repr, again.to_pylist())) == sorted(map(repr, output.to_pylist()))
        assert worker.dump() == after
        counts += np.bincount(codes, minlength=len(values))
        last.update(zip(codes.tolist(), rows.column("v").to_pylist(), strict=True))
        expected = [
            repr({"k0": values[c], "n": int(counts[c]), "last": last[c]}) for c in np.unique(codes)
        ]
        assert sorted(map(repr, output.to_pylist())) == sorted(expected)
        assert sum(table.num_rows for table in worker.tables.values()) == (counts > 0).sum()


@pytest.mark.parametrize("weak", [None, 16])
def test_restore_equals_the_original(weak: int | None) -> None:
    values = [f"key-{i}" for i in range(500)]
    worker = make(pa.string())
    rng = np.random.default_rng(2)
    snapshot: dict[int, Any] = {}
    for batch in range(8):
        rows = rows_of(rng.integers(0, 500, 300), pa.string(), values, weak, f"{batch}-")
        worker.run(rows)
        if batch == 3:
            snapshot = {group: table.export() for group, table in worker.tables.items()}
    restored = make(pa.string())
    for group, sections in snapshot.items():
        restored.tables[group].install(sections)
    for log in worker.logs[4:]:
        for group, sections in log.items():
            restored.tables[group].begin()
            restored.tables[group].replay(sections)
    assert restored.dump() == worker.dump()
    from_nothing = make(pa.string())
    for log in worker.logs:
        for group, sections in log.items():
            from_nothing.tables[group].replay(sections)
    assert from_nothing.dump() == worker.dump()


def test_bins_move_alone_and_stay_moved_after_an_undo() -> None:
    values = list(range(1000))
    source, target = make(pa.int64()), make(pa.int64())
    bins = range(source.keyspace.bins)
    source.run(rows_of(np.arange(600), pa.int64(), values, None, "a"))
    whole = source.dump()
    source.run(rows_of(np.arange(400, 1000), pa.int64(), values, None, "b"))
    parts: dict[int, list[Any]] = {bin_: [] for bin_ in bins}
    for group, table in source.tables.items():
        everything = table.export()["state"]
        of_rows = source.keyspace.bin_of(everything.column(HASH).to_numpy())
        assert (np.diff(of_rows) >= 0).all()
        for bin_ in bins:
            part = table.export([bin_])
            assert part["state"].num_rows == int((of_rows == bin_).sum())
            parts[bin_].append((group, part))
    for group, part in parts[0]:
        source.tables[group].discard([0])
        target.tables[group].install(part)
    assert sorted(source.dump() + target.dump()) != whole
    for table in source.tables.values():
        table.undo()
    kept = [table.export()["state"].column(HASH).to_numpy() for table in source.tables.values()]
    assert not (source.keyspace.bin_of(np.concatenate(kept)) == 0).any()
    assert len(source.dump()) == sum(
        int(source.keyspace.bin_of(h) != 0)
        for h in rows_of(np.arange(600), pa.int64(), values, None, "a").column(HASH).to_numpy()
    )


def test_installed_entries_survive_an_undo() -> None:
    values = list(range(100))
    first, second = make(pa.int64()), make(pa.int64())
    first.run(rows_of(np.arange(50), pa.int64(), values, None, "a"))
    second.run(rows_of(np.arange(50, 100), pa.int64(), values, None, "b"))
    for group, table in second.tables.items():
        table.install(first.tables[group].export())
        table.undo()
    assert second.dump() == first.dump()
    second.run(rows_of(np.arange(100), pa.int64(), values, None, "c"))
    assert len(second.dump()) == 100


def test_memory_is_given_back() -> None:
    table = simple_table()
    keys = [f"{i}" * 20 for i in range(5000)]
    for round_ in range(10):
        table.begin()
        table.replay(entries(keys, UPSERT, "x" * 100 + str(round_)))
    assert table.num_bytes < 3 * 5000 * (100 + 60 + 40)
    table.begin()
    table.replay(entries(keys[10:], DELETE))
    assert table.num_rows == 10
    table.undo()
    assert table.num_rows == 5000
    table.begin()
    table.replay(entries(keys[10:], DELETE))
    table.begin()
    assert table.num_bytes < 20_000
    assert sorted(table.export()["state"].column("k").to_pylist()) == sorted(keys[:10])


def test_freed_slots_are_used_again_only_later() -> None:
    table = simple_table()
    table.replay(entries(["a", "b"], UPSERT, "1"))
    table.begin()
    table.replay(entries(["a"], DELETE))
    table.replay(entries(["c"], UPSERT, "3"))
    table.undo()
    assert sorted(table.export()["state"].column("k").to_pylist()) == ["a", "b"]
    table.replay(entries(["a", "b"], DELETE))
    table.begin()
    table.replay(entries(["d"], UPSERT, "4"))
    assert table.export()["state"].select(["k", "s"]).to_pylist() == [{"k": "d", "s": "4"}]


ROWS = [(sensor, window, sensor + window) for sensor in range(60) for window in (0, 1, 2)]


def sorted_rows(table: Any) -> list[str]:
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
        assert sorted_rows(some) == sorted_rows(expected)
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
    assert sorted_rows(target.run(window_rows(ROWS), 2000)) == sorted_rows(
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
def test_packed_sorted_rows(kind: str) -> None:
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
    assert sorted_rows(later[0]) == sorted_rows(later[1])
    assert target.dump() == source.dump()
