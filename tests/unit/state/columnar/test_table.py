"""Tables of key groups: transactions, undo, moving, restoring; with good and with bad hashes."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.processor.columnar.support import MemoryWorker

from anabranch.durability.changelog import encode_changelog
from anabranch.errors import CorruptState
from anabranch.model.keyspace import DELETE, HASH, KEPT, OP, UPSERT, KeySpace
from anabranch.processor.columnar.aggregates import AggregateProcessor, Measure
from anabranch.processor.columnar.engine import ColumnarDefinition
from anabranch.processor.columnar.kernels import Count
from anabranch.processor.columnar.selection import Nth
from anabranch.state.columnar.layout import ColumnarLayout
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


def make(kind: Any, keys: int = 1) -> MemoryWorker:
    schema = pa.schema([pa.field(f"k{i}", kind) for i in range(keys)])
    inputs = schema.append(pa.field("v", pa.string()))
    output = pa.schema([*schema, pa.field("n", pa.int64()), pa.field("last", pa.string())])
    measures = [
        Measure("n", Count(), None),
        Measure("last", Nth(pa.string(), last=True, ignore_nulls=False), "v"),
    ]
    processor = AggregateProcessor(measures, output, windowed=False, append=False, expiry=None)
    return MemoryWorker(ColumnarDefinition(processor, schema, inputs, output))


def rows_of(codes: Any, kind: Any, values: list[Any], weak: int | None, tag: str) -> Any:
    """Rows whose key is values[code]; the hash depends on the code only (weakly, if asked)."""
    hashes = (codes.astype(np.int64) + 11) * 0x9E3779B97F4A7C1
    if weak is not None:
        hashes = hashes % weak
    texts = [None if i % 7 == 0 else f"{tag}{i}" for i in range(len(codes))]
    keys = pa.array([values[c] for c in codes], kind)
    return pa.table({HASH: hashes, "k0": keys, "v": pa.array(texts, pa.string())})


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


def simple_table() -> GroupTable:
    layout = ColumnarLayout(pa.schema([("k", pa.string())]), pa.schema([("s", pa.string())]))
    return GroupTable(layout, KeySpace())


def entries(keys: list[str], op: int, state: str = "") -> Any:
    hashes = pa.array([hash(k) // 2 for k in keys], pa.int64())
    ops = pa.array([op] * len(keys), pa.uint8())
    texts = pa.array([state] * len(keys), pa.string())
    return {
        "state": pa.table({HASH: hashes, OP: ops, "k": pa.array(keys, pa.string()), "s": texts})
    }


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


def test_values_that_do_not_change_are_not_written_again() -> None:
    values = list(range(40))
    worker = make(pa.int64())

    def run(texts: list[str | None]) -> dict[int, str | None]:
        rows = rows_of(np.arange(40), pa.int64(), values, None, "")
        output = worker.run(rows.set_column(2, "v", pa.array(texts, pa.string())))
        last: list[str | None] = output.column("last").to_pylist()
        return dict(zip(output.column("k0").to_pylist(), last, strict=True))

    def written() -> int:
        return sum(table.arenas[0].rows for table in worker.tables.values())

    first: list[str | None] = [None, *(f"t{i}" for i in range(1, 40))]
    run(first)
    before = written()
    assert run(first) == dict(enumerate(first))
    assert written() == before
    # Some change, one from and one to null.
    second = ["now", *first[1:20], *(f"u{i}" for i in range(20, 39)), None]
    state = worker.dump()
    assert run(second) == dict(enumerate(second))
    assert written() == before + 20  # of a null there is nothing to write
    for table in worker.tables.values():
        table.undo()
    assert worker.dump() == state


def test_what_has_not_changed_is_not_logged_and_comes_back() -> None:
    rng = np.random.default_rng(3)
    values, texts = list(range(50)), ["", "a" * 1000, "b" * 1000, None]
    worker = make(pa.int64())
    for _ in range(12):
        codes = rng.integers(0, 50, 40)
        rows = rows_of(codes, pa.int64(), values, None, "")
        chosen = pa.array([texts[rng.integers(0, 4) if c % 3 else c % 2] for c in codes])
        worker.run(rows.set_column(2, "v", chosen))
    logs = [
        table for log in worker.logs for sections in log.values() for table in sections.values()
    ]
    assert any(KEPT in log.column_names for log in logs)
    again = make(pa.int64())
    for log in worker.logs:
        for group, sections in log.items():
            again.tables[group].begin()
            again.tables[group].replay(sections)
    assert again.dump() == worker.dump()
    # The same in one go, as several entries of a key in one changelog.
    at_once = make(pa.int64())
    for group, table in at_once.tables.items():
        parts = [log[group]["state"] for log in worker.logs if group in log]
        if parts:
            table.replay({"state": pa.concat_tables(parts, promote_options="default")})
    assert at_once.dump() == worker.dump()


def test_what_is_not_logged_takes_no_room() -> None:
    layout = ColumnarLayout(pa.schema([("k", pa.int64())]), pa.schema([("v", pa.string())]))
    (part,) = layout.state_parts
    hashes, keys, state = np.arange(40), [pa.array(range(40))], [pa.array(["a" * 1000] * 40)]
    for unchanged in (np.ones(40, bool), np.arange(40) != 7):
        log = layout.log_upserts(hashes, keys, state, {part.value: unchanged})
        size = sum(memoryview(buffer).nbytes for buffer in encode_changelog({"state": log}))
        assert log.column(part.name).null_count == unchanged.sum()
        assert size < 10_000, "nulls may have bytes behind them"


def test_a_changelog_that_keeps_what_is_not_there_is_refused() -> None:
    worker = make(pa.int64())
    rows = rows_of(np.arange(1, 8), pa.int64(), list(range(9)), None, "same")
    worker.run(rows)
    worker.run(rows)
    group, sections = next(iter(worker.logs[1].items()))
    with pytest.raises(CorruptState, match="earlier epoch"):
        make(pa.int64()).tables[group].replay(sections)


def test_a_changelog_that_keeps_what_was_deleted_is_refused() -> None:
    table = simple_table()
    kept = entries(["a"], UPSERT)["state"].append_column(KEPT, pa.array([1], pa.uint64()))
    log = [entries(["a"], UPSERT, "1")["state"], entries(["a"], DELETE)["state"], kept]
    with pytest.raises(CorruptState, match="earlier epoch"):
        table.replay({"state": pa.concat_tables(log, promote_options="default")})


def test_last_entry_of_a_changelog_counts() -> None:
    table = simple_table()
    log = [entries(["a", "b"], UPSERT, "1"), entries(["a"], DELETE), entries(["b"], UPSERT, "2")]
    table.replay({"state": pa.concat_tables([part["state"] for part in log])})
    assert table.export()["state"].select(["k", "s"]).to_pylist() == [{"k": "b", "s": "2"}]


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
